//! A running server: hosts and devices, the gRPC port, the admin port, telemetry; and its orderly end.

mod ending;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spillgate_controller::api::{Api, Sampler};
use spillgate_controller::edge::{Edge, EdgeLimits, idle_connection_bytes};
use spillgate_controller::host::PipelineHost;
use spillgate_controller::listener::{self, Services};
use spillgate_controller_policy::connection_admission::ConnectionLimits;
use spillgate_telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthReporter;

use crate::admin::{Admin, AdminPort};
use crate::certificates::Certificates;
use crate::deployment::{Deployment, Revision};
use crate::external_scaler;
use crate::freed_memory;
use crate::health::{GuardedHealth, full, set_health};
use crate::ports::bind;
use crate::process_context::ProcessContext;
use crate::readiness::{READINESS_INTERVAL, dead, not_ready, without_workers};
use crate::reload::Reload;
use crate::renewer::Renewer;
use crate::security::Security;
use crate::serve_error::ServeError;
use crate::serving::Serving;
pub use ending::Ended;

/// A message is to be whole this long after its first byte, a call's first one after its headers.
pub(crate) const MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// A client that leaves an answer unread for this long is cut off.
pub(crate) const UNREAD_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of a message beyond the frame.
const MESSAGE_OVERHEAD: usize = 64 << 10;

/// The port on which a server takes requests, and its bounds.
#[derive(Clone, Debug)]
pub struct ClientPort {
    /// Its address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Most connections at a time.
    pub connections: usize,
    /// Most connections from one address.
    pub connections_per_address: usize,
    /// Most concurrent calls on one connection.
    pub calls_per_connection: u32,
    /// A connection that is not used for this long is closed.
    pub idle: Duration,
    /// A connection takes no new calls at this age, a little sooner or later; `None`: never.
    pub connection_age: Option<Duration>,
    /// Decides about the times at which connections retire.
    pub seed: u64,
    /// TLS and tokens.
    pub security: Security,
}

impl ClientPort {
    /// Bounds of the edge that serves these pipelines.
    fn edge_limits(&self, context: &ProcessContext, deployments: &[Deployment]) -> EdgeLimits {
        let pipelines = || deployments.iter().map(|d| &d.pipeline);
        let frame_bytes = pipelines().map(|p| p.limits.frame_bytes).max();
        let slo = pipelines().map(|p| p.slo).max().unwrap_or_default();
        // Idle connections leave half of the memory to connections with calls.
        let each = idle_connection_bytes(self.security.tls().is_some());
        let connections =
            ((context.account.budget() / 2 / each) as usize).clamp(1, self.connections);
        if connections < self.connections {
            tracing::warn!(
                asked = self.connections,
                connections,
                "fewer connections are taken than --connections says: they could hold more than half of --memory"
            );
        }
        EdgeLimits {
            admission: ConnectionLimits {
                connections,
                // The same part of them.
                per_address: (self.connections_per_address * connections / self.connections).max(1),
                idle: self.idle,
                // A request may be under way for as long as its SLO, and late.
                silent: self.idle.max(2 * slo),
                unread: UNREAD_LIMIT,
                age: self.connection_age,
            },
            calls_per_connection: self.calls_per_connection,
            message_bytes: frame_bytes.unwrap_or(0) + MESSAGE_OVERHEAD,
            message: MESSAGE_LIMIT,
        }
    }
}

