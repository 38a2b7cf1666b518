//! Whether a new revision does worse than the old one.
//!
//! Two rates are compared: requests that failed, and requests that were late or given up for want of time. The new one's must exceed the
//! old one's by a margin, and by more than chance explains: the standard error of the difference of two proportions counts
//! [`CERTAINTY`] times. So a few requests condemn a revision only if nearly all of them go wrong.
//!
//! Where the old one has too few requests to compare with, failures alone are judged, against none: lateness depends on the load, failures do
//! not.

/// Fewer requests of a revision are not judged, nor compared with: one client's broken frames are not a revision's.
pub const LEAST: u64 = 10;
/// Fewer bad requests condemn nobody, whatever they are compared with: a batch that failed by chance has a few.
pub const LEAST_BAD: u64 = 5;
/// So much larger may the part of failed requests be: a worker that dies fails some of a minute's.
pub const FAILURES_MARGIN: f64 = 0.02;
/// So much larger may the part of late and dropped requests be: from minute to minute the load changes by that.
pub const LATENESS_MARGIN: f64 = 0.1;
/// Standard errors that count as chance. A revision is judged some hundred times a minute, and a healthy one is to stay.
pub const CERTAINTY: f64 = 4.0;

/// What requests came to. Those that their client gave up, or whose frame cannot be read, are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Completed before their deadline.
    pub in_time: u64,
    /// Completed after it.
    pub late: u64,
    /// Given up, or refused for want of capacity.
    pub dropped: u64,
    /// Failed.
    pub failed: u64,
}

impl Outcomes {
    /// All of them.
    pub fn all(self) -> u64 {
        self.in_time + self.late + self.dropped + self.failed
    }

    /// Counts these, too.
    pub fn add(&mut self, more: Outcomes) {
        self.in_time += more.in_time;
        self.late += more.late;
        self.dropped += more.dropped;
        self.failed += more.failed;
    }

    /// What came since an earlier reading of the same counters.
    #[must_use]
    pub fn since(self, earlier: Outcomes) -> Outcomes {
        Outcomes {
            in_time: self.in_time.saturating_sub(earlier.in_time),
            late: self.late.saturating_sub(earlier.late),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }

    fn not_in_time(self) -> u64 {
        self.late + self.dropped
    }
}

/// The requests of one pipeline of both revisions.
pub(super) struct Judged<'a> {
    pub(super) pipeline: &'a str,
    /// Of the new one, since the step began.
    pub(super) failing: Outcomes,
    /// Of the new one, since it settled.
    pub(super) timely: Outcomes,
    /// Of the old one in the same window, where it serves beside.
    pub(super) beside: Option<Outcomes>,
    /// Of the old one in its last minute.
    pub(super) before: Option<Outcomes>,
}

/// Why the new one is to go, if it is worse.
pub(super) fn judge(of: &Judged<'_>) -> Option<String> {
    let beside = of.beside.filter(|old| old.all() >= LEAST);
    let (old, when) = match beside {
        Some(old) => (Some(old), "in the same time"),
        None => (
            of.before.filter(|old| old.all() >= LEAST),
            "in its last minute",
        ),
    };
    let exceeds = |new: Outcomes, part: fn(Outcomes) -> u64, margin: f64| {
        let old = old.unwrap_or_default();
        let (new, old) = ((part(new), new.all()), (part(old), old.all()));
        new.0 >= LEAST_BAD && new.1 >= LEAST && is_worse(new, old, margin)
    };
    let sentence = |what: &str, new: Outcomes, part: fn(Outcomes) -> u64, margin: f64| {
        let compared = match old {
            Some(old) => format!(
                "of the one before it {} of {} {when}, and at most {:.0}% more may be",
                part(old),
                old.all(),
                margin * 100.0
            ),
            None => "and there is nothing to compare with".to_owned(),
        };
        format!(
            "pipeline {}: {} of its {} requests {what}; {compared}",
            of.pipeline,
            part(new),
            new.all()
        )
    };
    let failed = |of: Outcomes| of.failed;
    if exceeds(of.failing, failed, FAILURES_MARGIN) {
        return Some(sentence("failed", of.failing, failed, FAILURES_MARGIN));
    }
    if old.is_some() && exceeds(of.timely, Outcomes::not_in_time, LATENESS_MARGIN) {
        let what = "were late or dropped";
        let late = Outcomes::not_in_time;
        return Some(sentence(what, of.timely, late, LATENESS_MARGIN));
    }
    None
}

