//! The edge: connections and calls before they are requests. Every byte that a client makes the process hold is on
//! the account of bytes, and every wait has a limit. Connections that are merely held open give way to new ones.
//!
//! Decisions about connections are made by [`spillgate_controller_policy::connection_admission`] and carried out here.

pub(crate) mod access;
mod answers;
mod call;
mod connection;
mod departure;
pub(crate) mod messages;
mod meter;
mod sweeper;
pub(crate) mod tls;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_controller_policy::connection_admission::{
    Admission, ConnectionAdmission, ConnectionId, ConnectionLimits, Use,
};
use spillgate_link::host_of;
use spillgate_pipeline::grant::Grant;
use spillgate_pipeline::id::ClientId;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::account::{Account, Holder, Lease};
use spillgate_process::clock::Clock;

pub(crate) use access::{Asking, Token};
pub(crate) use answers::Answers;
pub(crate) use call::{Asker, LeftOut};
pub use call::{Call, Unread};
pub(crate) use connection::{Connection, Leaves};
pub(crate) use departure::Why;
pub(crate) use messages::{Messages, Taking};
pub(crate) use meter::Metered;
pub(crate) use sweeper::sweep;
pub(crate) use tls::TLS_BYTES;
pub use tls::{Tls, TlsFiles};

use access::Tokens;

/// Largest HTTP/2 window: the bytes that a client may send on a connection before the server has read them. It holds
/// a few frames, so that large frames are not cut into round trips.
pub(crate) const WINDOW_MAX: u32 = 1 << 20;
/// Smallest HTTP/2 window; the protocol has no smaller one.
pub(crate) const WINDOW_MIN: u32 = 64 << 10;
/// Windows above the least may take one part in `WINDOWS_PART` of the budget. A connection gets the largest window of
/// which `WINDOWS_SHARE` would fit into what is left.
const WINDOWS_PART: u64 = 4;
const WINDOWS_SHARE: u64 = 32;

/// Bytes that a connection holds before its first call.
pub fn idle_connection_bytes(has_tls: bool) -> u64 {
    u64::from(WINDOW_MIN) + if has_tls { TLS_BYTES } else { 0 }
}

/// Bounds of the edge.
#[derive(Clone, Copy, Debug)]
pub struct EdgeLimits {
    /// Bounds of connections.
    pub admission: ConnectionLimits,
    /// Most concurrent calls on one connection.
    pub calls_per_connection: u32,
    /// Most bytes of one message.
    pub message_bytes: usize,
    /// Most time from the first byte of a message, or from the headers of a call, until the message is whole.
    pub message: Duration,
}

/// The state of the edge, for metrics and readiness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeView {
    /// Connections that have a place.
    pub connections: usize,
    /// Most connections.
    pub connections_max: usize,
    /// Connections turned away since the start: every place was in use, or no memory was free.
    pub turned_away: u64,
    /// Connections closed in favour of a new one, or because they were idle, silent or left answers unread.
    pub closed: u64,
    /// Bytes that are held.
    pub held: u64,
    /// Bytes that may be held.
    pub budget: u64,
    /// New connections are turned away, whatever their address.
    pub is_full: bool,
}

struct OpenConnections {
    admission: ConnectionAdmission<IpAddr>,
    /// The holder of each address that has connections.
    addresses: IndexMap<IpAddr, Weak<Holder>, FxBuildHasher>,
    connections: IndexMap<ConnectionId, Arc<Connection>, FxBuildHasher>,
}

/// The edge of one gateway.
pub struct Edge {
    limits: EdgeLimits,
    account: Arc<Account>,
    /// Holds the bytes of the connections' windows.
    windows: Arc<Holder>,
    /// The tokens, where only holders of a token are served.
    tokens: Option<Tokens>,
    clock: Clock,
    /// The time of the last sweep: exact enough for limits of seconds.
    about_now: AtomicU64,
    open: Mutex<OpenConnections>,
    next_client: AtomicU32,
    turned_away: AtomicU64,
    closed: AtomicU64,
    is_full: AtomicBool,
}

impl Edge {
    /// An edge without connections. With grants it serves only the holders of those tokens. The seed is that of the times at
    /// which connections retire.
    pub fn new(
        limits: EdgeLimits,
        account: Arc<Account>,
        grants: Option<Vec<Grant>>,
        clock: Clock,
        seed: u64,
    ) -> Arc<Self> {
        let about_now = AtomicU64::new(clock.now().as_ns());
        let edge = Edge {
            limits,
            windows: account.holder(),
            account,
            tokens: grants.as_ref().map(|_| Tokens::default()),
            clock,
            about_now,
            open: Mutex::new(OpenConnections {
                admission: ConnectionAdmission::new(limits.admission, seed),
                addresses: IndexMap::default(),
                connections: IndexMap::default(),
            }),
            // 0 stands for no client.
            next_client: AtomicU32::new(1),
            turned_away: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        };
        edge.set_grants(grants.unwrap_or_default());
        Arc::new(edge)
    }

    /// Its bounds.
    pub fn limits(&self) -> &EdgeLimits {
        &self.limits
    }

    /// The account of bytes.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Its state.
    pub fn view(&self) -> EdgeView {
        EdgeView {
            connections: self.open.lock().admission.len(),
            connections_max: self.limits.admission.connections,
            turned_away: self.turned_away.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
            held: self.account.held(),
            budget: self.account.budget(),
            is_full: self.is_full.load(Ordering::Relaxed),
        }
    }

