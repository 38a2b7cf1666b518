//! Bandwidth of a link over time, as measured somewhere: a text of the columns second,mbps, over and over. The client sends over such
//! links, and the simulator has cameras behind them.

use std::fmt;
use std::time::Duration;

/// Most megabits a second; no network of cameras has more.
const MBPS_MAX: f64 = 100_000.0;
const HEADER: &str = "second,mbps";

/// A stretch of one bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    /// Seconds from the start of the trace.
    from: f64,
    bits_per_second: f64,
    /// Bits that have passed before it.
    before: f64,
}

/// Bandwidths of a link. After the last one the first follows.
#[derive(Clone, Debug, PartialEq)]
pub struct BandwidthTrace {
    /// Not empty; the first begins at 0.
    stretches: Vec<Stretch>,
    /// Seconds and bits of all.
    seconds: f64,
    bits: f64,
}

impl BandwidthTrace {
    /// The same bandwidth always, in bits a second.
    ///
    /// # Panics
    /// When it is not above 0.
    pub fn constant(bits_per_second: f64) -> Self {
        let is_some = bits_per_second > 0.0 && bits_per_second.is_finite();
        assert!(is_some, "a link of {bits_per_second} bit/s");
        Self::of(&[(0.0, bits_per_second / 1e6)]).expect("it is above 0")
    }

    /// Reads a text.
    ///
    /// # Errors
    /// When it is no such trace: which line, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, BadBandwidth> {
        let mut lines = (1..).zip(text.lines());
        let header = lines.next().map_or("", |(_, line)| line.trim());
        if header != HEADER {
            let said = format!("the first line is \"{}\"; it must be {HEADER}", cut(header));
            return Err(BadBandwidth::at(1, said));
        }
        let mut rows: Vec<(f64, f64)> = Vec::new();
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let (second, mbps) = row(line).map_err(|said| BadBandwidth::at(number, said))?;
            if let Some((last, _)) = rows.last()
                && second <= *last
            {
                let said = format!("second {second} is not after {last}; seconds must rise");
                return Err(BadBandwidth::at(number, said));
            }
            rows.push((second, mbps));
        }
        Self::of(&rows)
    }

    /// Seconds and megabits a second from then on, in order of time.
    fn of(rows: &[(f64, f64)]) -> Result<Self, BadBandwidth> {
        let Some(&(first, _)) = rows.first() else {
            return Err(BadBandwidth::of_all(format!(
                "there is no row below {HEADER}"
            )));
        };
        // The last row holds as long as the one before it.
        let seconds = match rows[..] {
            [.., (before, _), (last, _)] => last + (last - before) - first,
            _ => 1.0,
        };
        let ends = rows.iter().skip(1).map(|(second, _)| second - first);
        let ends: Vec<f64> = ends.chain([seconds]).collect();
        let mut bits = 0.0;
        let mut stretches = Vec::with_capacity(rows.len());
        for (&(second, mbps), end) in rows.iter().zip(ends) {
            let stretch = Stretch {
                from: second - first,
                bits_per_second: mbps * 1e6,
                before: bits,
            };
            bits += stretch.bits_per_second * (end - stretch.from);
            stretches.push(stretch);
        }
        if bits <= 0.0 {
            let said = "every mbps is 0, so nothing would ever pass; one must be more";
            return Err(BadBandwidth::of_all(said.to_owned()));
        }
        Ok(BandwidthTrace {
            stretches,
            seconds,
            bits,
        })
    }

    /// How long it is until it repeats.
    pub fn period(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Bits that the link carries until that time from its beginning.
    pub fn carried(&self, until: Duration) -> f64 {
        let until = until.as_secs_f64();
        let rounds = (until / self.seconds).floor();
        let rest = until - rounds * self.seconds;
        let next = self.stretches.partition_point(|s| s.from <= rest);
        let stretch = &self.stretches[next.saturating_sub(1)];
        rounds * self.bits + stretch.before + stretch.bits_per_second * (rest - stretch.from)
    }

    /// The time from the beginning until that many bits have been carried.
    pub fn time_of(&self, bits: f64) -> Duration {
        let rounds = (bits / self.bits).floor();
        let rest = bits - rounds * self.bits;
        // Where nothing passes for a while, the last of the stretches that begin with these bits.
        let next = self.stretches.partition_point(|s| s.before <= rest);
        let stretch = &self.stretches[next.saturating_sub(1)];
        let within = match stretch.bits_per_second > 0.0 {
            true => (rest - stretch.before) / stretch.bits_per_second,
            false => 0.0,
        };
        let seconds = rounds * self.seconds + stretch.from + within;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// Why a text is no trace of bandwidths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBandwidth {
    /// The line, from 1; `None`: all of them.
    line: Option<usize>,
    said: String,
}

impl BadBandwidth {
    fn at(line: usize, said: String) -> Self {
        let line = Some(line);
        BadBandwidth { line, said }
    }

    fn of_all(said: String) -> Self {
        BadBandwidth { line: None, said }
    }

    /// The same with the name of the file, as `FILE:LINE: what is wrong`.
    pub fn in_file(&self, name: &str) -> String {
        match self.line {
            Some(line) => format!("{name}:{line}: {}", self.said),
            None => format!("{name}: {}", self.said),
        }
    }
}

impl fmt::Display for BadBandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_file("trace"))
    }
}

