//! The connections of the link port: which of them has a place, and what its peer may send before it has greeted.

use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_protocol::publication::DEFINITION_BYTES_MAX;
use spillgate_protocol::session::entrance::{Entrance, Visitor, Welcome};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Most bytes that a peer may send before it has greeted: several times the largest greeting, and the definitions that it may carry. What
/// comes later is larger, and only peers that this process knows send it.
pub const STRANGER_BYTES_MAX: usize = (64 << 10) + 2 * DEFINITION_BYTES_MAX;

/// The connections of a port.
pub(crate) struct Visits(Mutex<Open>);

struct Open {
    entrance: Entrance<IpAddr>,
    /// What ends each connection.
    connections: IndexMap<Visitor, CancellationToken, FxBuildHasher>,
}

impl Visits {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Visits(Mutex::new(Open {
            entrance: Entrance::new(seed),
            connections: IndexMap::default(),
        })))
    }

    /// A connection came; `None` where there is no place for it.
    pub(crate) fn come(self: &Arc<Self>, from: IpAddr) -> Option<Arc<Visit>> {
        let mut open = self.0.lock();
        let (number, other) = match open.entrance.knock(host_of(from)) {
            Welcome::Come(number) => (number, None),
            Welcome::Instead(number, other) => (number, Some(other)),
            Welcome::Full => return None,
        };
        if let Some(other) = other.and_then(|other| open.connections.swap_remove(&other)) {
            other.cancel();
        }
        let ends = CancellationToken::new();
        open.connections.insert(number, ends.clone());
        Some(Arc::new(Visit {
            all: self.clone(),
            number,
            ends,
            greeted: CancellationToken::new(),
            has_joined: AtomicBool::new(false),
        }))
    }
}

/// A connection that has a place.
pub(crate) struct Visit {
    all: Arc<Visits>,
    number: Visitor,
    /// It is to end: its session has, or another connection took its place.
    pub(crate) ends: CancellationToken,
    /// Its peer has greeted.
    pub(crate) greeted: CancellationToken,
    has_joined: AtomicBool,
}

impl Visit {
    /// Whether the peer begins its session now: a connection carries one.
    pub(crate) fn joins(&self) -> bool {
        !self.has_joined.swap(true, Ordering::Relaxed)
    }

    /// Whether a session has begun.
    pub(crate) fn has_joined(&self) -> bool {
        self.has_joined.load(Ordering::Relaxed)
    }

    /// The peer greeted, and has a session.
    pub(crate) fn greets(&self) {
        self.all.0.lock().entrance.greeted(self.number);
        self.greeted.cancel();
    }
}

/// Held by a connection. Its place is free once this is dropped.
pub(crate) struct Leaves(pub(crate) Arc<Visit>);

impl Drop for Leaves {
    fn drop(&mut self) {
        let mut open = self.0.all.0.lock();
        open.entrance.left(self.0.number);
        open.connections.swap_remove(&self.0.number);
    }
}

/// Held by a session. Its connection ends once this is dropped.
pub(crate) struct ConnectionGuard(pub(crate) Arc<Visit>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.ends.cancel();
    }
}

/// What a peer sends. It ends with an error where that is too much before the greeting.
pub(crate) struct Measured {
    body: Incoming,
    visit: Arc<Visit>,
    n_bytes: usize,
}

impl Measured {
    pub(crate) fn new(body: Incoming, visit: Arc<Visit>) -> Self {
        Measured {
            body,
            visit,
            n_bytes: 0,
        }
    }
}

impl Body for Measured {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && !this.visit.greeted.is_cancelled()
        {
            this.n_bytes += frame.data_ref().map_or(0, Bytes::len);
            if this.n_bytes > STRANGER_BYTES_MAX {
                return Poll::Ready(Some(Err(Status::resource_exhausted(format!(
                    "more than {STRANGER_BYTES_MAX} bytes came before the greeting"
                )))));
            }
        }
        let frame = frame.map(|frame| frame.map_err(|error| Status::from_error(error.into())));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What counts as one host: for IPv6 the whole /64, since each host in it can choose its address.
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let bits = v6.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_network_of_ipv6_are_one_host() {
        let of = |text: &str| host_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
