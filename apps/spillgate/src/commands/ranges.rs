//! Ranges of flags. A value outside its range is a usage error that states the range and its reason.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use spillgate_pipeline::placement::parse_memory;
use spillgate_pipeline::time::{format_duration, parse_duration};

/// Reads a number from `low` to `high`; `reason` says why there is no more, or no less.
pub(crate) fn number<T>(
    low: T,
    high: T,
    reason: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| match text.trim().parse::<T>() {
        Ok(value) if low <= value && value <= high => Ok(value),
        _ => Err(format!("use {low} to {high}: {reason}")),
    }
}

/// Reads a duration up to `high`.
pub(crate) fn duration(
    high: Duration,
    reason: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| match parse_duration(text)? {
        value if value <= high => Ok(value),
        _ => Err(format!("use up to {}: {reason}", format_duration(high))),
    }
}

/// Bytes, like `256MiB` or `1GiB`.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    parse_memory(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_of_the_range_is_an_error_with_the_range_and_its_reason() {
        let read = number(1usize, 8, "there are eight");
        assert_eq!((read("1"), read(" 8 ")), (Ok(1), Ok(8)));
        for wrong in ["0", "9", "-1", "4611686018427387904", "1e3", "", "x"] {
            assert_eq!(read(wrong), Err("use 1 to 8: there are eight".to_owned()));
        }
        let read = number(0.0, 1.0, "a part");
        assert_eq!(read("0.5"), Ok(0.5));
        assert!(read("NaN").is_err() && read("1.01").is_err());
        let read = duration(Duration::from_secs(3600), "an hour");
        assert_eq!(read("10s"), Ok(Duration::from_secs(10)));
        assert!(read("61m").unwrap_err().ends_with(": an hour"));
        assert!(read("ten").is_err());
    }
}
