//! `--client` of `simulate`.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use spillgate_pipeline::clients::{CLASSES, WEIGHT};
use spillgate_sim::clients::{Sends, SimClient};
use spillgate_sim::{Hostile, HostileKind};

/// Most requests a second of hostile clients: more than any port takes.
const HOSTILE_RATE_MAX: f64 = 1e6;

const EXPECTED: &str = "give NAME:RATE and, after commas, sends=poisson, evenly, bursts or alternating, count=N, \
                        streams=N, weight=X, class=N, application=NAME, takes=X, slo=none, like camera:5,count=7,sends=evenly";
/// Most requests a second of a client: more than any port takes.
const RATE_MAX: f64 = 1e6;
/// How many times as long as planned requests may take.
const TAKES: (f64, f64) = (0.01, 100.0);

/// `camera:5,count=7` and the like.
pub(super) fn client(text: &str) -> Result<SimClient, String> {
    let mut parts = text.split(',');
    let (name, rate) = parts
        .next()
        .and_then(|p| p.split_once(':'))
        .ok_or(EXPECTED)?;
    let mut client = SimClient::new(name, number("the rate", rate, 0.001, RATE_MAX)?);
    for part in parts {
        let (key, value) = part.split_once('=').ok_or(EXPECTED)?;
        match key {
            "sends" => client.sends = sends(value)?,
            "count" => client.count = number(key, value, 1, u16::MAX)?,
            "streams" => client.streams = number(key, value, 1, u16::MAX)?,
            "weight" => client.weight = number(key, value, WEIGHT.0, WEIGHT.1)?,
            "class" => client.class = number(key, value, 0, CLASSES as u16 - 1)? as u8,
            "application" => client.application = value.to_owned(),
            "takes" => client.takes = number(key, value, TAKES.0, TAKES.1)?,
            "slo" if value == "none" => client.background = true,
            "slo" => {
                return Err(format!(
                    "slo={value}; the only one of a client is slo=none: without it the SLO is the pipeline's"
                ));
            }
            _ => return Err(format!("no option {key:?}; {EXPECTED}")),
        }
    }
    Ok(client)
}

fn sends(text: &str) -> Result<Sends, String> {
    match text {
        "poisson" => Ok(Sends::Poisson),
        "evenly" => Ok(Sends::Evenly),
        "bursts" => Ok(Sends::Bursts),
        "alternating" => Ok(Sends::Alternating),
        _ => Err(format!("sends={text}; {EXPECTED}")),
    }
}

/// A number from `low` to `high`.
fn number<T>(what: &str, text: &str, low: T, high: T) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let value: T = text.parse().map_err(|_| EXPECTED)?;
    match low <= value && value <= high {
        true => Ok(value),
        false => Err(format!(
            "{what} {text} is out of range; use {low} to {high}"
        )),
    }
}

/// `hurry:300` and the like.
pub(super) fn hostile(text: &str) -> Result<Hostile, String> {
    let expected = "give hurry, unreadable or cancelled and a rate, like hurry:300";
    let (kind, rate) = text.split_once(':').ok_or(expected)?;
    let kind = match kind {
        "hurry" => HostileKind::Hurry(Duration::from_millis(1)),
        "unreadable" => HostileKind::Unreadable,
        "cancelled" => HostileKind::Leave(Duration::from_millis(5)),
        _ => return Err(expected.to_owned()),
    };
    let rate: f64 = rate.parse().map_err(|_| expected)?;
    if !(rate > 0.0 && rate <= HOSTILE_RATE_MAX) {
        return Err(format!(
            "the rate lies above 0 and up to {HOSTILE_RATE_MAX} a second"
        ));
    }
    Ok(Hostile { kind, rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_read_and_what_makes_no_sense_is_refused() {
        let read = client("camera:5,count=7,sends=evenly,streams=2,weight=0.5,class=7").unwrap();
        assert_eq!((read.count, read.sends, read.rate), (7, Sends::Evenly, 5.0));
        assert_eq!((read.streams, read.weight, read.class), (2, 0.5, 7));
        let long = client("a:1,application=long,takes=3").unwrap();
        assert_eq!((long.application.as_str(), long.takes), ("long", 3.0));
        assert!(!long.background && client("nightly:500,slo=none").unwrap().background);
        for wrong in [
            "camera",
            "a:1,slo=200ms",
            "a:1,takes=0",
            "camera:0",
            "camera:NaN",
            "a:1,weight=0",
            "a:1,weight=NaN",
            "a:1,class=8",
            "a:1,wieght=2",
            "a:1,sends=now",
            "a:1,count=0",
        ] {
            assert!(client(wrong).is_err(), "{wrong}");
        }
    }
}