/// Whether `new` of so many is a larger part than `old` of so many by the margin, chance left aside.
fn is_worse(new: (u64, u64), old: (u64, u64), margin: f64) -> bool {
    let part = |(some, all): (u64, u64)| match all {
        0 => 0.0,
        all => some as f64 / all as f64,
    };
    let inverse = |all: u64| match all {
        0 => 0.0,
        all => 1.0 / all as f64,
    };
    let pooled = part((new.0 + old.0, new.1 + old.1));
    let error = (pooled * (1.0 - pooled) * (inverse(new.1) + inverse(old.1))).sqrt();
    part(new) - part(old) > margin + CERTAINTY * error
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn outcomes(in_time: u64, late: u64, failed: u64) -> Outcomes {
        Outcomes {
            in_time,
            late,
            dropped: 0,
            failed,
        }
    }

    fn verdict(new: Outcomes, beside: Option<Outcomes>, before: Option<Outcomes>) -> String {
        let of = Judged {
            pipeline: "p",
            failing: new,
            timely: new,
            beside,
            before,
        };
        judge(&of).unwrap_or_else(|| "stays".to_owned())
    }

    #[test]
    fn a_sentence_says_what_exceeded_what() {
        let old = Some(outcomes(990, 10, 0));
        expect!["pipeline p: 12 of its 12 requests failed; of the one before it 0 of 1000 in its last minute, and at most 2% more may be"]
            .assert_eq(&verdict(outcomes(0, 0, 12), None, old));
        expect!["pipeline p: 40 of its 100 requests were late or dropped; of the one before it 10 of 1000 in the same time, and at most 10% more may be"]
            .assert_eq(&verdict(outcomes(60, 40, 0), old, None));
        expect!["pipeline p: 12 of its 12 requests failed; and there is nothing to compare with"]
            .assert_eq(&verdict(outcomes(0, 0, 12), None, None));
    }

    #[test]
    fn few_requests_condemn_nobody() {
        let old = Some(outcomes(1000, 0, 0));
        let few = LEAST - 1;
        assert_eq!(verdict(outcomes(0, 0, few), None, old), "stays");
        assert_eq!(verdict(outcomes(0, few, 0), None, old), "stays");
        // One failure of many is not a revision's, whatever it is compared with.
        for before in [None, old, Some(outcomes(1, 0, 0))] {
            assert_eq!(verdict(outcomes(19, 0, 1), None, before), "stays");
            assert_eq!(verdict(outcomes(2000, 0, 40), None, before), "stays");
            assert_ne!(verdict(outcomes(2000, 0, 400), None, before), "stays");
        }
    }

    #[test]
    fn lateness_is_judged_only_beside_what_was_before() {
        let late = outcomes(0, 500, 0);
        assert_eq!(verdict(late, None, None), "stays");
        assert_eq!(verdict(late, None, Some(outcomes(0, 500, 0))), "stays");
        assert_eq!(verdict(late, Some(outcomes(50, 450, 0)), None), "stays");
        assert_ne!(verdict(late, None, Some(outcomes(500, 0, 0))), "stays");
        // Too few in the same window: the minute before counts.
        let few = Some(outcomes(0, LEAST - 1, 0));
        assert_ne!(verdict(late, few, Some(outcomes(500, 0, 0))), "stays");
    }

    #[test]
    fn one_that_is_as_bad_as_the_old_one_stays() {
        for all in [LEAST, 100, 10_000] {
            for bad in [0, all / 3, all] {
                let of = outcomes(all - bad, bad / 2, bad - bad / 2);
                assert_eq!(verdict(of, Some(of), None), "stays", "{bad} of {all}");
                assert_eq!(verdict(of, None, Some(of)), "stays", "{bad} of {all}");
            }
        }
    }
}
