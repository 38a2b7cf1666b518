//! Workers that go down with their device: what they had goes to others.

use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::message::Address;
use spillgate_pipeline::time::Timestamp;

use super::{Command, Gateway};

impl<P, L: Clone> Gateway<P, L> {
    /// A peer is gone. Of a device, the workers take no more requests.
    pub(super) fn lose(
        &mut self,
        now: Timestamp,
        peer: Address,
        cause: &str,
        out: &mut Vec<Command<P, L>>,
    ) {
        self.sessions.lose(peer);
        let Address::Device(device) = peer else {
            return;
        };
        let on_it = self.places.iter().filter(|p| p.device == device);
        let workers: Vec<(ModuleId, WorkerId)> = on_it.map(|p| (p.module, p.worker)).collect();
        let mut lost: Vec<(ModuleId, RequestId)> = Vec::new();
        for (module, worker) in workers {
            let had = self.stages[module.idx()].dispatcher.worker_down(worker);
            lost.extend(had.into_iter().map(|id| (module, id)));
        }
        for (module, id) in lost {
            if !self.retry(now, module, id) {
                self.fail(now, id, module, cause.to_owned(), out);
            }
        }
    }

    /// Sends a request that a dead worker had to another one, at most once a module and while there is time.
    fn retry(&mut self, now: Timestamp, module: ModuleId, id: RequestId) -> bool {
        let Some(open) = self.ledger.get_mut(id) else {
            return true;
        };
        let request = open.request;
        now < request.deadline && open.joins.retry(module) && self.place(now, module, &request)
    }
}
