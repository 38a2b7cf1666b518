//! The wanted numbers of workers for KEDA, which starts and ends the workers of a set on Kubernetes: its external scaler
//! (`externalscaler.ExternalScaler`, gRPC in plain text) on a port of its own (`--scaler-listen`).
//!
//! A trigger names `pipeline` and `module` in its metadata. The metric is the wanted number and its target 1, so that KEDA wants as
//! many replicas. At least one worker is wanted of each module, so a module is always active.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use spillgate_controller::host::PipelineHost;
use spillgate_controller_policy::scaling::Reason;
use spillgate_proto::externalscaler as pb;
use spillgate_proto::externalscaler::external_scaler_server::{
    ExternalScaler, ExternalScalerServer,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service;
use tonic::{Request, Response, Status};

use crate::places::{Place, Places};
use crate::serving::Serving;

/// The only metric.
pub const METRIC: &str = "workers-wanted";
/// Most connections at a time: KEDA's operator makes one for each trigger, one a module.
pub const CONNECTIONS_MAX: usize = 64;
/// Most calls on a connection at a time: KEDA makes one after the other.
pub(crate) const CALLS_MAX: u32 = 16;
/// Largest message: the name and metadata of a trigger.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;
/// Most bytes of a call's headers, as HTTP/2 counts them.
const HEADERS_MAX: u32 = 8 << 10;
/// A connection without traffic is probed after this time, and closed when it does not answer for as long again.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How long nothing is accepted after an error: most likely no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers from the controllers of this process.
#[derive(Clone)]
struct Answers(Serving);

impl Answers {
    /// How many workers are wanted of the module that a trigger names; `None` while that is not known.
    fn wanted(&self, of: Option<&pb::ScaledObjectRef>) -> Result<Option<u32>, Status> {
        let name = |key: &str| {
            let named = of.and_then(|of| of.scaler_metadata.get(key));
            named.ok_or_else(|| {
                let why =
                    format!("metadata: {key} is missing; write pipeline: NAME and module: NAME");
                Status::invalid_argument(why)
            })
        };
        let (pipeline, module) = (name("pipeline")?, name("module")?);
        let (_, is_whole) = self.0.running();
        let hosts = self.0.hosts();
        if !is_whole && !hosts.iter().any(|host| host.pipeline().name == *pipeline) {
            // One revision has ended, and the next one is not ready.
            return Ok(None);
        }
        let host = hosts.iter().find(|host| host.pipeline().name == *pipeline);
        let host = host.ok_or_else(|| {
            let names = hosts.iter().map(|host| host.pipeline().name.as_str());
            unknown("pipeline", pipeline, names)
        })?;
        wanted(host, module)
    }
}

/// How many workers are wanted of that module; `None` while that is not known.
fn wanted(host: &PipelineHost, module: &str) -> Result<Option<u32>, Status> {
    let modules = &host.pipeline().modules;
    let known = || {
        let all = modules.iter().zip(host.planner_view().modules);
        all.filter_map(|(module, of)| Some((module.name.as_str(), of?.workers?)))
            .collect::<Vec<_>>()
    };
    let known = known();
    let of = known.iter().find(|(name, _)| *name == module);
    let (_, of) = of.ok_or_else(|| {
        let names = known.iter().map(|(name, _)| *name);
        unknown("module", module, names)
    })?;
    let is_known = of.wanted.reason != Reason::Unheard;
    Ok(is_known.then_some(of.wanted.workers))
}

/// Says what there is instead.
fn unknown<'a>(what: &str, name: &str, names: impl Iterator<Item = &'a str>) -> Status {
    let names: Vec<&str> = names.collect();
    Status::not_found(format!(
        "metadata: {what}: no {what} named {name:?} has its controller in this process; here are {}",
        names.join(", ")
    ))
}

#[tonic::async_trait]
impl ExternalScaler for Answers {
    type StreamIsActiveStream = Active;

    async fn is_active(
        &self,
        request: Request<pb::ScaledObjectRef>,
    ) -> Result<Response<pb::IsActiveResponse>, Status> {
        self.wanted(Some(request.get_ref()))?;
        Ok(Response::new(pb::IsActiveResponse { result: true }))
    }

    async fn stream_is_active(
        &self,
        request: Request<pb::ScaledObjectRef>,
    ) -> Result<Response<Active>, Status> {
        self.wanted(Some(request.get_ref()))?;
        Ok(Response::new(Active { is_told: false }))
    }

    async fn get_metric_spec(
        &self,
        request: Request<pb::ScaledObjectRef>,
    ) -> Result<Response<pb::GetMetricSpecResponse>, Status> {
        self.wanted(Some(request.get_ref()))?;
        let spec = pb::MetricSpec {
            metric_name: METRIC.to_owned(),
            target_size: 1,
            target_size_float: 1.0,
        };
        Ok(Response::new(pb::GetMetricSpecResponse {
            metric_specs: vec![spec],
        }))
    }

    async fn get_metrics(
        &self,
        request: Request<pb::GetMetricsRequest>,
    ) -> Result<Response<pb::GetMetricsResponse>, Status> {
        let request = request.get_ref();
        if request.metric_name != METRIC {
            let why = format!(
                "no metric named {:?}; here is {METRIC}",
                request.metric_name
            );
            return Err(Status::not_found(why));
        }
        let wanted = self.wanted(request.scaled_object_ref.as_ref())?;
        // KEDA leaves the number of replicas as it is after an error.
        let wanted = wanted.ok_or_else(|| {
            Status::unavailable(
                "no gateway tells how much is offered; the number of workers is to stay",
            )
        })?;
        let value = pb::MetricValue {
            metric_name: METRIC.to_owned(),
            metric_value: i64::from(wanted),
            metric_value_float: f64::from(wanted),
        };
        Ok(Response::new(pb::GetMetricsResponse {
            metric_values: vec![value],
        }))
    }
}

/// Says once that a module is active, and stays open: that never changes.
struct Active {
    is_told: bool,
}

impl Stream for Active {
    type Item = Result<pb::IsActiveResponse, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if std::mem::replace(&mut self.is_told, true) {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(Some(Ok(pb::IsActiveResponse { result: true })))
    }
}

/// Serves on this port until told to stop. The connection that has been silent the longest gives way where all places are taken.
pub(crate) async fn serve(listener: TcpListener, serving: Serving, stop: CancellationToken) {
    let answers = ExternalScalerServer::new(Answers(serving));
    let answers = answers.max_decoding_message_size(MESSAGE_MAX);
    let places = Arc::new(Mutex::new(Places::new(CONNECTIONS_MAX)));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = accepted.inspect_err(|error| {
            tracing::warn!(%error, "a connection of an autoscaler could not be accepted");
        }) else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let place = places.lock().take(Instant::now());
        let (answers, places, stop) = (answers.clone(), places.clone(), stop.clone());
        tokio::spawn(connection(stream, place, places, answers, stop));
    }
}

async fn connection(
    stream: TcpStream,
    place: Place,
    places: Arc<Mutex<Places>>,
    answers: ExternalScalerServer<Answers>,
    stop: CancellationToken,
) {
    let id = place.id;
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        places.lock().heard(id, Instant::now());
        let answer = answers.clone().call(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let http = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .max_concurrent_streams(CALLS_MAX)
        .max_header_list_size(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = http => {}
        () = place.gives_way.cancelled() => {}
        () = stop.cancelled() => {}
    }
    places.lock().leave(id);
}