impl std::error::Error for BadBandwidth {}

/// A line: a second, and megabits a second from then on.
fn row(line: &str) -> Result<(f64, f64), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [second, mbps] = fields[..] else {
        return Err(format!(
            "\"{}\" has {} columns; there must be two, like 12,7.5",
            cut(line),
            fields.len()
        ));
    };
    let number = |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite());
    let Some(second) = number(second).filter(|s| (0.0..=1e9).contains(s)) else {
        let second = cut(second);
        return Err(format!(
            "second is \"{second}\"; it must be a number from 0 on"
        ));
    };
    match number(mbps).filter(|m| (0.0..=MBPS_MAX).contains(m)) {
        Some(mbps) => Ok((second, mbps)),
        None => Err(format!(
            "mbps is \"{}\"; it must be a number from 0 to {MBPS_MAX}",
            cut(mbps)
        )),
    }
}

/// So much of a text as a message repeats.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(rows: &str) -> BandwidthTrace {
        BandwidthTrace::parse(&format!("{HEADER}\n{rows}")).unwrap()
    }

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn each_row_holds_until_the_next_and_after_the_last_the_first_follows() {
        let trace = trace("10,1\n11,0\n13,2\n");
        for (at, megabits) in [
            (0.0, 0.0),
            (0.5, 0.5),
            (1.0, 1.0),
            (2.9, 1.0),
            (4.0, 3.0),
            (5.0, 5.0),
            (5.5, 5.5),
            (501.0, 501.0),
        ] {
            assert!(
                (trace.carried(seconds(at)) - megabits * 1e6).abs() < 1.0,
                "{at}"
            );
        }
        for (megabits, at) in [(0.5, 0.5), (1.5, 3.25), (5.5, 5.5), (501.5, 503.25)] {
            let found = trace.time_of(megabits * 1e6).as_secs_f64();
            assert!((found - at).abs() < 1e-6, "{megabits}: {found}");
        }
    }

    #[test]
    fn one_row_is_a_constant_link() {
        let trace = trace("0,8\n");
        assert_eq!(trace.carried(seconds(2.5)), 20e6);
        assert_eq!(trace.time_of(20e6), seconds(2.5));
    }

    #[test]
    fn what_is_no_trace_says_where_and_why() {
        let error = |text: &str| BandwidthTrace::parse(text).unwrap_err().in_file("link.csv");
        for (text, says) in [
            (
                "",
                "link.csv:1: the first line is \"\"; it must be second,mbps",
            ),
            (
                "time,rate\n0,1",
                "link.csv:1: the first line is \"time,rate\"",
            ),
            ("second,mbps\n", "link.csv: there is no row"),
            (
                "second,mbps\n0,1\n1\n",
                "link.csv:3: \"1\" has 1 columns; there must be two, like 12,7.5",
            ),
            (
                "second,mbps\n0,fast",
                "link.csv:2: mbps is \"fast\"; it must be a number from 0 to",
            ),
            ("second,mbps\n0,-1", "link.csv:2: mbps is \"-1\""),
            ("second,mbps\n0,NaN", "link.csv:2: mbps is \"NaN\""),
            ("second,mbps\n0,1e300", "link.csv:2: mbps is \"1e300\""),
            (
                "second,mbps\ninf,1",
                "link.csv:2: second is \"inf\"; it must be a number from 0 on",
            ),
            (
                "second,mbps\n0,1\n\n0,2",
                "link.csv:4: second 0 is not after 0; seconds must rise",
            ),
            ("second,mbps\n0,0\n1,0", "link.csv: every mbps is 0"),
        ] {
            let said = error(text);
            assert!(said.starts_with(says), "{said}");
        }
    }
}
