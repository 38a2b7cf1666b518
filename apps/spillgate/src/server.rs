//! A running server: hosts and devices, the gRPC port, the admin port, telemetry; and its orderly end.

mod ending;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate_backend::account::Account;
use spillgate_backend::clock::Clock;
use spillgate_backend::operator::Library;
use spillgate_controller::api::{Api, Sampler};
use spillgate_controller::edge::{Edge, EdgeLimits, idle_connection_bytes};
use spillgate_controller::host::PipelineHost;
use spillgate_controller::listener::{self, Services};
use spillgate_controller_policy::connection_admission::ConnectionLimits;
use spillgate_telemetry::{Telemetry, TelemetryConfig, TelemetryError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthReporter;

use crate::admin::{Admin, AdminLimits, AdminPort};
use crate::certificates::Certificates;
use crate::cores::Cores;
use crate::devices::Device;
use crate::embedded::{Deployment, Embedded, StartError, Surroundings};
use crate::fleets::Placing;
use crate::freed_memory;
use crate::health::{GuardedHealth, full, service_of};
use crate::member;
use crate::part::Part;
use crate::reload::Reload;
use crate::security::Security;
pub use crate::serving::RenewError;
use crate::serving::{Renewal, Serving};
use crate::status::StatusReader;
pub use ending::Ended;

/// How often readiness looks at the device threads.
pub(crate) const READINESS_INTERVAL: Duration = Duration::from_millis(100);
/// How long device threads and telemetry may take to end once no request is left.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(5);
/// A message is to be whole this long after its first byte, a call's first one after its headers.
pub(crate) const MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// A client that leaves an answer unread for this long is cut off.
pub(crate) const UNREAD_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of a message beyond the frame.
const MESSAGE_OVERHEAD: usize = 64 << 10;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Address of the gRPC port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Address of the admin port, if it is wanted.
    pub admin: Option<SocketAddr>,
    /// Most connections at a time.
    pub connections: usize,
    /// Most connections from one address.
    pub connections_per_address: usize,
    /// Most concurrent calls on one connection.
    pub calls_per_connection: u32,
    /// Bytes that the process may hold for its clients.
    pub memory: u64,
    /// A connection that is not used for this long is closed.
    pub idle: Duration,
    /// A connection takes no new calls at this age, a little sooner or later; `None`: never.
    pub connection_age: Option<Duration>,
    /// Decides about the times at which connections retire.
    pub seed: u64,
    /// TLS and tokens.
    pub security: Security,
    /// Threads that decode frames.
    pub decoders: usize,
    /// How long requests in flight may take to end after a stop.
    pub drain: Duration,
    /// The clock of all its parts.
    pub clock: Clock,
    /// Traces and metrics.
    pub telemetry: TelemetryConfig,
    /// The placement of its devices; `None`: they decide themselves, and keep their models.
    pub placing: Option<Placing>,
    /// Cores on which devices execute their batches.
    pub cores: Cores,
    /// What it is in a topology; `None`: it holds all roles.
    pub part: Option<Part>,
    /// Address of the link port of a process that is part of a topology and is reached by others.
    pub link_listen: Option<SocketAddr>,
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port cannot be had.
    #[error("cannot listen on {address}: {cause}{}", hint(cause, flag))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The flag by which another one is chosen.
        flag: &'static str,
        /// Why.
        cause: std::io::Error,
    },
    /// Devices or models.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Telemetry.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The reflection service.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

fn hint(cause: &std::io::Error, flag: &str) -> String {
    match cause.kind() {
        std::io::ErrorKind::AddrInUse => format!(
            "; another program listens there: stop it, or choose another address with {flag}"
        ),
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges".to_owned(),
        _ => String::new(),
    }
}

