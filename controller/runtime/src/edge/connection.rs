//! A connection: its client, its calls, and the bytes that it makes the process hold.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use slab::Slab;
use spillgate_controller_policy::connection_admission::{ConnectionId, Use};
use spillgate_controller_policy::intake::Intake;
use spillgate_link::host_of;
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::id::ClientId;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::account::{Full, Holder, Lease};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::call::Call;
use super::departure::{Departure, Why};
use super::{Edge, Token};

/// Bytes that a call holds beside its messages: the values of its headers, its task.
const CALL_BYTES: u64 = 8 << 10;
/// Bytes of a header's place in the table of headers, beside that. `HEADERS_MAX` of the listener bounds the values of all
/// headers together to 8 KiB.
const HEADER_BYTES: u64 = 256;
/// Bytes that a small frame of data holds until a call takes it: the buffer that it was read into.
const FRAME_BYTES: u64 = 8 << 10;
/// Small frames for which memory is taken in one step.
const FRAMES_STEP: u64 = 32;
/// Frames of data with fewer bytes are small. The bytes of larger ones are in the connection's window.
pub(super) const SMALL_FRAME: usize = 4 << 10;

/// One connection.
pub(crate) struct Connection {
    edge: Arc<Edge>,
    id: ConnectionId,
    peer: IpAddr,
    client: ClientId,
    /// Its address as a client of fair shares.
    share: (ClientKey, Arc<str>),
    holder: Arc<Holder>,
    intake: Arc<Mutex<Intake>>,
    window: u32,
    _window_lease: Lease,
    active_at: AtomicU64,
    was_used: AtomicBool,
    calls: Mutex<Slab<Weak<Call>>>,
    frames: Frames,
    greeted: CancellationToken,
    departure: Departure,
    task: Mutex<Task>,
}

/// The task that serves a connection.
enum Task {
    Starting,
    Runs(AbortHandle),
    Closed,
}

/// Counts HTTP/2's small frames of data: those that came, and those that calls took.
#[derive(Default)]
struct Frames {
    came: AtomicU64,
    taken: AtomicU64,
    leases: Mutex<Vec<Lease>>,
}

impl Frames {
    /// All calls have ended; frames that they did not take are gone.
    fn all_gone(&self) {
        let came = self.came.load(Ordering::Relaxed);
        self.taken.store(came, Ordering::Relaxed);
        self.leases.lock().clear();
    }
}

impl Connection {
    pub(super) fn new(
        edge: Arc<Edge>,
        id: ConnectionId,
        peer: IpAddr,
        holder: Arc<Holder>,
        (window, window_lease): (u32, Lease),
    ) -> Arc<Self> {
        let now = edge.about_now();
        Arc::new(Connection {
            id,
            peer,
            // The client of calls without a token; calls with a token belong to its holder.
            client: edge.next_client(),
            share: {
                let address = host_of(peer).to_string();
                (ClientKey::of(&address), address.into())
            },
            holder,
            intake: Arc::default(),
            window,
            _window_lease: window_lease,
            active_at: AtomicU64::new(now.as_ns()),
            was_used: AtomicBool::new(false),
            calls: Mutex::default(),
            frames: Frames::default(),
            greeted: CancellationToken::new(),
            departure: Departure::default(),
            task: Mutex::new(Task::Starting),
            edge,
        })
    }

    /// Its gateway's edge.
    pub(crate) fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    /// Its address.
    pub(crate) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Its client.
    pub(crate) fn client(&self) -> ClientId {
        self.client
    }

    /// Its address as a client of fair shares.
    pub(super) fn share(&self) -> &(ClientKey, Arc<str>) {
        &self.share
    }

    /// Its number.
    pub(super) fn id(&self) -> ConnectionId {
        self.id
    }

    /// The messages of its streams without a token.
    pub(super) fn intake(&self) -> &Arc<Mutex<Intake>> {
        &self.intake
    }

    /// The holder of its bytes.
    pub(crate) fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// Its HTTP/2 window in bytes.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// HTTP/2's preface came.
    pub(super) fn greet(&self) {
        self.greeted.cancel();
    }

    /// Waits until HTTP/2's preface has come.
    pub(crate) async fn greeted(&self) {
        self.greeted.cancelled().await;
    }

