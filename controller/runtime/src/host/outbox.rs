//! The ways from the roles of a host to devices and other processes. Envelopes are put in order under the host's lock and sent
//! without it, by one thread at a time: so they arrive in the order in which the roles decided.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

use super::{Outgoing, OutgoingSender};

#[derive(Default)]
struct Pending {
    /// As many as requests in flight, their cancellations, and what planners said: each is sent at once.
    envelopes: VecDeque<Outgoing>,
    /// A thread sends them, and will come to those that are put behind.
    is_sending: bool,
}

/// What is to be sent on one way.
pub(super) struct Outbox {
    way: OutgoingSender,
    pending: Mutex<Pending>,
}

/// Gives the turn back when the device's policy panics.
struct Turn<'a>(&'a Outbox);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.pending.lock().is_sending = false;
    }
}

impl Outbox {
    /// An empty one.
    pub(super) fn new(way: OutgoingSender) -> Self {
        Outbox {
            way,
            pending: Mutex::default(),
        }
    }

    /// An empty one for another receiver on the same way.
    pub(super) fn on_same_way(&self) -> Self {
        Outbox::new(self.way.clone())
    }

    /// Takes out what is not sent yet.
    pub(super) fn empty(&self) -> VecDeque<Outgoing> {
        std::mem::take(&mut self.pending.lock().envelopes)
    }

    /// Puts an envelope behind the others. [`Outbox::send`] is to follow, without the host's lock.
    pub(super) fn put(&self, envelope: Outgoing) {
        self.pending.lock().envelopes.push_back(envelope);
    }

    /// Sends what is there, unless another thread does.
    pub(super) fn send(&self) {
        let pending = self.pending.lock();
        if pending.is_sending {
            return;
        }
        let mut next = Self::next(pending);
        let turn = Turn(self);
        while let Some(envelope) = next {
            (self.way)(envelope);
            next = Self::next(self.pending.lock());
        }
        std::mem::forget(turn);
    }

    /// The next envelope. If there is none, the turn ends: the thread that puts the next envelope sends it.
    fn next(mut pending: MutexGuard<'_, Pending>) -> Option<Outgoing> {
        let next = pending.envelopes.pop_front();
        pending.is_sending = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, RequestId, WorkerId};
    use spillgate_protocol::message::{Address, Envelope, Message, ToDevice};

    use super::*;

    /// Takes cancellations, and wants their ids to rise.
    #[derive(Default)]
    struct Rising {
        last: AtomicU64,
        inside: AtomicU64,
    }

    impl Rising {
        fn take(&self, outgoing: Outgoing) {
            assert_eq!(
                self.inside.fetch_add(1, Ordering::SeqCst),
                0,
                "one at a time"
            );
            let Message::Device(ToDevice::Cancel(_, id)) = outgoing.envelope.message else {
                panic!("only cancellations are sent");
            };
            assert_eq!(self.last.fetch_add(1, Ordering::SeqCst) + 1, id.0);
            self.inside.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_is_put_in_order_arrives_in_order_whoever_sends_it() {
        const EACH: u64 = 2000;
        let rising = Arc::new(Rising::default());
        let outbox = Outbox::new(Arc::new({
            let rising = rising.clone();
            move |outgoing| rising.take(outgoing)
        }));
        // The host's lock: who holds it says what comes next.
        let next = Mutex::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let mut next = next.lock();
                        *next += 1;
                        let cancel = ToDevice::Cancel(WorkerId(0), RequestId(*next));
                        outbox.put(Outgoing::from(Envelope {
                            from: Address::Gateway(GatewayId(0)),
                            incarnation: Incarnation(0),
                            to: Address::Device(DeviceId(0)),
                            message: Message::Device(cancel),
                        }));
                        drop(next);
                        outbox.send();
                    }
                });
            }
        });
        assert_eq!(rising.last.load(Ordering::SeqCst), 4 * EACH, "none is left");
    }
}
