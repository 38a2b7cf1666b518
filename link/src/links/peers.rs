//! The peers that the roles of a process know, and the ways to them.

use std::net::IpAddr;
use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::{MutexGuard, RwLock};
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::{Directory, Member};
use spillgate_protocol::message::{Address, Envelope};
use spillgate_protocol::session::{Greeting, Offset};
use spillgate_protocol::values::Peer;
use tokio_util::sync::CancellationToken;

use crate::outlet::Outlet;
use crate::wire::{ItemOutputs, Packet, Parcel};

/// A process that greeted.
#[derive(Clone, Debug)]
pub struct PeerRoles {
    /// What it said about itself, with the address at which it is reached.
    pub greeting: Arc<Greeting>,
    /// Its roles, as they are called here.
    pub addresses: Vec<Address>,
}

impl PeerRoles {
    /// What it is.
    pub fn member(&self) -> &Arc<Member> {
        &self.greeting.member
    }
}

/// A peer that the roles know.
pub(super) struct Known {
    /// The number of its session.
    pub(super) session: u64,
    pub(super) way: PeerSender,
    pub(super) roles: Arc<PeerRoles>,
    /// Ends its session.
    pub(super) replaced: CancellationToken,
    /// Since when it is known.
    pub(super) since: Timestamp,
    pub(super) is_suspected: bool,
    pub(super) clock: Option<Offset>,
}

/// A peer, for people.
#[derive(Clone, Debug)]
pub struct PeerView {
    /// What it said about itself.
    pub greeting: Arc<Greeting>,
    /// Since when it is known.
    pub since: Timestamp,
    /// It is silent.
    pub is_suspected: bool,
    /// Its clock.
    pub clock: Option<Offset>,
    /// Bytes that wait to be written to it.
    pub waiting: usize,
    /// Bytes that were written to it since then.
    pub sent: u64,
    /// Bytes that came from it since then.
    pub received: u64,
}

/// The way to a process, for as long as it is met.
#[derive(Clone)]
pub struct PeerSender {
    pub(super) peer: Peer,
    pub(super) name: Arc<str>,
    pub(super) outlet: Arc<Outlet>,
    pub(super) directory: Arc<RwLock<Directory>>,
}

impl PeerSender {
    /// Which meeting it is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// To be held while it is decided what a message carries, and until that is sent: what it refers to was sent before.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.outlet.turn()
    }

    /// Sends a message. It is lost where the process is gone, or the message speaks of one that is.
    ///
    /// # Errors
    /// The message, where it brings requests and too many wait for the process already.
    pub fn send(
        &self,
        mut envelope: Envelope<Parcel>,
        mut brought: Vec<ItemOutputs>,
    ) -> Result<(), Envelope<Parcel>> {
        let directory = self.directory.read();
        let Ok(listed) = directory.outward(&self.name, &mut envelope) else {
            tracing::debug!(peer = &*self.name, "a message speaks of what has left");
            return Ok(());
        };
        for ItemOutputs { times, .. } in &mut brought {
            times.worker = directory
                .worker_outward(times.worker)
                .unwrap_or(times.worker);
        }
        drop(directory);
        let packet = Packet::Message {
            envelope,
            brought,
            listed,
        };
        match packet {
            packet if self.outlet.put(&packet) => Ok(()),
            Packet::Message { mut envelope, .. } => {
                let directory = self.directory.read();
                match directory.inward_again(&self.name, &mut envelope) {
                    Ok(()) => Err(envelope),
                    // Its workers have left meanwhile, and their requests with them.
                    Err(_) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The peers that the roles know.
#[derive(Default)]
pub(super) struct Peers {
    pub(super) known: Vec<Known>,
    /// The way to each of their roles.
    pub(super) ways: IndexMap<Address, PeerSender, FxBuildHasher>,
}

impl Peers {
    /// By the number of its session.
    pub(super) fn of(&mut self, session: u64) -> Option<&mut Known> {
        self.known.iter_mut().find(|k| k.session == session)
    }

    /// Takes them out, with the ways to them.
    pub(super) fn take(&mut self, is_meant: impl Fn(&Known) -> bool) -> Vec<Known> {
        let taken: Vec<Known> = self.known.extract_if(.., |k| is_meant(k)).collect();
        for known in &taken {
            for address in &known.roles.addresses {
                self.ways.swap_remove(address);
            }
        }
        taken
    }

    pub(super) fn named(&self, name: &str) -> Option<&Known> {
        self.known.iter().find(|known| &*known.way.name == name)
    }
}

/// The greeting with the address at which others reach the process: one without a host is at the host from which it dials, or at the
/// address at which it was dialled.
pub(super) fn reached(greeting: &Arc<Greeting>, host: &str) -> Arc<Greeting> {
    let address = greeting.member.address.as_deref();
    let Some(port) = address.and_then(|address| address.strip_prefix(':')) else {
        return greeting.clone();
    };
    let address = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(host)) => format!("[{host}]:{port}"),
        Ok(IpAddr::V4(host)) => format!("{host}:{port}"),
        // It was dialled there.
        Err(_) => host.to_owned(),
    };
    let mut greeting = Greeting::clone(greeting);
    Arc::make_mut(&mut greeting.member).address = Some(address.into());
    Arc::new(greeting)
}

/// Where a process is, in words.
pub(super) fn place(member: &Member) -> String {
    match &member.address {
        Some(address) => format!("at {address}"),
        None => "which dials".to_owned(),
    }
}