    /// Names the task that serves it; `close` ends that task.
    pub(crate) fn served_by(&self, handle: AbortHandle) {
        let mut task = self.task.lock();
        match *task {
            Task::Closed => handle.abort(),
            _ => *task = Task::Runs(handle),
        }
    }

    /// It takes no new calls from now on.
    pub(super) fn retire(&self, why: Why) {
        self.departure.begin(why);
    }

    /// Ends it in order: it takes no new calls, and its streams end once what they took is answered.
    pub(crate) fn depart(&self, why: Why) {
        self.departure.end_streams(why);
    }

    /// Waits until it takes no new calls.
    pub(crate) async fn departs(&self) {
        self.departure.begun().await;
    }

    /// Waits until its streams are to end; the status with which they do.
    pub(crate) async fn streams_end(&self) -> Status {
        self.departure.streams_ended().await
    }

    /// Ends it now.
    pub(crate) fn close(&self) {
        // Not under the lock: aborting may drop what the task holds here.
        let task = std::mem::replace(&mut *self.task.lock(), Task::Closed);
        if let Task::Runs(handle) = task {
            handle.abort();
        }
    }

    /// How it is used.
    pub(super) fn usage(&self) -> Use {
        let calls: Vec<Option<Arc<Call>>> = {
            let calls = self.calls.lock();
            calls.iter().map(|(_, call)| call.upgrade()).collect()
        };
        // Not under the lock: dropping the last reference to a call takes it.
        let unread = calls.iter().flatten().filter_map(|c| c.unread_since());
        Use {
            calls: calls.len(),
            was_used: self.was_used.load(Ordering::Relaxed),
            active_at: Timestamp::from_ns(self.active_at.load(Ordering::Relaxed)),
            unread_since: unread.min(),
        }
    }

    /// The client sent a message or took an answer.
    pub(super) fn is_active(&self) {
        let now = self.edge.about_now();
        self.active_at.store(now.as_ns(), Ordering::Relaxed);
    }

    /// A call begins with its headers; with a token it belongs to the token's holder.
    ///
    /// # Errors
    /// When the client may hold no more.
    pub(crate) fn begin(
        self: &Arc<Self>,
        token: Option<Arc<Token>>,
        n_headers: usize,
    ) -> Result<Arc<Call>, Full> {
        let holder = token.as_ref().map_or(&self.holder, |token| token.holder());
        let lease = holder.take(CALL_BYTES + HEADER_BYTES * n_headers as u64)?;
        self.is_active();
        self.was_used.store(true, Ordering::Relaxed);
        let mut calls = self.calls.lock();
        let key = calls.vacant_key();
        let call = Call::new(self.clone(), token, key, lease);
        calls.insert(Arc::downgrade(&call));
        Ok(call)
    }

    pub(super) fn end(&self, key: usize) {
        let mut calls = self.calls.lock();
        calls.remove(key);
        if calls.is_empty() {
            self.frames.all_gone();
        }
    }

    /// A call was refused by its headers. It does not count as use, and its frames do not count as waiting.
    pub(crate) fn turned_down(&self) {
        if self.calls.lock().is_empty() {
            self.frames.all_gone();
        }
    }

    /// A call took a frame of data with that many bytes.
    pub(super) fn frame_taken(&self, bytes: usize) {
        if (1..SMALL_FRAME).contains(&bytes) {
            self.frames.taken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Small frames of data came. Many of them take much more memory than their content.
    ///
    /// # Errors
    /// When the client may hold no more.
    pub(super) fn frames_came(&self, n: u64) -> Result<(), Full> {
        let came = self.frames.came.fetch_add(n, Ordering::Relaxed) + n;
        // A frame that was taken before it was counted must not hide a later one.
        let taken = self.frames.taken.fetch_min(came, Ordering::Relaxed);
        let waiting = came.saturating_sub(taken);
        if waiting < FRAMES_STEP {
            return Ok(());
        }
        let mut leases = self.frames.leases.lock();
        let steps = (waiting / FRAMES_STEP) as usize;
        leases.truncate(steps);
        while leases.len() < steps {
            leases.push(self.holder.take(FRAMES_STEP * FRAME_BYTES)?);
        }
        Ok(())
    }
}

/// Removes the connection from the edge when it has ended.
pub(crate) struct Leaves(pub(crate) Arc<Connection>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.edge.left(self.0.id);
    }
}