/// A running server.
pub struct Server {
    /// Where the gRPC port is.
    pub address: SocketAddr,
    /// Where the admin port is.
    pub admin_address: Option<SocketAddr>,
    serving: Serving,
    renewal: Arc<Renewal>,
    telemetry: Arc<Telemetry>,
    security: Security,
    part: Option<Part>,
    edge: Arc<Edge>,
    health: HealthReporter,
    /// It is about to stop: new clients are to go elsewhere.
    leaves: CancellationToken,
    stop: CancellationToken,
    connections: TaskTracker,
    drain: Duration,
}

/// Replaces what a server serves.
pub struct Renewer(Arc<Renewal>);

impl Renewer {
    /// Serves these pipelines from now on. Returns once they serve; requests that were accepted before end where they are. To be
    /// called in a runtime, on a thread that may block.
    ///
    /// # Errors
    /// When they cannot be served. Then nothing changes.
    pub fn renew(&self, deployments: &[Deployment]) -> Result<(), RenewError> {
        self.0.renew(deployments)
    }
}

/// Listens there. `[::]` is all addresses of both families; on a system without IPv6, those of IPv4.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    let lacks_ipv6 = |error: &std::io::Error| {
        matches!(
            error.raw_os_error(),
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
        )
    };
    match bound {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && lacks_ipv6(&error) => {
            let of_ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            TcpListener::bind(of_ipv4).await
        }
        bound => bound,
    }
}

pub(crate) async fn bind(
    address: SocketAddr,
    flag: &'static str,
) -> Result<TcpListener, ServeError> {
    let bound = listen(address).await;
    bound.map_err(|cause| ServeError::Listen {
        address,
        flag,
        cause,
    })
}

/// Opens the admin port, if one is wanted.
///
/// # Errors
/// When the address cannot be had.
pub async fn open_admin(address: Option<SocketAddr>) -> Result<Option<AdminPort>, ServeError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let opened = AdminPort::open(address, AdminLimits::default()).await;
    let port = opened.map_err(|cause| ServeError::Listen {
        address,
        flag: "--admin",
        cause,
    })?;
    Ok(Some(port))
}

impl Server {
    /// Starts a server and its admin port. Returns once it can serve.
    ///
    /// # Errors
    /// When a port, device, model or profile is missing.
    pub async fn start(
        config: ServerConfig,
        deployments: Vec<Deployment>,
        library: Arc<Library>,
    ) -> Result<Self, ServeError> {
        let admin = open_admin(config.admin).await?;
        Server::start_beside(admin, config, deployments, library).await
    }