    /// The exact time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time, to a fraction of a second.
    pub(crate) fn about_now(&self) -> Timestamp {
        Timestamp::from_ns(self.about_now.load(Ordering::Relaxed))
    }

    fn next_client(&self) -> ClientId {
        ClientId(self.next_client.fetch_add(1, Ordering::Relaxed).max(1))
    }

    /// Admits an accepted connection; `None` when there is no place or no memory for it.
    pub(crate) fn welcome(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Connection>> {
        let now = self.now();
        let address = host_of(peer);
        let mut open = self.open.lock();
        let OpenConnections {
            admission,
            addresses,
            connections,
        } = &mut *open;
        let uses = |id: ConnectionId| connections.get(&id).map_or_else(nothing, |c| c.usage());
        let (id, gone) = match admission.admit(now, address, uses) {
            Admission::Admitted(id) => (id, None),
            Admission::Replaces(id, other) => (id, connections.swap_remove(&other)),
            Admission::Full => {
                let is_full = admission.len() >= self.limits.admission.connections;
                drop(open);
                // Readiness is about the whole server: the limit of one address does not count.
                if is_full {
                    self.is_full.store(true, Ordering::Relaxed);
                    self.turn_away("every connection is in use (--connections)");
                } else {
                    self.turn_away(
                        "every connection of its address is in use (--connections-per-address)",
                    );
                }
                return None;
            }
        };
        if let Some(gone) = gone {
            self.dismiss(&gone);
        }
        let Some((window, lease)) = self.window() else {
            admission.left(id);
            drop(open);
            self.is_full.store(true, Ordering::Relaxed);
            self.turn_away("no memory is left for a connection (--memory)");
            return None;
        };
        self.is_full.store(false, Ordering::Relaxed);
        let holder = holder_of(addresses, &self.account, address).member();
        let connection = Connection::new(self.clone(), id, peer, holder, (window, lease));
        connections.insert(id, connection.clone());
        Some(connection)
    }

    /// Closes an idle connection, because the process has no descriptor for a new one.
    pub(crate) fn make_room(&self) {
        let now = self.now();
        let mut open = self.open.lock();
        let OpenConnections {
            admission,
            connections,
            ..
        } = &mut *open;
        let uses = |id: ConnectionId| connections.get(&id).map_or_else(nothing, |c| c.usage());
        let gone = admission.give_way(now, uses);
        if let Some(gone) = gone.and_then(|id| connections.swap_remove(&id)) {
            self.dismiss(&gone);
        }
    }

    fn dismiss(&self, gone: &Connection) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(address = %gone.peer(), "an idle connection gave way to a new one");
        gone.close();
    }

    fn turn_away(&self, why: &str) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(why, "a connection was turned away");
    }

    /// The window of a new connection: smaller, the more connections there are.
    fn window(&self) -> Option<(u32, Lease)> {
        let part = self.account.budget() / WINDOWS_PART;
        let share = part.saturating_sub(self.windows.held()) / WINDOWS_SHARE;
        let mut window = WINDOW_MAX;
        while window > WINDOW_MIN && u64::from(window) > share {
            window /= 2;
        }
        let lease = self.windows.take_last(u64::from(window)).ok()?;
        Some((window, lease))
    }

    fn left(&self, id: ConnectionId) {
        let mut open = self.open.lock();
        open.admission.left(id);
        open.connections.swap_remove(&id);
        self.is_full.store(false, Ordering::Relaxed);
    }
}

/// The holder of an address: all of its connections together.
fn holder_of(
    addresses: &mut IndexMap<IpAddr, Weak<Holder>, FxBuildHasher>,
    account: &Arc<Account>,
    address: IpAddr,
) -> Arc<Holder> {
    if let Some(known) = addresses.get(&address).and_then(Weak::upgrade) {
        return known;
    }
    // Entries remain for addresses that have connections or for which something is still held.
    addresses.retain(|_, holder| holder.strong_count() > 0);
    let holder = account.holder();
    addresses.insert(address, Arc::downgrade(&holder));
    holder
}

/// The use of a connection that has just ended.
fn nothing() -> Use {
    Use {
        calls: 0,
        was_used: false,
        active_at: Timestamp::ZERO,
        unread_since: None,
    }
}

#[cfg(test)]
mod tests {
    use spillgate_process::clock::TestClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A client that uses up the places of its address must not make readiness report that the whole server is full.
    #[test]
    fn an_address_that_has_no_place_left_does_not_make_the_server_full() {
        let limits = EdgeLimits {
            admission: ConnectionLimits {
                connections: 2,
                per_address: 1,
                idle: SECOND,
                silent: SECOND,
                unread: SECOND,
                age: None,
            },
            calls_per_connection: 1,
            message_bytes: 1,
            message: SECOND,
        };
        let clock = TestClock::default().clock();
        let edge = Edge::new(limits, Account::new(1 << 30), None, clock, 0);
        let busy = |last: u8| {
            let connection = edge.welcome(IpAddr::from([10, 0, 0, last]))?;
            Some(connection.begin(None, 0).unwrap())
        };
        let _first = busy(1).unwrap();
        assert!(busy(1).is_none(), "its place is in use");
        assert!(!edge.view().is_full);
        let _second = busy(2).unwrap();
        assert!(busy(3).is_none(), "every place is in use");
        assert!(edge.view().is_full);
        assert_eq!(edge.view().turned_away, 2);
    }
}
