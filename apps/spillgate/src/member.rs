//! A process of a topology without a gateway: controllers, workers or both. Other processes reach it on its link port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spillgate_backend::operator::Library;
use spillgate_link::serve;
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_telemetry::{Telemetry, TelemetryConfig};
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, AdminPort};
use crate::certificates::Certificates;
use crate::cores::Cores;
use crate::embedded::{Deployment, Embedded};
use crate::part::Part;
use crate::reload::Reload;
use crate::server::{
    Around, READINESS_INTERVAL, STOP_LIMIT, ServeError, bind, not_ready, start_observed, status_of,
};

/// How a process without a gateway is set up.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// What it is in its topology.
    pub part: Part,
    /// Address of the link port.
    pub listen: SocketAddr,
    /// Threads that decode frames.
    pub decoders: usize,
    /// Bytes that may be held for gateways.
    pub memory: u64,
    /// How long what its devices have may take to be served after a stop.
    pub drain: Duration,
    /// Cores on which devices execute their batches.
    pub cores: Cores,
    /// Traces and metrics.
    pub telemetry: TelemetryConfig,
}

/// A running process without a gateway.
pub struct Member {
    /// Where its link port is.
    pub address: SocketAddr,
    part: Part,
    embedded: Arc<Embedded>,
    telemetry: Arc<Telemetry>,
    /// It is about to end, and serves what it has.
    leaves: CancellationToken,
    stop: CancellationToken,
    drain: Duration,
}

/// How a process without a gateway ended.
#[derive(Debug)]
pub struct MemberEnded {
    /// All that its devices had was served.
    pub is_drained: bool,
    /// Devices that were still busy and were left behind.
    pub busy_devices: Vec<String>,
}

/// Dials the processes that this one dials, and listens for those that dial it. Returns where.
///
/// # Errors
/// When the port cannot be had.
pub(crate) async fn join(
    embedded: &Embedded,
    part: &Part,
    listen: Option<SocketAddr>,
    stop: &CancellationToken,
) -> Result<Option<SocketAddr>, ServeError> {
    let mut address = None;
    for links in &embedded.links {
        if let Some(listen) = listen {
            let listener = bind(listen, "--link-listen").await?;
            address = listener.local_addr().ok();
            let (links, stop) = (links.clone(), stop.clone());
            tokio::spawn(serve::serve(links, listener, stop.cancelled_owned()));
        }
        for peer in part.topology.dialled_by(part.process) {
            links.dial(peer.address.clone().unwrap_or_default(), peer.into());
        }
    }
    Ok(address)
}

impl Member {
    /// Starts the process. Returns once its models are loaded and it can be reached.
    ///
    /// # Errors
    /// When a port, device, model or profile is missing.
    pub async fn start(
        admin: Option<AdminPort>,
        config: MemberConfig,
        deployments: Vec<Deployment>,
        library: Arc<Library>,
    ) -> Result<Self, ServeError> {
        let placing = config.part.placing();
        let (telemetry, serving) = start_observed(
            config.telemetry,
            &deployments,
            &library,
            Around {
                clock: Clock::start(),
                n_decoders: config.decoders,
                placing: placing.as_ref(),
                cores: &config.cores,
                part: Some(&config.part),
                account: Account::new(config.memory),
                admin: admin.as_ref(),
            },
        )?;
        let (leaves, stop) = (CancellationToken::new(), CancellationToken::new());
        Certificates::of(None, Some(&config.part)).watch(&telemetry, stop.clone());
        let embedded = serving.now();
        if let Some(admin) = admin {
            let (embedded, leaves) = (embedded.clone(), leaves.clone());
            let not_ready = move || not_ready(&embedded, &leaves);
            let status = status_of(serving, Some(config.part.clone()));
            admin.running(Admin::of(telemetry.clone(), not_ready, status));
        }
        let address = join(&embedded, &config.part, Some(config.listen), &stop).await?;
        Ok(Member {
            address: address.unwrap_or(config.listen),
            part: config.part,
            embedded,
            telemetry,
            leaves,
            stop,
            drain: config.drain,
        })
    }

    /// Waits until a thread has died without which the process cannot serve; says which. It does not come back: the process is to
    /// end, so that its peers hear of it.
    pub async fn failed(&self) -> String {
        let mut ticks = tokio::time::interval(READINESS_INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(why) = not_ready(&self.embedded, &self.leaves) {
                return why;
            }
        }
    }

    /// Adds what it can read anew while it serves.
    pub fn add_to(&self, reload: &mut Reload) {
        self.part.add_to(reload);
    }

    /// Names of its devices.
    pub fn devices(&self) -> Vec<String> {
        let names = self.embedded.device_names().iter();
        names.map(|(_, name)| name.clone()).collect()
    }

    /// Takes no more requests and serves what it has, then ends the links, devices and telemetry; each within its time.
    pub async fn stop(self) -> MemberEnded {
        let Member {
            embedded,
            telemetry,
            leaves,
            stop,
            drain,
            ..
        } = self;
        leaves.cancel();
        let is_drained = embedded.leave(drain).await;
        stop.cancel();
        for links in &embedded.links {
            links.end().await;
        }
        let ended = tokio::task::spawn_blocking(move || {
            let busy = embedded.stop(STOP_LIMIT);
            telemetry.shutdown(STOP_LIMIT);
            busy
        });
        MemberEnded {
            is_drained,
            busy_devices: ended.await.unwrap_or_default(),
        }
    }
}
