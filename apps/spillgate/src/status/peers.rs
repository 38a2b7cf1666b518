//! The other processes, as this one sees them.

use serde::{Deserialize, Serialize};
use spillgate_controller::host::PipelineHost;
use spillgate_link::links::{PeerLinks, PeerView};
use spillgate_pipeline::id::ModuleId;
use spillgate_protocol::membership::{Member, MemberState};

use super::hex;

/// States of a peer.
const MET: &str = "met";
const LEAVES: &str = "leaves";
pub(super) const SUSPECTED: &str = "suspected";
pub(super) const AWAY: &str = "away";
/// The worse ones last.
const STATES: [&str; 4] = [MET, LEAVES, SUSPECTED, AWAY];

/// Another process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub process: String,
    /// The version of its program.
    pub version: String,
    /// Where others reach it; empty where it dials.
    pub address: String,
    /// Its roles: `gateway`, `controller of a`, `worker of a on cpu:0`; of several pipelines `gateway of one`, `controller of one/a`.
    pub roles: Vec<String>,
    /// `met`, `leaves`, `suspected`, or `away`: there is no session with it. Of several pipelines: the last of these that holds for one.
    pub state: String,
    /// Its life, in hex; empty while it is away.
    pub incarnation: String,
    /// Seconds since it was met.
    pub met_s: f64,
    /// Its clock minus this one, in milliseconds. Each process's clock begins with it, so this is mostly the difference of their ages.
    pub clock_ms: f64,
    /// The true difference is within this, in milliseconds.
    pub clock_error_ms: f64,
    /// Bytes that wait to be written to it, for all pipelines.
    pub waiting: usize,
    /// Bytes that were written to it since it was met.
    #[serde(default)]
    pub sent: u64,
    /// Bytes that came from it since then.
    #[serde(default)]
    pub received: u64,
}

impl PeerStatus {
    /// The same process as another pipeline's links see it.
    pub(super) fn and(&mut self, other: PeerStatus) {
        let worse = |of: &PeerStatus| STATES.iter().position(|state| *state == of.state);
        if worse(&other) > worse(self) {
            self.state = other.state;
        }
        if self.incarnation.is_empty() {
            self.incarnation = other.incarnation;
            (self.clock_ms, self.clock_error_ms) = (other.clock_ms, other.clock_error_ms);
        }
        self.met_s = self.met_s.max(other.met_s);
        self.roles.extend(other.roles);
        self.waiting += other.waiting;
        self.sent += other.sent;
        self.received += other.received;
    }
}

/// Those that serve the pipeline of a host. Its name stands before those of modules where there are `several`.
pub(super) fn of_pipeline(
    links: &PeerLinks,
    host: &PipelineHost,
    several: bool,
) -> Vec<PeerStatus> {
    let known = links.peers();
    let now = host.now();
    let members = links.members().into_iter();
    let talks = members.filter(|(member, _)| links.speaks_to(member));
    let peers = talks.map(|(member, state)| {
        let mut status = PeerStatus {
            process: member.name.to_string(),
            version: member.version.to_string(),
            address: member.address.as_deref().unwrap_or_default().to_owned(),
            roles: roles(&member, host, several),
            state: AWAY.to_owned(),
            ..PeerStatus::default()
        };
        let mut views = known.iter();
        let view = views.find(|of| of.greeting.member.name == member.name);
        if let Some(view) = view {
            see(&mut status, view, now.since(view.since).as_secs_f64());
            if state == MemberState::Leaving {
                status.state = LEAVES.to_owned();
            }
        }
        status
    });
    peers.collect()
}

fn roles(member: &Member, host: &PipelineHost, several: bool) -> Vec<String> {
    let pipeline = host.pipeline();
    let name = |module: &ModuleId| {
        let module = pipeline.modules.get(module.idx());
        let module = module.map_or("?", |module| &module.name);
        match several {
            true => format!("{}/{module}", pipeline.name),
            false => module.to_owned(),
        }
    };
    let gateway = member.is_gateway.then(|| match several {
        true => format!("gateway of {}", pipeline.name),
        false => "gateway".to_owned(),
    });
    let controllers = member.controllers.iter();
    let controllers = controllers.map(|module| format!("controller of {}", name(module)));
    let devices = member.devices.iter();
    let workers = devices.flat_map(|device| {
        let workers = device.workers.iter();
        workers.map(|w| format!("worker of {} on {}", name(&w.module), device.name))
    });
    gateway
        .into_iter()
        .chain(controllers)
        .chain(workers)
        .collect()
}

fn see(status: &mut PeerStatus, view: &PeerView, met_s: f64) {
    let state = match view.is_suspected {
        true => SUSPECTED,
        false => MET,
    };
    status.state = state.to_owned();
    status.incarnation = hex(view.greeting.member.incarnation.0);
    status.met_s = met_s;
    status.clock_ms = view.clock.map_or(0.0, |clock| clock.ns as f64 / 1e6);
    let error = view.clock.map(|clock| clock.error);
    status.clock_error_ms = error.unwrap_or_default().as_secs_f64() * 1e3;
    status.waiting = view.waiting;
    status.sent = view.sent;
    status.received = view.received;
}
