//! A rolling restart: one process after the other, so that the others serve meanwhile.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use spillgate_protocol::session::rights::Kind;
use spillgate_telemetry::logging::say;

use super::child::Child;

/// How long a process that is ready again is waited for by the next one: the others have met it by then.
const SETTLES: Duration = Duration::from_secs(1);

/// What is left of a rolling restart.
#[derive(Default)]
pub(super) struct Rolling {
    /// Positions of the processes that are to be restarted.
    left: VecDeque<usize>,
    is_under_way: bool,
    /// Since when all are ready.
    ready_since: Option<Instant>,
}

impl Rolling {
    /// All processes are to be restarted: workers, then controllers, then gateways.
    pub(super) fn begin(&mut self, children: &[Child]) {
        for kind in [Kind::Worker, Kind::Controller, Kind::Gateway] {
            let runs = |child: &Child| child.kind() == kind && !child.is_away();
            let of_kind = (0..children.len()).filter(|i| runs(&children[*i]));
            self.left.extend(of_kind);
        }
        self.is_under_way = true;
        self.ready_since = None;
    }

    /// Whether processes are restarted.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Restarts the next process once all are ready.
    pub(super) fn look(&mut self, children: &mut [Child]) {
        if !self.is_under_way {
            return;
        }
        if !children.iter().all(Child::is_ready) {
            self.ready_since = None;
            return;
        }
        let since = self.ready_since.get_or_insert_with(Instant::now);
        if since.elapsed() < SETTLES {
            return;
        }
        match self.left.pop_front() {
            Some(next) => {
                children[next].restart();
                self.ready_since = None;
            }
            None => {
                self.is_under_way = false;
                say("rolling restart: done");
            }
        }
    }
}
