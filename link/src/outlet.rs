//! What waits to be written to a peer.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use prost::Message as _;
use spillgate_proto::link as pb;
use spillgate_protocol::message::{Message, ToController, ToGateway};
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;

use crate::wire::{self, Packet};

/// Bytes of requests that wait for one peer. A request that finds more there is not sent. Payloads are shared with the requests
/// that they belong to.
pub const WAITING_BYTES_MAX: usize = 64 << 20;
/// Bytes of all that waits for one peer. A peer that takes nothing while more comes is cut off: its connection is closed, and what
/// was for it goes elsewhere.
pub const CUT_OFF_BYTES: usize = 2 * WAITING_BYTES_MAX;
/// Packets that wait for one peer: they take memory beside their bytes. One more, and the peer is cut off.
pub const WAITING_MAX: usize = 1 << 17;
/// Packets in one write.
const PACKETS_MAX: usize = 256;
/// A write ends with the packet that makes it this large.
const WRITE_BYTES: usize = 256 << 10;

/// How long a packet that is in no hurry waits for others to travel with. At most twice as long, since timers count milliseconds.
pub(crate) const HOLD: Duration = Duration::from_millis(1);

/// The end that is filled.
#[derive(Debug)]
pub(crate) struct Outlet {
    shared: Arc<Shared>,
    full: CancellationToken,
    /// Bytes that came on the connection.
    received: AtomicU64,
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Bytes that wait.
    bytes: AtomicUsize,
    /// Bytes that were written.
    written: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Of those that wait.
    n_urgent: usize,
    /// The writer looks again within [`HOLD`]: what is in no hurry need not wake it.
    is_held: bool,
    /// One of the ends is gone.
    is_closed: bool,
    /// Wakes the writer, which found nothing to write.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Waiting {
    bytes: usize,
    is_urgent: bool,
    packet: pb::Packet,
}

/// The end that is written to the connection.
pub(crate) struct Writes {
    shared: Arc<Shared>,
    hold: Pin<Box<Sleep>>,
}

/// A queue for one connection.
pub(crate) fn outlet() -> (Arc<Outlet>, Writes) {
    let shared = Arc::new(Shared::default());
    let outlet = Outlet {
        shared: shared.clone(),
        full: CancellationToken::new(),
        received: AtomicU64::new(0),
        turn: Mutex::default(),
    };
    let hold = Box::pin(tokio::time::sleep(HOLD));
    (Arc::new(outlet), Writes { shared, hold })
}

