//! Time as integer nanoseconds. A `Timestamp` counts from an epoch that the driver chooses (process start in the
//! server, zero in the simulator). Spans are `std::time::Duration`. The remaining time of a request is a `Budget`,
//! which may be negative.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, nanoseconds since the driver's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The driver's epoch.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Later than anything that happens.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The point `ns` nanoseconds after the epoch.
    pub const fn from_ns(ns: u64) -> Self {
        Timestamp(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Seconds since the epoch, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// Time from `earlier` to `self`, zero when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time from `now` until `self`; negative when it has passed.
    pub fn budget_at(self, now: Timestamp) -> Budget {
        Budget((self.0 as i64).saturating_sub(now.0 as i64))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Duration) -> Timestamp {
        let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_add(ns))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, span: Duration) -> Timestamp {
        let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_sub(ns))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.as_secs_f64())
    }
}

/// Remaining time of a request, in nanoseconds; negative once its deadline has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget(i64);

impl Budget {
    /// That many nanoseconds, negative when overdue.
    pub const fn from_ns(ns: i64) -> Self {
        Budget(ns)
    }

    /// Nanoseconds left, negative when overdue.
    pub const fn as_ns(self) -> i64 {
        self.0
    }

    /// Milliseconds left, for messages.
    pub fn as_ms_f64(self) -> f64 {
        self.0 as f64 * 1e-6
    }
}

/// `1.5ms`, `400ms`, `2s`, `250us`: the shortest exact spelling users would write.
pub fn format_duration(span: Duration) -> String {
    let ns = span.as_nanos();
    let (value, unit) = if ns == 0 {
        return "0ms".to_owned();
    } else if ns >= 1_000_000_000 && ns.is_multiple_of(100_000_000) {
        (ns as f64 / 1e9, "s")
    } else if ns >= 1_000_000 {
        (ns as f64 / 1e6, "ms")
    } else if ns >= 1_000 {
        (ns as f64 / 1e3, "us")
    } else {
        (ns as f64, "ns")
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

/// As [`parse_duration`], but refuses 0.
///
/// # Errors
/// A sentence that says what would be right.
pub fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err(format!("{} is no time at all; write more", text.trim())),
        duration => Ok(duration),
    }
}

/// Reads `400ms`, `1.5s`, `250us`, `10ns`, `2m`.
///
/// # Errors
/// A sentence that says what would be right, when the text is no duration with a unit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 6] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 60e9),
        ("h", 3600e9),
    ];
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let Ok(number) = number.parse::<f64>() else {
        return Err(format!(
            "\"{text}\" is not a duration; write a number with a unit, like 400ms or 1.5s"
        ));
    };
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit.trim()) else {
        return Err(if unit.is_empty() {
            format!("\"{text}\" has no unit; write {text}ms or {text}s")
        } else {
            format!(
                "\"{text}\" has the unknown unit \"{}\"; use ns, us, ms, s, m or h",
                unit.trim()
            )
        });
    };
    let ns = number * scale;
    if !ns.is_finite() || ns > 1e18 {
        return Err(format!("\"{text}\" is too long a duration"));
    }
    Ok(Duration::from_nanos(ns.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for text in ["400ms", "1.5s", "250us", "10ns", "2s", "33.333ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(parse_duration("2m").unwrap(), Duration::from_secs(120));
    }

    #[test]
    fn a_wrong_duration_says_what_is_right() {
        assert!(parse_duration("400").unwrap_err().contains("400ms"));
        assert!(
            parse_duration("4 parsecs")
                .unwrap_err()
                .contains("unknown unit")
        );
        assert!(
            parse_duration("-3ms")
                .unwrap_err()
                .contains("number with a unit")
        );
        assert!(parse_duration("1e400s").is_err());
        let zero = parse_positive_duration("0s").unwrap_err();
        assert_eq!(zero, "0s is no time at all; write more");
        assert_eq!(parse_positive_duration("1ms"), Ok(Duration::from_millis(1)));
    }

    #[test]
    fn budgets_go_negative() {
        let deadline = Timestamp::from_ns(5);
        assert_eq!(deadline.budget_at(Timestamp::from_ns(9)).as_ns(), -4);
        assert_eq!(deadline.since(Timestamp::from_ns(9)), Duration::ZERO);
    }
}
