//! Dispatch `pull`: requests wait in the stage's pool until workers ask for them.

use spillgate_pipeline::id::{RequestId, WorkerId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Ask, Returned};

use super::pool::{Given, Pool, View};
use super::{Effect, Stage};
use crate::dispatcher::Dispatcher;

impl Stage {
    /// Whether requests wait here until workers ask for them.
    pub(crate) fn is_pulled(&self) -> bool {
        self.pool.is_some()
    }

    /// A worker asks for requests. One that is to serve no more gets none.
    pub(crate) fn asked(&mut self, now: Timestamp, ask: &Ask, out: &mut Vec<Effect>) {
        let Stage {
            dispatcher,
            pool,
            plan,
            ..
        } = self;
        let Some(pool) = pool else { return };
        // The ask of an idle worker stands until it is to serve again.
        let room = u32::try_from(dispatcher.room(ask.worker)).unwrap_or(u32::MAX);
        let most = match ask.until {
            Some(_) => ask.most.min(room),
            None => ask.most,
        };
        let view = View {
            plan,
            n_workers: dispatcher.n_up(),
        };
        let mut refused = Vec::new();
        let given = pool.ask(now, &Ask { most, ..*ask }, view, &mut refused);
        out.extend(refused.into_iter().map(Effect::Drop));
        out.extend(given.map(|given| give(dispatcher, given)));
    }

    /// A worker wants nothing more from its asks up to that one.
    pub(crate) fn withdrawn(&mut self, worker: WorkerId, serial: u64) {
        if let Some(pool) = &mut self.pool {
            pool.withdraw(worker, serial);
        }
    }

    /// A worker hands requests back, and says how many wait at the other gateways.
    pub(crate) fn returned(&mut self, returned: &Returned) {
        if let Some(pool) = &mut self.pool {
            pool.withdraw(returned.worker, returned.serial);
            pool.set_elsewhere(returned.elsewhere);
        }
    }

    /// One of these requests. False when it was not there.
    pub(crate) fn take_back(&mut self, worker: WorkerId, id: RequestId) -> bool {
        let was_there = self.dispatcher.location(id) == Some(worker);
        if was_there {
            self.dispatcher.take_back(id);
        }
        was_there
    }

    /// A request that was handed back waits again as if it had never left. False when there is no room.
    pub(crate) fn wait_again(&mut self, request: &Request, since: Timestamp) -> bool {
        let pool = self.pool.as_mut();
        pool.is_some_and(|pool| pool.push(request, since))
    }

    /// Drops the waiting requests whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if let Some(pool) = &mut self.pool {
            let mut refused = Vec::new();
            pool.expire(now, &mut refused);
            out.extend(refused.into_iter().map(Effect::Drop));
        }
    }

    /// Whether requests wait and asks stand.
    pub(crate) fn can_serve(&self) -> bool {
        self.pool.as_ref().is_some_and(Pool::can_serve)
    }

    /// Serves the asks that stand with what waits.
    pub(crate) fn serve(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        let Stage {
            dispatcher,
            pool,
            plan,
            ..
        } = self;
        let Some(pool) = pool else { return };
        let view = View {
            plan,
            n_workers: dispatcher.n_up(),
        };
        let mut refused = Vec::new();
        let given = pool.serve(now, view, |w| dispatcher.room(w), &mut refused);
        out.extend(refused.into_iter().map(Effect::Drop));
        out.extend(given.into_iter().map(|given| give(dispatcher, given)));
    }

    /// When the first deadline of a waiting request passes.
    pub(crate) fn next_wakeup(&self) -> Option<Timestamp> {
        self.pool.as_ref()?.next_expiry()
    }

    /// What decides on the requests of the pool.
    pub(super) fn pool_view(&self) -> View<'_> {
        View {
            plan: &self.plan,
            n_workers: self.dispatcher.n_up(),
        }
    }
}

/// A worker gets these requests of the pool.
fn give(dispatcher: &mut Dispatcher, given: Given) -> Effect {
    for pooled in &given.requests {
        dispatcher.give(given.worker, &pooled.request);
    }
    Effect::Answer(given)
}