/// A running server.
pub struct Server {
    /// Where the gRPC port is.
    pub address: SocketAddr,
    /// Where the admin port is.
    pub admin_address: Option<SocketAddr>,
    context: ProcessContext,
    telemetry: Arc<Telemetry>,
    serving: Serving,
    /// By group of pipelines.
    renewers: Vec<Renewer>,
    security: Security,
    edge: Arc<Edge>,
    health: HealthReporter,
    /// It is about to stop: new clients are to go elsewhere.
    leaves: CancellationToken,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    /// Starts a server beside an admin port that is open already and shows how the start goes. Returns once it can serve.
    ///
    /// # Errors
    /// When a port, device, model or profile is missing.
    pub async fn start(
        context: ProcessContext,
        telemetry: Arc<Telemetry>,
        port: ClientPort,
        admin: Option<AdminPort>,
        revision: Revision,
    ) -> Result<Self, ServeError> {
        // The port first: one in use should not cost the loading of models.
        let listener = bind(port.listen, "--listen").await?;
        let limits = port.edge_limits(&context, &revision.deployments);
        let serving = Serving::start(&context, &telemetry, &revision)?;
        let frame_bytes = limits.message_bytes - MESSAGE_OVERHEAD;
        let edge = Edge::new(
            limits,
            context.account.clone(),
            port.security.grants(),
            context.clock.clone(),
            port.seed,
        );
        telemetry.register_edge(Box::new({
            let edge = edge.clone();
            move || edge.view()
        }));
        let health = HealthReporter::new();
        let health_service = HealthServer::new(GuardedHealth::new(health.clone()));
        let reflection = |()| {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(spillgate_proto::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let other = Routes::new(health_service)
            .add_service(reflection(()).build_v1()?)
            .add_service(reflection(()).build_v1alpha()?);
        let sampler: Sampler = {
            let telemetry = telemetry.clone();
            Arc::new(move |traceparent| telemetry.sampler().decide(traceparent))
        };
        let groups = serving.now();
        let groups = groups.iter().map(|served| served.hosts()).collect();
        let api = Arc::new(Api::new(groups, sampler));
        let services = Services::new(api.clone(), other);

        let (leaves, stop) = (CancellationToken::new(), CancellationToken::new());
        let connections = TaskTracker::new();
        let address = listener.local_addr().unwrap_or(port.listen);
        let admin_address = admin.as_ref().map(|admin| admin.address);
        if let Some(admin) = admin {
            let status = serving.status(&context);
            let (edge, serving, leaves) = (edge.clone(), serving.clone(), leaves.clone());
            let not_ready = move || {
                let why = not_ready(&serving, &leaves).or_else(|| full(&edge));
                why.or_else(|| without_workers(&serving.hosts()))
            };
            admin.running(Admin::of(telemetry.clone(), not_ready, status));
        }
        set_health(&health, &serving.hosts(), ServingStatus::Serving).await;
        tokio::spawn(watch(serving.clone(), health.clone(), leaves.clone()));
        freed_memory::keep();
        tokio::spawn(freed_memory::trim(edge.account().clone(), stop.clone()));
        connections.spawn(listener::serve(
            listener,
            services,
            edge.clone(),
            port.security.tls(),
            stop.clone(),
            connections.clone(),
        ));
        let role = context.role.as_ref();
        Certificates::of(port.security.tls(), role).watch(&telemetry, stop.clone());
        let renewers: Vec<Renewer> = (revision.by_group(context.set.is_some()).into_iter())
            .enumerate()
            .map(|(group, revision)| {
                let (serves, face) = ((&serving, group), (&api, &health));
                Renewer::start(&context, &telemetry, serves, face, frame_bytes, revision)
            })
            .collect();
        if let (Some(role), Some(set)) = (role, &context.set) {
            set.begin(role, &serving, renewers.clone(), &stop)?;
        }
        Ok(Server {
            address,
            admin_address,
            renewers,
            context,
            telemetry,
            serving,
            security: port.security,
            edge,
            health,
            leaves,
            stop,
            connections,
        })
    }

    /// The hosts, in the order of the deployments.
    pub fn hosts(&self) -> Vec<Arc<PipelineHost>> {
        self.serving.hosts()
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> impl Fn() -> usize + use<> {
        let serving = self.serving.clone();
        move || serving.in_flight()
    }

    /// Replaces what is served, by group of pipelines.
    pub fn renewers(&self) -> &[Renewer] {
        &self.renewers
    }

    /// Tells KEDA on that port how many workers are wanted.
    pub fn serve_scaler(&self, listener: TcpListener) {
        let (serving, stop) = (self.serving.clone(), self.stop.clone());
        tokio::spawn(external_scaler::serve(listener, serving, stop));
    }

    /// Adds what it can read anew while it serves.
    pub fn add_to(&self, reload: &mut Reload) {
        self.security.add_to(reload, &self.edge);
        if let Some(role) = &self.context.role {
            role.add_to(reload);
        }
    }

    /// Names of the devices.
    pub fn devices(&self) -> Vec<String> {
        let (running, _) = self.serving.running();
        let names = running.iter().flat_map(|running| running.device_names());
        names.map(|(_, name)| name.clone()).collect()
    }
}

/// Reports NOT_SERVING once a device's thread or a timer thread has died. Such a thread does not come back: restart the
/// process.
async fn watch(serving: Serving, health: HealthReporter, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(READINESS_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return,
        }
        if let Some(why) = dead(&serving) {
            tracing::error!(why, "not ready");
            set_health(&health, &serving.hosts(), ServingStatus::NotServing).await;
            return;
        }
    }
}