    /// The same beside an admin port that is open already ([`open_admin`]) and shows how the start goes;
    /// [`ServerConfig::admin`] is not read.
    ///
    /// # Errors
    /// When a port, device, model or profile is missing.
    pub async fn start_beside(
        admin: Option<AdminPort>,
        config: ServerConfig,
        deployments: Vec<Deployment>,
        library: Arc<Library>,
    ) -> Result<Self, ServeError> {
        // The port first: one in use should not cost the loading of models.
        let listener = bind(config.listen, "--listen").await?;
        let limits = edge_limits(&config, &deployments);
        let clock = config.clock;
        let account = Account::new(config.memory);
        let (telemetry, serving) = start_observed(
            config.telemetry,
            &deployments,
            &library,
            Around {
                clock: clock.clone(),
                n_decoders: config.decoders,
                placing: config.placing.as_ref(),
                cores: &config.cores,
                part: config.part.as_ref(),
                account: account.clone(),
                admin: admin.as_ref(),
            },
        )?;

        let embedded = serving.now();
        let frame_bytes = limits.message_bytes - MESSAGE_OVERHEAD;
        let edge = Edge::new(
            limits,
            account.clone(),
            config.security.grants(),
            clock.clone(),
            config.seed,
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
        let api = Arc::new(Api::new(embedded.hosts.clone(), sampler));
        let services = Services::new(api.clone(), other);

        let (leaves, stop) = (CancellationToken::new(), CancellationToken::new());
        let connections = TaskTracker::new();
        let address = listener.local_addr().unwrap_or(config.listen);
        let admin_address = admin.as_ref().map(|admin| admin.address);
        if let Some(admin) = admin {
            let (edge, serving, leaves) = (edge.clone(), serving.clone(), leaves.clone());
            let status = status_of(serving.clone(), config.part.clone());
            let not_ready = move || {
                let embedded = serving.now();
                let why = not_ready(&embedded, &leaves).or_else(|| full(&edge));
                why.or_else(|| without_workers(&embedded.hosts))
            };
            admin.running(Admin::of(telemetry.clone(), not_ready, status));
        }
        set_health(&health, &embedded.hosts, ServingStatus::Serving).await;
        tokio::spawn(watch(serving.clone(), health.clone(), leaves.clone()));
        freed_memory::keep();
        tokio::spawn(freed_memory::trim(edge.account().clone(), stop.clone()));
        connections.spawn(listener::serve(
            listener,
            services,
            edge.clone(),
            config.security.tls(),
            stop.clone(),
            connections.clone(),
        ));
        Certificates::of(config.security.tls(), config.part.as_ref())
            .watch(&telemetry, stop.clone());
        if let Some(part) = &config.part {
            member::join(&embedded, part, config.link_listen, &stop).await?;
        }
        let drain = config.drain;
        let renewal = Renewal {
            serving: serving.clone(),
            api,
            telemetry: telemetry.clone(),
            library,
            clock,
            n_decoders: config.decoders,
            placing: config.placing.clone(),
            cores: config.cores.clone(),
            account,
            health: health.clone(),
            frame_bytes,
            drain,
        };
        Ok(Server {
            address,
            admin_address,
            serving,
            renewal: Arc::new(renewal),
            telemetry,
            security: config.security,
            part: config.part,
            edge,
            health,
            leaves,
            stop,
            connections,
            drain,
        })
    }

    /// The hosts, in the order of the deployments.
    pub fn hosts(&self) -> Vec<Arc<PipelineHost>> {
        self.serving.now().hosts.clone()
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> impl Fn() -> usize + use<> {
        let serving = self.serving.clone();
        move || serving.in_flight()
    }

    /// Replaces what is served.
    pub fn renewer(&self) -> Renewer {
        Renewer(self.renewal.clone())
    }

    /// Adds what it can read anew while it serves.
    pub fn add_to(&self, reload: &mut Reload) {
        self.security.add_to(reload, &self.edge);
        if let Some(part) = &self.part {
            part.add_to(reload);
        }
    }

    /// Names of the devices.
    pub fn devices(&self) -> Vec<String> {
        self.serving
            .now()
            .device_names()
            .iter()
            .map(|(_, name)| name.clone())
            .collect()
    }
}

/// What a process starts with, beside what it serves.
pub(crate) struct Around<'a> {
    pub(crate) clock: Clock,
    pub(crate) n_decoders: usize,
    pub(crate) placing: Option<&'a Placing>,
    pub(crate) cores: &'a Cores,
    pub(crate) part: Option<&'a Part>,
    /// Of what other processes send.
    pub(crate) account: Arc<Account>,
    pub(crate) admin: Option<&'a AdminPort>,
}

/// Starts what a process holds, observed by its telemetry. The admin port, if there is one, shows how far it is.
pub(crate) fn start_observed(
    telemetry: TelemetryConfig,
    deployments: &[Deployment],
    library: &Arc<Library>,
    around: Around<'_>,
) -> Result<(Arc<Telemetry>, Serving), ServeError> {
    let Around {
        clock,
        n_decoders,
        placing,
        cores,
        part,
        account,
        admin,
    } = around;
    let of_spans = clock.clone();
    let telemetry = Telemetry::new(telemetry, move || of_spans.epoch_wall())?;
    let telemetry = Arc::new(telemetry);
    for deployment in deployments {
        telemetry.register_pipeline(&deployment.pipeline);
    }
    let loading = |device: &str| {
        if let Some(admin) = admin {
            admin.starting(&format!("loading what runs on {device}"));
        }
    };
    let embedded = Embedded::start(
        deployments,
        library,
        Surroundings {
            clock,
            observer: telemetry.clone(),
            n_decoders,
            part,
            replaces: None,
            account,
            placing,
            cores,
            loading: &loading,
        },
    )?;
    for (id, name) in embedded.device_names() {
        telemetry.register_device(*id, name);
    }
    if let Some(part) = part {
        telemetry.register_processes(embedded.processes(part));
    }
    let serving = Serving::new(embedded);
    telemetry.register_queue_lengths(Box::new({
        let serving = serving.clone();
        move || (serving.now().queue_lengths())()
    }));
    telemetry.register_planners(Box::new({
        let serving = serving.clone();
        move || (serving.now().planners())()
    }));
    Ok((telemetry, serving))
}

/// Reads the state of the process at any time.
pub(crate) fn status_of(serving: Serving, part: Option<Part>) -> impl Fn() -> StatusReader {
    let began = Instant::now();
    move || serving.now().status(part.clone(), began)
}

/// The pipeline that no request can go through.
fn without_workers(hosts: &[Arc<PipelineHost>]) -> Option<String> {
    let mut unserved = hosts
        .iter()
        .filter_map(|host| Some((host, host.unserved()?)));
    let (host, module) = unserved.next()?;
    let name = &host.pipeline().name;
    Some(format!(
        "pipeline {name}: module {module} has no worker yet, or has lost all of them"
    ))
}

/// Bounds of the edge that serves these pipelines.
fn edge_limits(config: &ServerConfig, deployments: &[Deployment]) -> EdgeLimits {
    let pipelines = || deployments.iter().map(|d| &d.pipeline);
    let frame_bytes = pipelines().map(|p| p.limits.frame_bytes).max();
    let slo = pipelines().map(|p| p.slo).max().unwrap_or_default();
    // Idle connections leave half of the memory to connections with calls.
    let each = idle_connection_bytes(config.security.tls().is_some());
    let connections = ((config.memory / 2 / each) as usize).clamp(1, config.connections);
    if connections < config.connections {
        tracing::warn!(
            asked = config.connections,
            connections,
            "fewer connections are taken than --connections says: they could hold more than half of --memory"
        );
    }
    EdgeLimits {
        admission: ConnectionLimits {
            connections,
            // The same part of them.
            per_address: (config.connections_per_address * connections / config.connections).max(1),
            idle: config.idle,
            // A request may be under way for as long as its SLO, and late.
            silent: config.idle.max(2 * slo),
            unread: UNREAD_LIMIT,
            age: config.connection_age,
        },
        calls_per_connection: config.calls_per_connection,
        message_bytes: frame_bytes.unwrap_or(0) + MESSAGE_OVERHEAD,
        message: MESSAGE_LIMIT,
    }
}

/// Why a process cannot serve: it ends, or a thread has died without which it cannot.
pub(crate) fn not_ready(embedded: &Embedded, stop: &CancellationToken) -> Option<String> {
    if stop.is_cancelled() {
        return Some("shutting down".to_owned());
    }
    let devices = embedded.device_handles();
    let devices = devices.iter().filter(|d| !d.is_alive());
    let devices: Vec<&str> = devices.map(Device::name).collect();
    if !devices.is_empty() {
        return Some(format!("dead devices: {}", devices.join(", ")));
    }
    let timers = embedded.timer_watches();
    let dead = timers.iter().find(|timer| !timer.is_alive())?;
    Some(format!("dead thread: {}", dead.name()))
}

async fn set_health(health: &HealthReporter, hosts: &[Arc<PipelineHost>], status: ServingStatus) {
    health.set_service_status("", status).await;
    health
        .set_service_status("spillgate.v1.Spillgate", status)
        .await;
    for host in hosts {
        health
            .set_service_status(service_of(&host.pipeline().name), status)
            .await;
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
        let embedded = serving.now();
        if let Some(why) = not_ready(&embedded, &stop) {
            tracing::error!(why, "not ready");
            set_health(&health, &embedded.hosts, ServingStatus::NotServing).await;
            return;
        }
    }
}
