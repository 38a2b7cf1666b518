//! A process of a topology without a gateway: controllers, workers or both. Other processes reach it on its link port.

use std::net::SocketAddr;
use std::sync::Arc;

use spillgate_telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, AdminPort};
use crate::certificates::Certificates;
use crate::deployment::Revision;
use crate::embedded::{Embedded, STOP_LIMIT};
use crate::external_scaler;
use crate::process_context::ProcessContext;
use crate::process_role::ProcessRole;
use crate::readiness::{READINESS_INTERVAL, not_ready};
use crate::reload::Reload;
use crate::serve_error::ServeError;
use crate::serving::Serving;

/// A running process without a gateway.
pub struct InnerProcess {
    /// Where its link port is.
    pub address: Option<SocketAddr>,
    context: ProcessContext,
    telemetry: Arc<Telemetry>,
    role: ProcessRole,
    embedded: Arc<Embedded>,
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
    pub async fn start(
        context: ProcessContext,
        telemetry: Arc<Telemetry>,
        role: ProcessRole,
        admin: Option<AdminPort>,
        revision: Revision,
    ) -> Result<Self, ServeError> {
        let context = context.of_topology(role.clone());
        let serving = Serving::start(&context, &telemetry, &revision)?;
        let (leaves, stop) = (CancellationToken::new(), CancellationToken::new());
        Certificates::of(None, Some(&role)).watch(&telemetry, stop.clone());
        let embedded = serving.of(revision.id);
        let embedded = embedded.expect("it has just started");
        if let Some(admin) = admin {
            let (embedded, leaves) = (embedded.clone(), leaves.clone());
            let not_ready = move || not_ready(&embedded, &leaves);
            let status = serving.status(&context);
            admin.running(Admin::of(telemetry.clone(), not_ready, status));
        }
        Ok(InnerProcess {
            address: embedded.join(&role, &stop).await?,
            context,
            telemetry,
            role,
            embedded,
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
            if let Some(why) = not_ready(&self.embedded, &self.leaves) {
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
        let names = self.embedded.device_names().iter();
        names.map(|(_, name)| name.clone()).collect()
    }

    /// Takes no more requests and serves what it has, then ends the links, devices and telemetry; each within its time.
    pub async fn stop(self) -> InnerEnded {
        let InnerProcess {
            context,
            telemetry,
            embedded,
            leaves,
            stop,
            ..
        } = self;
        leaves.cancel();
        let is_drained = embedded.leave(context.drain).await;
        stop.cancel();
        for links in &embedded.links {
            links.end().await;
        }
        let ended = tokio::task::spawn_blocking(move || {
            let busy = embedded.stop(STOP_LIMIT);
            telemetry.shutdown(STOP_LIMIT);
            busy
        });
        InnerEnded {
            is_drained,
            busy_devices: ended.await.unwrap_or_default(),
        }
    }
}
