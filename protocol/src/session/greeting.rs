//! What a process says about itself when a connection begins, and why its peer refuses it.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::membership::Member;
use crate::publication::Publication;

/// Most roles and workers of a process: more modules, or devices of a machine, than one process holds.
pub const ROLES_MAX: usize = 1024;
/// Most bytes of a version text. Versions are like `0.1.0`, with a build's name at most.
pub const VERSION_BYTES_MAX: usize = 64;
/// Most bytes of the name of a process, a set, a pipeline or a device: the longest name that DNS knows.
pub const NAME_BYTES_MAX: usize = 253;
/// Most bytes of an address: the longest name that DNS knows, and a port.
pub const ADDRESS_BYTES_MAX: usize = 260;

/// The hash of what a pipeline file states (SHA-256). Only processes with equal ones talk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PipelineHash(pub [u8; 32]);

impl fmt::Display for PipelineHash {
    /// The first 12 digits: enough to tell pipelines apart by eye.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The versions of the link's wire that a program can speak. A field or a packet that is added is ignored by those that do not know
/// it, and needs no other version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireVersions {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

impl WireVersions {
    /// Those of this program.
    pub const OWN: WireVersions = WireVersions {
        oldest: 1,
        newest: 1,
    };

    /// Whether there is one that both can speak.
    fn meet(self, other: WireVersions) -> bool {
        self.oldest <= other.newest && other.oldest <= self.newest
    }
}

impl fmt::Display for WireVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WireVersions { oldest, newest } if oldest == newest => write!(f, "{newest}"),
            WireVersions { oldest, newest } => write!(f, "{oldest} to {newest}"),
        }
    }
}

/// A process about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// What it is: at most [`ROLES_MAX`] roles.
    pub member: Arc<Member>,
    /// The set that it belongs to.
    pub set: Arc<str>,
    /// The name of the pipeline that it serves.
    pub pipeline: Arc<str>,
    /// What that states.
    pub hash: PipelineHash,
    /// How it can speak.
    pub wire: WireVersions,
    /// What all processes are to serve of the pipeline, as it knows that. Only gateways and controllers are believed.
    pub published: Option<Arc<Publication>>,
}

/// Which of the pipelines of a process a peer means that greets, by what the process says for each of them. Its session says what else is
/// wrong: of a pipeline of that name the peer may serve another revision, or in another set.
///
/// # Errors
/// Why there is none: what is wrong and what would be right.
pub fn pipeline_of<'a>(
    served: impl Iterator<Item = &'a Greeting> + Clone,
    peer: &Greeting,
) -> Result<usize, String> {
    if let Some(breach) = peer.breach() {
        return Err(breach);
    }
    let is_same =
        |me: &Greeting| (&me.set, &me.pipeline, me.hash) == (&peer.set, &peer.pipeline, peer.hash);
    let same = served.clone().position(is_same);
    let of_name = || served.clone().position(|me| me.pipeline == peer.pipeline);
    same.or_else(of_name).ok_or_else(|| {
        let names: Vec<&str> = served.map(|me| &*me.pipeline).collect();
        let serves = match names.as_slice() {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        format!(
            "{} serves pipeline {:?}; this process serves {serves}; give both the same pipeline files",
            peer.member.name, peer.pipeline
        )
    })
}

impl Greeting {
    /// Why this process has no session with a peer: what is wrong and what would be right. `None` if it has one.
    pub fn refuses(&self, peer: &Greeting) -> Option<String> {
        if let Some(breach) = peer.breach() {
            return Some(breach);
        }
        let (me, it) = (&*self.member, &*peer.member);
        if me.incarnation == it.incarnation && me.name == it.name {
            return Some("the peer is this process itself; dial other processes only".to_owned());
        }
        let mut differences = Vec::new();
        if !self.wire.meet(peer.wire) {
            differences.push(format!(
                "{} runs version {:?} of the program and speaks version {} of the link, this process {:?} and {}; run adjacent releases",
                it.name, it.version, peer.wire, me.version, self.wire
            ));
        }
        if self.set != peer.set {
            differences.push(format!(
                "{} belongs to set {:?}, this process to {:?}; start both with the same --set, or connect each with its own",
                it.name, peer.set, self.set
            ));
        }
        if (&self.pipeline, self.hash) != (&peer.pipeline, peer.hash) {
            differences.push(format!(
                "{} serves revision {} of pipeline {:?}, this process revision {} of {:?}; give both the same pipeline file",
                it.name, peer.hash, peer.pipeline, self.hash, self.pipeline
            ));
        }
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    /// The bound that it breaks.
    fn breach(&self) -> Option<String> {
        let member = &*self.member;
        let texts = [&self.set, &self.pipeline, &member.name];
        let of_devices = member.devices.iter().map(|device| &device.name);
        let mut texts = texts.into_iter().chain(of_devices);
        let is_plain = |c: char| c.is_ascii_graphic();
        let is_name =
            |text: &str| (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_plain);
        if let Some(bad) = texts.find(|text| !is_name(text)) {
            let n = bad.len();
            return Some(format!(
                "a name in the peer's greeting has {n} bytes or unprintable characters; names have 1 to {NAME_BYTES_MAX} of ASCII"
            ));
        }
        let n_roles = member.n_roles();
        if n_roles > ROLES_MAX {
            return Some(format!(
                "the peer's greeting names {n_roles} roles and workers; a process has at most {ROLES_MAX}"
            ));
        }
        let mut seen = FxHashSet::default();
        if let Some(twice) = member.controllers.iter().find(|m| !seen.insert(**m)) {
            return Some(format!(
                "the peer's greeting names the controller of module {} twice; a process has a role once",
                twice.0
            ));
        }
        let address = member.address.as_ref().map_or(0, |address| address.len());
        [
            ("version", member.version.len(), VERSION_BYTES_MAX),
            ("address", address, ADDRESS_BYTES_MAX),
        ]
        .into_iter()
        .find(|(_, n, most)| n > most)
        .map(|(what, n, most)| format!("the peer's {what} has {n} bytes; it may have {most}"))
    }
}
