//! The flag that says how a revision takes the place of another.

use std::time::Duration;

use spillgate_controller_policy::rollout::{RolloutConfig, Strategy};
use spillgate_pipeline::time::{format_duration, parse_duration};

/// Longest watch: the old revision keeps its memory until it is over.
const WATCH_MAX: Duration = Duration::from_secs(24 * 3600);

/// Reads `at-once`, `recreate` or a share like `5%`, and a watch behind it.
pub(crate) fn rollout(text: &str) -> Result<RolloutConfig, String> {
    let expected = "give at-once, recreate or a share of the streams like 5%, and how long it is watched: at-once,watch=1m";
    let (how, watch) = match text.split_once(',') {
        None => (text, None),
        Some((how, setting)) => match setting.trim().strip_prefix("watch=") {
            None => return Err(expected.to_owned()),
            Some(watch) => (how, Some(parse_duration(watch)?)),
        },
    };
    let strategy = match how.trim() {
        "at-once" => Strategy::AtOnce,
        "recreate" => Strategy::Recreate,
        share => Strategy::Share(share.parse().map_err(|why| format!("{why}; {expected}"))?),
    };
    let watch = watch.unwrap_or(RolloutConfig::default().watch);
    if watch > WATCH_MAX {
        return Err(format!("watch is up to {}", format_duration(WATCH_MAX)));
    }
    if watch.is_zero() && matches!(strategy, Strategy::Share(_)) {
        return Err(
            "a share is kept for one watch: give one of a second or more, or at-once".to_owned(),
        );
    }
    Ok(RolloutConfig { strategy, watch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_a_strategy_and_a_watch() {
        let watch = |text: &str| rollout(text).map(|of| (of.strategy, of.watch.as_secs()));
        assert_eq!(watch("at-once"), Ok((Strategy::AtOnce, 60)));
        assert_eq!(watch("at-once,watch=0s"), Ok((Strategy::AtOnce, 0)));
        assert_eq!(watch("recreate, watch=5m"), Ok((Strategy::Recreate, 300)));
        let share = Strategy::Share("0.5%".parse().unwrap());
        assert_eq!(watch("0.5%"), Ok((share, 60)));
        for wrong in [
            "",
            "5",
            "100%",
            "now",
            "at-once,10s",
            "5%,watch=0s",
            "at-once,watch=25h",
        ] {
            assert!(rollout(wrong).is_err(), "{wrong}");
        }
    }
}
