//! A call: the time of its headers, the bytes of its last message, its unread answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use spillgate_controller_policy::clients::TokenShare;
use spillgate_controller_policy::intake::{CallKey, Intake, Room};
use spillgate_controller_policy::refusal::Refusal;
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::id::ClientId;
use spillgate_pipeline::time::Timestamp;
#[cfg(test)]
use spillgate_process::account::Account;
use spillgate_process::account::{Full, Holder, Lease};
use tonic::Status;

use super::{Asking, Connection, Token};

/// Buffers up to this size are part of what each call holds.
const BUFFER_MIN: u64 = 8 << 10;

/// A buffer of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buffer {
    /// The buffer of decoded messages.
    Messages,
    /// The buffer of encoded answers.
    Answers,
}

/// Why the data of a frame was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// Its client may not hold it now.
    Memory(Full),
    /// It is longer than any that is taken.
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
}

/// Who asks, as fair shares tell clients apart.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// The client's token.
    pub(crate) token: Option<(ClientKey, TokenShare)>,
    /// The token's name.
    pub(crate) token_name: Option<Arc<str>>,
    /// Its address.
    pub(crate) address: ClientKey,
    /// The address as a text.
    pub(crate) peer: Arc<str>,
    /// Its connection.
    pub(crate) connection: u64,
    /// The call on that connection.
    pub(crate) call: u64,
}

/// One call of a client, from its headers to its last answer. It is in the extensions of requests that tonic routes.
pub struct Call {
    connection: Option<Arc<Connection>>,
    token: Option<Arc<Token>>,
    key: usize,
    holder: Arc<Holder>,
    /// Number of unread answers.
    unread: AtomicU32,
    /// When an answer was last read, or the first unread one was made.
    unread_since: AtomicU64,
    message: Mutex<Option<Lease>>,
    /// Why the data of the last message's frame is not in it.
    left_out: Mutex<Option<LeftOut>>,
    /// The message of a stream that came in the place of the empty one that is read next.
    handed: Mutex<Option<Bytes>>,
    /// The messages of its client's streams.
    intake: Arc<Mutex<Intake>>,
    /// How long the message that was read last took to come.
    message_took: AtomicU64,
    /// The leases of the buffers of messages and of answers.
    buffers: Mutex<[Option<Lease>; 2]>,
    /// When the headers came.
    began_at: Timestamp,
    _lease: Option<Lease>,
}

impl Call {
    pub(super) fn new(
        connection: Arc<Connection>,
        token: Option<Arc<Token>>,
        key: usize,
        lease: Lease,
    ) -> Arc<Self> {
        Arc::new(Call {
            // The bytes of a token are counted together, over all its connections.
            holder: match &token {
                Some(token) => token.holder().clone(),
                None => connection.holder().clone(),
            },
            intake: match &token {
                Some(token) => token.intake().clone(),
                None => connection.intake().clone(),
            },
            began_at: connection.edge().now(),
            connection: Some(connection),
            token,
            key,
            unread: AtomicU32::new(0),
            unread_since: AtomicU64::new(0),
            message: Mutex::default(),
            left_out: Mutex::default(),
            handed: Mutex::default(),
            message_took: AtomicU64::default(),
            buffers: Mutex::default(),
            _lease: Some(lease),
        })
    }

