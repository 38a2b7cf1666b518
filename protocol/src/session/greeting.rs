//! What a process says about itself when a connection begins, and why its peer refuses it.

use std::fmt;

use rustc_hash::FxHashSet;

use crate::message::Address;
use spillgate_pipeline::id::Incarnation;

/// Most role addresses of a process: more modules, or devices of a machine, than one process holds.
pub const ADDRESSES_MAX: usize = 1024;

/// Most bytes of a version text. Versions are like `0.1.0`, with a build's name at most.
pub const VERSION_BYTES_MAX: usize = 64;

/// The hash of a checked pipeline with its plan and its processes (SHA-256). Processes of one cluster have equal ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PipelineHash(pub [u8; 32]);

impl fmt::Display for PipelineHash {
    /// The first 12 digits: enough to tell pipelines apart by eye.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A process about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The roles that it holds: 1 to [`ADDRESSES_MAX`].
    pub addresses: Vec<Address>,
    /// The version of the program, at most [`VERSION_BYTES_MAX`] bytes.
    pub version: String,
    /// What it serves.
    pub pipeline: PipelineHash,
    /// Its life.
    pub incarnation: Incarnation,
}

impl Greeting {
    /// Why this process has no session with a peer: what is wrong and what would be right. `None` if it has one.
    pub fn refuses(&self, peer: &Greeting) -> Option<String> {
        if let Some(breach) = peer.breach() {
            return Some(breach);
        }
        if self.incarnation == peer.incarnation && self.addresses == peer.addresses {
            return Some("the peer is this process itself; dial other processes only".to_owned());
        }
        let mut differences = Vec::new();
        if self.version != peer.version {
            differences.push(format!(
                "the peer has version {:?}, this process {:?}; run one version",
                peer.version, self.version
            ));
        }
        if self.pipeline != peer.pipeline {
            differences.push(format!(
                "the peer serves pipeline {}, this process {}; give both the same pipeline file, profiles and topology",
                peer.pipeline, self.pipeline
            ));
        }
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    /// The bound that it breaks.
    fn breach(&self) -> Option<String> {
        let (n_addresses, n_bytes) = (self.addresses.len(), self.version.len());
        if !(1..=ADDRESSES_MAX).contains(&n_addresses) {
            return Some(format!(
                "the peer's greeting names {n_addresses} addresses; a process has 1 to {ADDRESSES_MAX}"
            ));
        }
        let mut seen = FxHashSet::default();
        if let Some(twice) = self.addresses.iter().find(|role| !seen.insert(**role)) {
            return Some(format!(
                "the peer's greeting names {twice:?} twice; a process has a role once"
            ));
        }
        (n_bytes > VERSION_BYTES_MAX).then(|| {
            format!("the peer's version text has {n_bytes} bytes; it may have {VERSION_BYTES_MAX}")
        })
    }
}
