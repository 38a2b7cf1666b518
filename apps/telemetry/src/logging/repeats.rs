//! Limits the events of one call site: a burst of them is shown, then the number of further ones.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::Metadata;
use tracing::callsite::Identifier;

/// Events of one call site that are shown before they are counted: enough to see how they differ.
pub(crate) const BURST: u32 = 10;
/// How often the count is logged while events go on; a call site that is silent for as long starts anew.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);

/// The number of events of one call site that were not shown.
pub(super) struct Repeated {
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) n: u64,
    /// The time over which they came.
    pub(super) over: Duration,
    /// The text of the last of them.
    pub(super) text: String,
}

struct Site {
    metadata: &'static Metadata<'static>,
    since: Instant,
    shown: u32,
    counted: u64,
    text: String,
}

/// Decides; the time is an argument. Its size is bounded by the number of call sites in the program.
#[derive(Default)]
pub(super) struct Repeats {
    sites: HashMap<Identifier, Site>,
}

impl Repeats {
    /// Whether this event is shown; else it is counted and its text kept.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        metadata: &'static Metadata<'static>,
        text: impl FnOnce() -> String,
    ) -> bool {
        let site = self.sites.entry(metadata.callsite()).or_insert(Site {
            metadata,
            since: now,
            shown: 0,
            counted: 0,
            text: String::new(),
        });
        // A window that ended without counts leaves nothing to report.
        if site.counted == 0 && now.saturating_duration_since(site.since) >= WINDOW {
            (site.since, site.shown) = (now, 0);
        }
        if site.shown < BURST {
            site.shown += 1;
            return true;
        }
        site.counted += 1;
        if site.counted == 1 {
            site.text = text();
        }
        false
    }

    /// The counts that are due now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Repeated> {
        let mut due = Vec::new();
        for site in self.sites.values_mut() {
            let over = now.saturating_duration_since(site.since);
            if site.counted > 0 && over >= WINDOW {
                due.push(Repeated {
                    metadata: site.metadata,
                    n: std::mem::take(&mut site.counted),
                    over,
                    text: std::mem::take(&mut site.text),
                });
                site.since = now;
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    /// A call site's metadata.
    fn metadata() -> &'static Metadata<'static> {
        struct Take(std::sync::Mutex<Option<&'static Metadata<'static>>>);
        impl<S: tracing::Subscriber> Layer<S> for &'static Take {
            fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
                *self.0.lock().unwrap() = Some(event.metadata());
            }
        }
        static TAKE: Take = Take(std::sync::Mutex::new(None));
        let subscriber = tracing_subscriber::registry().with(&TAKE);
        tracing::subscriber::with_default(subscriber, || tracing::warn!("again"));
        TAKE.0.lock().unwrap().unwrap()
    }

    #[test]
    fn a_flood_shows_a_burst_and_then_one_count_a_window() {
        let (mut repeats, site, start) = (Repeats::default(), metadata(), Instant::now());
        let (mut shown, mut told) = (0, Vec::new());
        // 1,000 a second for 20 s.
        for ms in 0..20_000 {
            let now = start + Duration::from_millis(ms);
            shown += u32::from(repeats.hear(now, site, || "text".to_owned()));
            told.extend(repeats.due(now).into_iter().map(|r| r.n));
        }
        assert_eq!(shown, BURST);
        assert_eq!(told.len(), 3, "{told:?}");
        let rest = repeats.due(start + Duration::from_secs(25));
        let all = told.iter().sum::<u64>() + rest[0].n + u64::from(shown);
        assert_eq!(all, 20_000, "each is shown or counted");
        assert_eq!(rest[0].text, "text");
    }

    #[test]
    fn what_comes_now_and_then_is_always_shown() {
        let (mut repeats, site, start) = (Repeats::default(), metadata(), Instant::now());
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            assert!(repeats.hear(now, site, || unreachable!("it is shown")));
            assert!(repeats.due(now).is_empty());
        }
    }

    #[test]
    fn a_site_that_was_silent_starts_anew() {
        let (mut repeats, site, start) = (Repeats::default(), metadata(), Instant::now());
        let hear = |repeats: &mut Repeats, now| repeats.hear(now, site, String::new);
        for _ in 0..2 * BURST {
            hear(&mut repeats, start);
        }
        assert_eq!(repeats.due(start + WINDOW).len(), 1);
        assert!(!hear(&mut repeats, start + WINDOW), "it goes on");
        assert_eq!(repeats.due(start + 2 * WINDOW).len(), 1);
        assert!(hear(&mut repeats, start + 3 * WINDOW));
    }
}