    /// A call without a client and without bounds.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Arc<Self> {
        Call::of(Account::unbounded().holder())
    }

    /// A call without a connection whose bytes `holder` holds.
    #[cfg(test)]
    pub(crate) fn of(holder: Arc<Holder>) -> Arc<Self> {
        Arc::new(Call {
            holder,
            connection: None,
            token: None,
            key: 0,
            unread: AtomicU32::new(0),
            unread_since: AtomicU64::new(0),
            message: Mutex::default(),
            left_out: Mutex::default(),
            handed: Mutex::default(),
            intake: Arc::default(),
            message_took: AtomicU64::default(),
            buffers: Mutex::default(),
            began_at: Timestamp::ZERO,
            _lease: None,
        })
    }

    /// The holder of its bytes.
    pub fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// The client that the call belongs to.
    pub fn client(&self) -> ClientId {
        match (&self.token, &self.connection) {
            (Some(token), _) => token.client(),
            (None, Some(connection)) => connection.client(),
            (None, None) => ClientId::default(),
        }
    }

    /// Who asks, as far as fair shares go by tokens, addresses and connections.
    pub(crate) fn asker(&self) -> Asker {
        let connection = self.connection.as_ref();
        let nowhere = || (ClientKey::of(""), Arc::from(""));
        let (address, peer) = connection.map_or_else(nowhere, |c| c.share().clone());
        Asker {
            token: self.token.as_ref().map(|t| (t.key(), t.share())),
            token_name: self.token_name().cloned(),
            address,
            peer,
            connection: connection.map_or(0, |c| c.id().0),
            call: self.key as u64,
        }
    }

    /// The name of the client's token, where it has to show one.
    pub fn token_name(&self) -> Option<&Arc<str>> {
        self.token.as_ref().map(|token| token.name())
    }

    /// Whether it may use this pipeline, or know of it.
    pub fn allows(&self, pipeline: &str) -> bool {
        match (&self.connection, &self.token) {
            (Some(connection), Some(token)) => connection.edge().allows(token, pipeline),
            _ => true,
        }
    }

    /// Counts one more request of its token, in flight until the returned value is dropped; `None` where there are no
    /// tokens.
    ///
    /// # Errors
    /// When the token may ask no more now, or never again.
    pub(crate) fn ask(&self, pipeline: &str) -> Result<Option<Asking>, Refusal> {
        match (&self.connection, &self.token) {
            (Some(connection), Some(token)) => connection.edge().ask(token, pipeline).map(Some),
            _ => Ok(None),
        }
    }

    /// Waits until it is to end, if it is a stream: once what it took is answered, with this status.
    pub(crate) async fn is_to_end(&self) -> Status {
        match &self.connection {
            Some(connection) => connection.streams_end().await,
            None => std::future::pending().await,
        }
    }

    /// When its headers came.
    pub fn began_at(&self) -> Timestamp {
        self.began_at
    }

    /// A message of it is whole, and holds these bytes until it is taken.
    pub(super) fn put_message(&self, lease: Option<Lease>, took: Duration) {
        self.has_message(lease, None, took);
    }

    /// A message of it is whole, without the data of its frame.
    pub(super) fn put_left_out(&self, why: LeftOut, took: Duration) {
        self.has_message(None, Some(why), took);
    }

    fn has_message(&self, lease: Option<Lease>, left_out: Option<LeftOut>, took: Duration) {
        if let Some(connection) = &self.connection {
            connection.is_active();
        }
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.message_took.store(took, Ordering::Relaxed);
        *self.left_out.lock() = left_out;
        *self.message.lock() = lease;
    }

    /// How long the message that was read last took to come, from its first byte to its last, as this server saw it.
    pub fn message_took(&self) -> Duration {
        Duration::from_nanos(self.message_took.load(Ordering::Relaxed))
    }

    /// Why the data of the last message's frame is not in the message.
    pub(crate) fn left_out(&self) -> Option<LeftOut> {
        *self.left_out.lock()
    }

    /// A whole message of a stream, without its header: its reader gets an empty one.
    pub(super) fn hand_over(&self, message: Bytes) {
        *self.handed.lock() = Some(message);
    }

    /// The message that came in the place of the empty one that was read last.
    pub(crate) fn take_handed(&self) -> Option<Bytes> {
        self.handed.lock().take()
    }

    /// A message of its stream begins, of which so many bytes are still to come.
    ///
    /// # Errors
    /// When its client may not hold them now, or others of its streams come first.
    pub(super) fn message_begins(&self, bytes: u64) -> Result<(), Full> {
        let connection = self.connection.as_ref();
        let now = connection.map_or(Timestamp::ZERO, |c| c.edge().now());
        let room = Room {
            held: self.holder.held(),
            free: self.holder.room(),
        };
        let begins = self.intake.lock().begins(now, self.stream(), bytes, room);
        begins.then_some(()).ok_or_else(|| self.holder.full(bytes))
    }

    /// So many bytes of it came.
    pub(super) fn message_came(&self, bytes: u64) {
        self.intake.lock().came(self.stream(), bytes);
    }

    /// It is whole, or was left out.
    pub(super) fn message_ends(&self) {
        self.intake.lock().ends(self.stream());
    }

    fn stream(&self) -> CallKey {
        let connection = self.connection.as_ref().map_or(0, |c| c.id().0);
        (connection, self.key as u64)
    }

    /// The lease of the message that was read last.
    pub fn take_message(&self) -> Option<Lease> {
        self.message.lock().take()
    }

    /// A buffer of a stream has held that many bytes, and goes on to hold its memory for as long as the stream is open.
    ///
    /// # Errors
    /// When the client may hold no more.
    pub(super) fn keep(&self, buffer: Buffer, bytes: usize) -> Result<(), Full> {
        let bytes = bytes as u64;
        if bytes <= BUFFER_MIN {
            return Ok(());
        }
        match &mut self.buffers.lock()[buffer as usize] {
            Some(lease) => lease.grow(bytes.saturating_sub(lease.bytes())),
            none => {
                *none = Some(self.holder.take(bytes)?);
                Ok(())
            }
        }
    }

    /// A frame of data with this many bytes was taken.
    pub(super) fn frame_taken(&self, bytes: usize) {
        if let Some(connection) = &self.connection {
            connection.frame_taken(bytes);
        }
    }

    /// An answer waits to be read, for as long as this lives.
    pub fn unread(self: &Arc<Self>) -> Unread {
        // The time is set first. Otherwise a reader in between would find an answer that waits since the start of the
        // process.
        if self.unread.load(Ordering::Acquire) == 0
            && let Some(connection) = &self.connection
        {
            let now = connection.edge().about_now();
            self.unread_since.store(now.as_ns(), Ordering::Relaxed);
        }
        self.unread.fetch_add(1, Ordering::Release);
        Unread(self.clone())
    }

    /// Since when the oldest unread answer waits.
    pub(super) fn unread_since(&self) -> Option<Timestamp> {
        let is_unread = self.unread.load(Ordering::Acquire) > 0;
        is_unread.then(|| Timestamp::from_ns(self.unread_since.load(Ordering::Relaxed)))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.intake.lock().leaves(self.stream());
        if let Some(connection) = &self.connection {
            connection.end(self.key);
        }
    }
}

/// An answer that waits to be read.
pub struct Unread(Arc<Call>);

impl Drop for Unread {
    fn drop(&mut self) {
        let call = &self.0;
        call.unread.fetch_sub(1, Ordering::Relaxed);
        if let Some(connection) = &call.connection {
            let now = connection.edge().about_now();
            call.unread_since.store(now.as_ns(), Ordering::Relaxed);
            connection.is_active();
        }
    }
}
