//! A process of a set without a gateway: controllers, workers or both. Other processes reach it on its link port.

use std::net::SocketAddr;
use std::sync::Arc;

use spillgate_telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, AdminPort};
use crate::certificates::Certificates;
use crate::deployment::Revision;
use crate::embedded::STOP_LIMIT;
use crate::external_scaler;
use crate::process_context::ProcessContext;
use crate::process_role::ProcessRole;
use crate::readiness::{READINESS_INTERVAL, dead, not_ready};
use crate::reload::Reload;
use crate::renewer::Renewer;
use crate::serve_error::ServeError;
use crate::serving::Serving;

/// A running process without a gateway.
pub struct InnerProcess {
    /// Where its link port is.
    pub address: Option<SocketAddr>,
    context: ProcessContext,
    telemetry: Arc<Telemetry>,
    role: ProcessRole,
    serving: Serving,
    /// It is about to end, and serves what it has.
    leaves: CancellationToken,
    stop: CancellationToken,
}

/// How a process without a gateway ended.
#[derive(Debug)]
pub struct InnerEnded {
    /// All that its devices had was served.
    pub is_drained: bool,
    /// Devices that were still busy and were left behind.
    pub busy_devices: Vec<String>,
}

impl InnerProcess {
    /// Starts the process, which has a role in a topology. Returns once its models are loaded and it can be reached.
    ///
    /// # Errors
    /// When a port, device, model or profile is missing.
    pub(crate) async fn start(
        context: ProcessContext,
        telemetry: Arc<Telemetry>,
        admin: Option<AdminPort>,
        revision: Revision,
    ) -> Result<Self, ServeError> {
        let (Some(role), Some(set)) = (context.role.clone(), context.set.clone()) else {
            unreachable!("a process of a set has a role there, and links");
        };
        let serving = Serving::start(&context, &telemetry, &revision)?;
        let (leaves, stop) = (CancellationToken::new(), CancellationToken::new());
        Certificates::of(None, Some(&role)).watch(&telemetry, stop.clone());
        if let Some(admin) = admin {
            let (of, leaves) = (serving.clone(), leaves.clone());
            let not_ready = move || not_ready(&of, &leaves);
            let status = serving.status(&context);
            admin.running(Admin::of(telemetry.clone(), not_ready, status));
        }
        let renewers = revision.by_group(true).into_iter().enumerate();
        let renewers = renewers.map(|(group, revision)| {
            Renewer::follow(&context, &telemetry, (&serving, group), revision)
        });
        Ok(InnerProcess {
            address: set.begin(&role, &serving, renewers.collect(), &stop)?,
            context,
            telemetry,
            role,
            serving,
            leaves,
            stop,
        })
    }

    /// Waits until a thread has died without which the process cannot serve; says which. It does not come back: the process is to
    /// end, so that its peers hear of it.
    pub async fn failed(&self) -> String {
        let mut ticks = tokio::time::interval(READINESS_INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(why) = dead(&self.serving) {
                return why;
            }
        }
    }

    /// Tells KEDA on that port how many workers are wanted.
    pub fn serve_scaler(&self, listener: TcpListener) {
        let (serving, stop) = (self.serving.clone(), self.stop.clone());
        tokio::spawn(external_scaler::serve(listener, serving, stop));
    }

    /// Adds what it can read anew while it serves.
    pub fn add_to(&self, reload: &mut Reload) {
        self.role.add_to(reload);
    }

    /// Names of its devices.
    pub fn devices(&self) -> Vec<String> {
        let (running, _) = self.serving.running();
        let names = running.iter().flat_map(|running| running.device_names());
        names.map(|(_, name)| name.clone()).collect()
    }

    /// Takes no more requests and serves what it has, then ends the links, devices and telemetry; each within its time.
    pub async fn stop(self) -> InnerEnded {
        let InnerProcess {
            context,
            telemetry,
            serving,
            leaves,
            stop,
            ..
        } = self;
        leaves.cancel();
        serving.close();
        let running = serving.all_running();
        let mut leaving = JoinSet::new();
        for of in running.clone() {
            leaving.spawn(async move { of.leave(context.drain).await });
        }
        let left = leaving.join_all().await;
        let is_drained = left.into_iter().all(|is_drained| is_drained);
        stop.cancel();
        for served in serving.all() {
            served.part().await;
        }
        if let Some(set) = &context.set {
            set.port.end().await;
        }
        let ended = tokio::task::spawn_blocking(move || {
            let busy = running.iter().flat_map(|of| of.stop(STOP_LIMIT)).collect();
            telemetry.shutdown(STOP_LIMIT);
            busy
        });
        InnerEnded {
            is_drained,
            busy_devices: ended.await.unwrap_or_default(),
        }
    }
}
