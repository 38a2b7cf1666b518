//! Applications by name, as many as schedulers tell apart.

use std::sync::Arc;

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

/// The applications of one home. A name whose requests have all ended gives way to a new one, the longest unused first;
/// while there is none, new names share the last place.
#[derive(Debug, Default)]
pub(super) struct Applications {
    names: IndexMap<Arc<str>, Application, FxBuildHasher>,
    uses: Vec<Use>,
}

impl Applications {
    /// The application of that name, and whether it was another one's until now.
    pub(super) fn of(&mut self, name: &Arc<str>) -> (Application, bool) {
        if let Some(known) = self.names.get(name) {
            return (*known, false);
        }
        if self.uses.len() < APPLICATIONS_MAX {
            let application = Application(self.uses.len() as u16);
            self.uses.push(Use::default());
            self.names.insert(name.clone(), application);
            return (application, false);
        }
        let unused = self.names.iter().enumerate().filter_map(|(idx, (_, a))| {
            let of = self.uses[a.idx()];
            (of.open == 0).then_some((of.used_at, idx))
        });
        let Some((_, idx)) = unused.min() else {
            return (Application(APPLICATIONS_MAX as u16 - 1), false);
        };
        let Some((_, application)) = self.names.swap_remove_index(idx) else {
            return (Application(APPLICATIONS_MAX as u16 - 1), false);
        };
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
        for i in 0..APPLICATIONS_MAX {
            let (application, is_reassigned) = applications.of(&name(i));
            assert_eq!((application.idx(), is_reassigned), (i, false));
            applications.opened(Timestamp::from_ns(i as u64), application);
        }
        let last = Application(APPLICATIONS_MAX as u16 - 1);
        assert_eq!(applications.of(&name(100)), (last, false), "all are in use");
        for i in [5, 3] {
            applications.ended(Application(i));
        }
        assert_eq!(applications.of(&name(100)), (Application(3), true));
        assert_eq!(applications.of(&name(100)), (Application(3), false));
        applications.opened(Timestamp::from_ns(1000), Application(3));
        assert_eq!(
            applications.of(&name(3)),
            (Application(5), true),
            "it is a new one"
        );
    }
}
