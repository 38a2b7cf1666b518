//! What waits to be written to a peer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use prost::Message as _;
use spillgate_pipeline::message::Message;
use spillgate_proto::link as pb;
use tokio::sync::mpsc;
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

/// The end that is filled.
#[derive(Debug)]
pub(crate) struct Outlet {
    queue: mpsc::UnboundedSender<(usize, pb::Packet)>,
    waiting: Arc<Waiting>,
    full: CancellationToken,
    /// Bytes that came on the connection.
    received: AtomicU64,
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    packets: AtomicUsize,
    /// Bytes that were written.
    written: AtomicU64,
}

/// The end that is written to the connection.
pub(crate) struct Writes {
    queue: mpsc::UnboundedReceiver<(usize, pb::Packet)>,
    waiting: Arc<Waiting>,
}

/// A queue for one connection.
pub(crate) fn outlet() -> (Arc<Outlet>, Writes) {
    let (tx, rx) = mpsc::unbounded_channel();
    let waiting = Arc::new(Waiting::default());
    let outlet = Outlet {
        queue: tx,
        waiting: waiting.clone(),
        full: CancellationToken::new(),
        received: AtomicU64::new(0),
        turn: Mutex::default(),
    };
    (Arc::new(outlet), Writes { queue: rx, waiting })
}

impl Outlet {
    /// Puts a packet behind the others. It is lost if the connection has ended, or ends because too much waits. False, and it is
    /// not put, where it brings requests that find no room.
    #[must_use]
    pub(crate) fn put(&self, packet: &Packet) -> bool {
        let encoded = wire::encode(packet);
        let bytes = encoded.encoded_len();
        let before = self.waiting.bytes.load(Ordering::Relaxed);
        // One packet may be larger than the bound.
        let is_over = |bound| before > 0 && before + bytes > bound;
        if brings_requests(packet) && is_over(WAITING_BYTES_MAX) {
            return false;
        }
        self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let n = self.waiting.packets.fetch_add(1, Ordering::Relaxed) + 1;
        if is_over(CUT_OFF_BYTES) || n > WAITING_MAX {
            self.full.cancel();
        } else {
            let _ = self.queue.send((bytes, encoded));
        }
        true
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.bytes.load(Ordering::Relaxed)
    }

    /// For those who decide by what was put before what they put: nobody else who waits for the turn puts anything meanwhile.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Bytes that were written to the connection.
    pub(crate) fn written(&self) -> u64 {
        self.waiting.written.load(Ordering::Relaxed)
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

fn brings_requests(packet: &Packet) -> bool {
    match packet {
        Packet::Message { envelope, .. } => match &envelope.message {
            Message::Device(message) => !message.requests().is_empty(),
            _ => false,
        },
        _ => false,
    }
}

impl Stream for Writes {
    type Item = pb::Packets;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<pb::Packets>> {
        let this = self.get_mut();
        let Some((mut bytes, first)) = ready!(this.queue.poll_recv(cx)) else {
            return Poll::Ready(None);
        };
        let mut packets = vec![first];
        while bytes < WRITE_BYTES
            && packets.len() < PACKETS_MAX
            && let Ok((more, packet)) = this.queue.try_recv()
        {
            bytes += more;
            packets.push(packet);
        }
        this.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
        this.waiting
            .written
            .fetch_add(bytes as u64, Ordering::Relaxed);
        this.waiting
            .packets
            .fetch_sub(packets.len(), Ordering::Relaxed);
        Poll::Ready(Some(pb::Packets { packets }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_backend::value::Value;
    use spillgate_pipeline::id::{BatchId, DeviceId, GatewayId, ModuleId, RequestId, WorkerId};
    use spillgate_pipeline::message::{
        Address, Arrival, Envelope, Filled, Finished, Incarnation, ToDevice, ToGateway,
    };
    use spillgate_pipeline::request::{ModuleTimes, Request};
    use spillgate_pipeline::time::Timestamp;
    use spillgate_pipeline::values::Ports;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::wire::{Brought, Carried, Parcel};

    fn value(bytes: usize) -> Carried {
        Carried::Value(Value::Bytes(vec![7; bytes].into()))
    }

    fn packet(bytes: usize) -> Packet {
        let request = Request {
            id: RequestId(1),
            sent_at: Timestamp::ZERO,
            deadline: Timestamp::ZERO,
            application: Default::default(),
            client: Default::default(),
            decoding_us: 0,
            rank: 0,
        };
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
            brought: vec![Brought {
                times,
                outputs: Some(vec![value(bytes)]),
                kept: Ports::default(),
            }],
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
        assert_eq!(writes.waiting.bytes.load(Ordering::Relaxed), 0);
        drop(outlet);
        assert!(writes.next().await.is_none());
    }

    #[tokio::test]
    async fn one_packet_may_be_larger_than_the_bound() {
        let (outlet, _writes) = outlet();
        assert!(outlet.put(&packet(WAITING_BYTES_MAX + 1)));
        assert!(!is_full(&outlet).await);
    }
}
