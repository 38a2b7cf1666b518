//! Sends the requests for a model to its workers (dispatch `affinity`): see [`spillgate_pipeline::affinity`].

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::affinity::{Assigned, score};
use spillgate_pipeline::id::{MemberId, WorkerId};

use super::Dispatcher;

/// Where the controller wants models to be served that do not go to the worker that scores highest.
#[derive(Debug, Default)]
pub(super) struct Affinity(IndexMap<MemberId, Vec<WorkerId>, FxBuildHasher>);

impl Dispatcher {
    /// The controller says where models are served. It takes the place of what it said before.
    pub fn assign(&mut self, assigned: &Assigned) {
        self.affinity.0 = assigned.iter().cloned().collect();
    }

    /// The worker for a request for that model: of the workers that the controller named, as far as they take requests, the one with
    /// the fewest requests. Where it named none, or none of them takes requests, the one that scores highest. `None` when no worker
    /// is up.
    pub(super) fn worker_of(&self, member: MemberId) -> Option<usize> {
        let open = (0..self.workers.len()).filter(|&i| self.room_of(&self.workers[i]) > 0);
        let score_of = |i: usize| score(member, self.workers[i].worker);
        let named = self.affinity.0.get(&member).map_or(&[][..], Vec::as_slice);
        let of_named = open
            .clone()
            .filter(|&i| named.contains(&self.workers[i].worker));
        let load = |i: usize| {
            let shadow = &self.workers[i];
            (
                shadow.outstanding + shadow.background,
                u64::MAX - score_of(i),
            )
        };
        let chosen = of_named.min_by_key(|&i| load(i));
        chosen.or_else(|| open.max_by_key(|&i| score_of(i)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_pipeline::message::BatchShape;
    use spillgate_pipeline::policy::DispatchPolicyName;

    use super::*;

    const SHAPE: BatchShape = BatchShape {
        size: 2,
        execution: Duration::from_millis(10),
    };

    fn dispatcher() -> Dispatcher {
        let workers = [0, 1, 2].map(WorkerId);
        let mut dispatcher = Dispatcher::new(DispatchPolicyName::Affinity, SHAPE, &workers);
        workers.iter().for_each(|w| dispatcher.found(*w));
        dispatcher
    }

    fn worker(d: &Dispatcher, member: u16) -> WorkerId {
        let idx = d.worker_of(MemberId(member)).expect("a worker is up");
        d.workers[idx].worker
    }

    #[test]
    fn a_model_stays_at_its_worker_until_that_is_gone_or_the_controller_moves_it() {
        let mut d = dispatcher();
        let first: Vec<WorkerId> = (0..100).map(|m| worker(&d, m)).collect();
        assert!([0, 1, 2].iter().all(|w| first.contains(&WorkerId(*w))));
        let gone = first[0];
        d.lost(gone);
        for (member, was) in (0..).zip(&first) {
            let now = worker(&d, member);
            assert!(now != gone && (*was == gone || now == *was));
        }
        d.found(gone);
        let other = WorkerId((gone.0 + 1) % 3);
        d.assign(&[(MemberId(0), vec![other])].into());
        assert_eq!(worker(&d, 0), other);
        d.lost(other);
        assert_eq!(worker(&d, 0), gone, "the assigned worker is gone");
        d.found(other);
        d.assign(&[].into());
        assert_eq!(worker(&d, 0), gone);
    }

    #[test]
    fn of_several_workers_the_one_with_the_fewest_requests_gets_the_next() {
        let mut d = dispatcher();
        d.assign(&[(MemberId(7), vec![WorkerId(0), WorkerId(2)])].into());
        let mut sent = [0; 3];
        for _ in 0..10 {
            let idx = d.worker_of(MemberId(7)).expect("a worker is up");
            d.workers[idx].outstanding += 1;
            sent[idx] += 1;
        }
        assert_eq!(sent, [5, 0, 5]);
    }
}
