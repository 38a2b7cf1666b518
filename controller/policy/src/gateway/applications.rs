//! Applications by name, as many as schedulers tell apart.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::schedule::{APPLICATIONS_MAX, Application};
use spillgate_pipeline::time::Timestamp;

/// What is known of an application.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Requests that have not ended.
    open: u32,
    used_at: Timestamp,
}

/// A name is unused when none of its requests is open and none came for so long: a flood of new names does not take the
/// places of applications that come now and then.
pub(crate) const UNUSED_AFTER: Duration = Duration::from_secs(60);

/// The applications of one gateway. An unused name gives way to a new one, the longest unused first; while there is none,
/// new names share the last place.
#[derive(Debug, Default)]
pub(super) struct Applications {
    names: IndexMap<Arc<str>, Application, FxBuildHasher>,
    uses: Vec<Use>,
}

impl Applications {
    /// The application of that name, and whether it was another one's until now.
    pub(super) fn of(&mut self, now: Timestamp, name: &Arc<str>) -> (Application, bool) {
        if let Some(known) = self.names.get(name) {
            return (*known, false);
        }
        if self.uses.len() < APPLICATIONS_MAX {
            let application = Application(self.uses.len() as u16);
            self.uses.push(Use {
                open: 0,
                used_at: now,
            });
            self.names.insert(name.clone(), application);
            return (application, false);
        }
        let unused = self.names.iter().enumerate().filter_map(|(idx, (_, a))| {
            let of = self.uses[a.idx()];
            let is_unused = of.open == 0 && now.since(of.used_at) >= UNUSED_AFTER;
            is_unused.then_some((of.used_at, idx))
        });
        let Some((_, idx)) = unused.min() else {
            return (Application(APPLICATIONS_MAX as u16 - 1), false);
        };
        let Some((_, application)) = self.names.swap_remove_index(idx) else {
            return (Application(APPLICATIONS_MAX as u16 - 1), false);
        };
        self.uses[application.idx()].used_at = now;
        self.names.insert(name.clone(), application);
        (application, true)
    }

    /// A request of that application was accepted.
    pub(super) fn opened(&mut self, now: Timestamp, application: Application) {
        if let Some(of) = self.uses.get_mut(application.idx()) {
            of.open += 1;
            of.used_at = now;
        }
    }

    /// One of its requests has ended.
    pub(super) fn ended(&mut self, application: Application) {
        if let Some(of) = self.uses.get_mut(application.idx()) {
            of.open = of.open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(i: usize) -> Arc<str> {
        Arc::from(format!("camera-{i}"))
    }

    #[test]
    fn names_without_open_requests_give_way_the_longest_unused_first() {
        let mut applications = Applications::default();
        let at = |s: u64| Timestamp::ZERO + Duration::from_secs(s);
        for i in 0..APPLICATIONS_MAX {
            let (application, is_reassigned) = applications.of(at(0), &name(i));
            assert_eq!((application.idx(), is_reassigned), (i, false));
            applications.opened(at(i as u64), application);
        }
        let last = Application(APPLICATIONS_MAX as u16 - 1);
        let taken = applications.of(at(900), &name(100));
        assert_eq!(taken, (last, false), "all are in use");
        for i in [5, 3] {
            applications.ended(Application(i));
        }
        let taken = applications.of(at(62), &name(100));
        assert_eq!(taken, (last, false), "they came a minute ago");
        assert_eq!(applications.of(at(90), &name(100)), (Application(3), true));
        assert_eq!(applications.of(at(90), &name(100)), (Application(3), false));
        applications.opened(at(90), Application(3));
        assert_eq!(
            applications.of(at(90), &name(3)),
            (Application(5), true),
            "it is a new one"
        );
    }
}