impl Outlet {
    /// Puts a packet behind the others. It is lost if the connection has ended, or ends because too much waits. False, and it is
    /// not put, where it brings requests that find no room.
    #[must_use]
    pub(crate) fn put(&self, packet: &Packet) -> bool {
        let encoded = wire::encode(packet);
        let bytes = encoded.encoded_len();
        let is_urgent = !can_wait(packet);
        let before = self.waiting();
        // One packet may be larger than the bound.
        let is_over = |bound| before > 0 && before + bytes > bound;
        if brings_requests(packet) && is_over(WAITING_BYTES_MAX) {
            return false;
        }
        let mut queue = self.shared.queue.lock();
        if queue.is_closed {
            return true;
        }
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        if is_over(CUT_OFF_BYTES) || queue.waiting.len() == WAITING_MAX {
            drop(queue);
            self.full.cancel();
            return true;
        }
        queue.n_urgent += usize::from(is_urgent);
        queue.waiting.push_back(Waiting {
            bytes,
            is_urgent,
            packet: encoded,
        });
        let wakes = is_urgent || !queue.is_held;
        let waker = wakes.then(|| queue.waker.take()).flatten();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// For those who decide by what was put before what they put: nobody else who waits for the turn puts anything meanwhile.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Bytes that were written to the connection.
    pub(crate) fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Bytes came on the connection.
    pub(crate) fn receives(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that came.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits until more was put than may wait.
    pub(crate) async fn overflowed(&self) {
        self.full.cancelled().await;
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        let unwritten = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(unwritten);
    }
}

fn brings_requests(packet: &Packet) -> bool {
    match packet {
        Packet::Message { envelope, .. } => match &envelope.message {
            Message::Device(message) => !message.requests().is_empty(),
            _ => false,
        },
        _ => false,
    }
}

/// Whether nobody waits for it: a forecast that the end of a batch follows, statistics, and what frees memory.
fn can_wait(packet: &Packet) -> bool {
    match packet {
        Packet::Message { envelope, .. } => matches!(
            envelope.message,
            Message::Gateway(ToGateway::Started(_)) | Message::Controller(ToController::Report(_))
        ),
        Packet::Ended(_) => true,
        Packet::Session(_)
        | Packet::Refused(_)
        | Packet::Lacking(_)
        | Packet::Members(_)
        | Packet::Leaves
        | Packet::Notice(_)
        | Packet::Published(_)
        | Packet::Revisions(_)
        | Packet::Operation(_)
        | Packet::Operated(_) => false,
    }
}

impl Queue {
    /// The packets of one write, and their bytes.
    fn take(&mut self) -> (Vec<pb::Packet>, usize) {
        let (mut packets, mut bytes) = (Vec::new(), 0);
        while bytes < WRITE_BYTES
            && packets.len() < PACKETS_MAX
            && let Some(waiting) = self.waiting.pop_front()
        {
            bytes += waiting.bytes;
            self.n_urgent -= usize::from(waiting.is_urgent);
            packets.push(waiting.packet);
        }
        if self.waiting.is_empty() {
            self.waiting.shrink_to(PACKETS_MAX);
        }
        (packets, bytes)
    }
}

impl Stream for Writes {
    type Item = pb::Packets;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<pb::Packets>> {
        let Writes { shared, hold } = self.get_mut();
        let mut queue = shared.queue.lock();
        let is_over = queue.is_held && hold.as_mut().poll(cx).is_ready();
        let is_due = queue.n_urgent > 0 || is_over || queue.is_closed;
        if is_due && !queue.waiting.is_empty() {
            let (packets, bytes) = queue.take();
            drop(queue);
            if is_over {
                // More may follow soon.
                hold.as_mut().reset(Instant::now() + HOLD);
            }
            shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
            shared.written.fetch_add(bytes as u64, Ordering::Relaxed);
            return Poll::Ready(Some(pb::Packets { packets }));
        }
        if queue.is_closed {
            return Poll::Ready(None);
        }
        if is_over {
            queue.is_held = false;
        } else if !queue.waiting.is_empty() && !queue.is_held {
            queue.is_held = true;
            hold.as_mut().reset(Instant::now() + HOLD);
            // It is in the future: this has the timer wake the task.
            let _ = hold.as_mut().poll(cx);
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::id::{
        BatchId, DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId,
    };
    use spillgate_pipeline::request::{ModuleTimes, Request};
    use spillgate_pipeline::time::Timestamp;
    use spillgate_process::value::Value;
    use spillgate_protocol::message::{
        Address, Arrival, Envelope, Filled, Finished, Started, ToDevice, ToGateway,
    };
    use spillgate_protocol::values::Ports;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::wire::{Carried, ItemOutputs, Parcel};

    fn value(bytes: usize) -> Carried {
        Carried::Value(Value::Bytes(vec![7; bytes].into()))
    }

    fn packet(bytes: usize) -> Packet {
        let request = Request::new(RequestId(1), Timestamp::ZERO, Timestamp::ZERO);
        let payload = Parcel {
            outputs: vec![(ModuleId(0), vec![value(bytes)])],
            ..Parcel::default()
        };
        let arrival = Arrival {
            worker: WorkerId(0),
            request,
            payload,
        };
        Packet::Message {
            envelope: Envelope {
                from: Address::Gateway(GatewayId(0)),
                incarnation: Incarnation(0),
                to: Address::Device(DeviceId(0)),
                message: Message::Device(ToDevice::Requests(vec![arrival])),
            },
            brought: Vec::new(),
            listed: None,
        }
    }

    fn results(bytes: usize) -> Packet {
        let times = ModuleTimes {
            module: ModuleId(0),
            worker: WorkerId(0),
            arrived_at: Timestamp::ZERO,
            batched_at: Timestamp::ZERO,
            started_at: Timestamp::ZERO,
            ended_at: Timestamp::ZERO,
            batch: BatchId(0),
            batch_size: 1,
            load: None,
            incarnation: Incarnation(0),
        };
        let member = Finished {
            request: RequestId(1),
            result: Ok(Filled::ALL),
        };
        let message = Message::Gateway(ToGateway::Finished {
            worker: WorkerId(0),
            batch: BatchId(0),
            took: Duration::ZERO,
            size: 1,
            members: vec![member],
        });
        Packet::Message {
            envelope: Envelope {
                from: Address::Device(DeviceId(0)),
                incarnation: Incarnation(0),
                to: Address::Gateway(GatewayId(0)),
                message,
            },
            brought: vec![ItemOutputs {
                times,
                outputs: Some(vec![value(bytes)]),
                kept: Ports::default(),
                damage: None,
            }],
            listed: None,
        }
    }

    async fn is_full(outlet: &Outlet) -> bool {
        let full = tokio::time::timeout(Duration::from_millis(1), outlet.overflowed());
        full.await.is_ok()
    }

    #[tokio::test]
    async fn a_request_without_room_is_not_sent_and_its_peer_stays() {
        let (outlet, mut writes) = outlet();
        let large = packet(WAITING_BYTES_MAX / 4);
        let put = [(); 5].map(|()| outlet.put(&large));
        assert_eq!(put, [true, true, true, false, false]);
        assert!(!is_full(&outlet).await);
        assert!(outlet.put(&results(10)), "what is no request has room");
        writes.next().await.unwrap();
        assert!(outlet.put(&large), "one was taken");
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_cut_off() {
        let (outlet, _writes) = outlet();
        for _ in 0..7 {
            assert!(outlet.put(&results(CUT_OFF_BYTES / 8)));
        }
        assert!(!is_full(&outlet).await);
        assert!(outlet.put(&results(CUT_OFF_BYTES / 8)));
        assert!(is_full(&outlet).await);
    }

    #[tokio::test]
    async fn small_packets_travel_together_and_a_large_one_ends_a_write() {
        let (outlet, mut writes) = outlet();
        for bytes in [10, 10, WRITE_BYTES, 10] {
            assert!(outlet.put(&packet(bytes)));
        }
        let first = writes.next().await.unwrap().packets;
        assert_eq!(first.len(), 3);
        let written: usize = first.iter().map(prost::Message::encoded_len).sum();
        assert_eq!(outlet.written(), written as u64);
        assert_eq!(writes.next().await.unwrap().packets.len(), 1);
        assert_eq!(outlet.waiting(), 0);
        drop(outlet);
        assert!(writes.next().await.is_none());
    }

    fn started() -> Packet {
        let started = Started {
            worker: WorkerId(0),
            batch: BatchId(0),
            size: 1,
            expected_end: Timestamp::ZERO,
        };
        Packet::Message {
            envelope: Envelope {
                from: Address::Device(DeviceId(0)),
                incarnation: Incarnation(0),
                to: Address::Gateway(GatewayId(0)),
                message: Message::Gateway(ToGateway::Started(started)),
            },
            brought: Vec::new(),
            listed: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_no_hurry_travels_with_what_is_and_waits_no_longer_than_a_moment() {
        let (outlet, mut writes) = outlet();
        let start = Instant::now();
        assert!(outlet.put(&started()));
        let alone = writes.next().await.unwrap().packets;
        assert_eq!(alone.len(), 1);
        let waited = start.elapsed();
        assert!((HOLD..=2 * HOLD).contains(&waited), "{waited:?}");

        let start = Instant::now();
        assert!(outlet.put(&started()));
        assert!(outlet.put(&started()));
        assert!(outlet.put(&results(10)));
        let together = writes.next().await.unwrap().packets;
        assert_eq!((together.len(), start.elapsed()), (3, Duration::ZERO));

        // Nothing is lost where the timer runs already, nor where the end comes first.
        assert!(outlet.put(&started()));
        assert_eq!(writes.next().await.unwrap().packets.len(), 1);
        assert!(outlet.put(&started()));
        drop(outlet);
        assert_eq!(writes.next().await.unwrap().packets.len(), 1);
        assert!(writes.next().await.is_none());
    }

    #[tokio::test]
    async fn what_is_in_no_hurry_wakes_the_writer_once_a_moment() {
        let (outlet, writes) = outlet();
        let n_read = Arc::new(AtomicUsize::new(0));
        let n_writes = Arc::new(AtomicUsize::new(0));
        let (read, written) = (n_read.clone(), n_writes.clone());
        let reader = tokio::spawn(async move {
            let mut writes = writes;
            while let Some(write) = writes.next().await {
                read.fetch_add(write.packets.len(), Ordering::Relaxed);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let start = Instant::now();
        let mut n = 0;
        while start.elapsed() < 20 * HOLD {
            assert!(outlet.put(&started()));
            n += 1;
            tokio::task::yield_now().await;
        }
        let took = start.elapsed();
        drop(outlet);
        reader.await.unwrap();
        assert_eq!(n_read.load(Ordering::Relaxed), n);
        let most = n / PACKETS_MAX + took.div_duration_f64(HOLD) as usize + 2;
        let n_writes = n_writes.load(Ordering::Relaxed);
        assert!(
            n_writes <= most,
            "{n_writes} writes of {n} packets in {took:?}"
        );
    }

    #[tokio::test]
    async fn nothing_waits_for_a_connection_that_has_ended() {
        let (outlet, writes) = outlet();
        assert!(outlet.put(&packet(10)));
        drop(writes);
        assert!(
            outlet.put(&packet(10)),
            "it is lost, and its sender goes on"
        );
        assert!(outlet.shared.queue.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn one_packet_may_be_larger_than_the_bound() {
        let (outlet, _writes) = outlet();
        assert!(outlet.put(&packet(WAITING_BYTES_MAX + 1)));
        assert!(!is_full(&outlet).await);
    }
}
