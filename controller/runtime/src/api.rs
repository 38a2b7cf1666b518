//! The gRPC face of the pipelines: unary calls, streams of frames, descriptions. Turns messages into
//! submissions and records into results; decides nothing.

mod adapting;
mod party;
mod served;
pub(crate) mod stream;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use spillgate_controller_policy::families;
use spillgate_controller_policy::refusal::Refusal;
use spillgate_controller_policy::rollout::{Admission, RevisionId};
use spillgate_controller_policy::variant_selector::FrameSize;
use spillgate_picture::Picture;
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::time::Timestamp;
use spillgate_process::job::Job;
use spillgate_process::value::Value;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_server::{Spillgate, SpillgateServer};
use tokio::sync::oneshot;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::convert;
use crate::edge::{Asking, Call, LeftOut};
use crate::host::{OnEnd, PipelineHost, Submission};
use crate::record::{Sizes, TraceContext};
use party::Shared;
use served::{Served, Serves};

/// Decides the trace context of a request from the client's `traceparent`, if it sent one.
pub type Sampler = Arc<dyn Fn(Option<&str>) -> TraceContext + Send + Sync>;

/// Longest name of a client, application or pipeline, in characters. Of a longer name only the beginning is kept or
/// repeated in messages.
const NAME_MAX: usize = 64;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Serves the pipelines of one process.
pub struct Api {
    serves: Serves,
    sampler: Sampler,
    /// The name of clients that give none.
    unnamed: Arc<str>,
}

/// The API as one call sees it.
pub(crate) struct ApiCall {
    api: Arc<Api>,
    call: Arc<Call>,
}

impl Api {
    /// The API of these pipelines, by the groups that are rolled out together.
    pub fn new(groups: Vec<Vec<Arc<PipelineHost>>>, sampler: Sampler) -> Self {
        let revision = RevisionId(0);
        let groups = groups.into_iter();
        let served = groups.map(|hosts| Served::new(Admission::One(revision), [(revision, hosts)]));
        Api {
            serves: Serves::new(served),
            sampler,
            unnamed: Arc::from(""),
        }
    }

    /// New requests of a group go to these hosts from now on, by revision. Requests that were accepted before end where they are. Where nobody is
    /// admitted, streams stay open and their frames are refused.
    pub fn admit(
        &self,
        group: usize,
        admission: Admission,
        hosts: impl IntoIterator<Item = (RevisionId, Vec<Arc<PipelineHost>>)>,
    ) {
        match admission {
            Admission::Nobody => self.serves.nobody(group),
            _ => self.serves.replace(group, Served::new(admission, hosts)),
        }
    }

    /// The API for this call.
    pub(crate) fn serve(self: &Arc<Self>, call: Arc<Call>) -> SpillgateServer<ApiCall> {
        SpillgateServer::new(ApiCall {
            api: self.clone(),
            call,
        })
    }

    /// The pipeline of that name that takes requests with this key. A pipeline that the caller may not use does not exist for it.
    fn host(&self, call: &Call, name: &str, key: u64) -> Result<Arc<PipelineHost>, Refusal> {
        let served = self.serves.now();
        if call.allows(name)
            && let Some(host) = served.host(name, key)
        {
            return Ok(host.clone());
        }
        let all = self.hosts_for(call);
        match &all[..] {
            [only] if name.is_empty() => {
                let host = served.host(&only.pipeline().name, key);
                Ok(host.unwrap_or(only).clone())
            }
            _ => Err(self.unknown(call, name)),
        }
    }

    /// Why a call that names this pipeline cannot be served.
    fn unknown(&self, call: &Call, name: &str) -> Refusal {
        let hosts = self.hosts_for(call);
        let known: Vec<String> = hosts.iter().map(|h| h.pipeline().name.clone()).collect();
        match known.is_empty() || !name.is_empty() {
            false => Refusal::UnnamedPipeline { known },
            true => Refusal::UnknownPipeline {
                name: cut(name).to_owned(),
                known,
            },
        }
    }

    /// The pipelines that the caller may use; of two revisions those that most requests go to.
    fn hosts_for(&self, call: &Call) -> Vec<Arc<PipelineHost>> {
        let all = self.serves.now().all();
        let allowed = all.into_iter();
        let allowed = allowed.filter(|host| call.allows(&host.pipeline().name));
        allowed.collect()
    }

    /// Asks whether the call's token may send one more frame.
    fn ask(&self, host: &PipelineHost, call: &Call) -> Result<Option<Asking>, Refusal> {
        let name = &host.pipeline().name;
        call.ask(name).map_err(|refusal| match refusal {
            // A token may have rights to pipelines that are not served here.
            Refusal::UnknownPipeline { .. } => self.host(call, name, 0).err().unwrap_or(refusal),
            _ => refusal,
        })
    }

    /// Submits a frame. From here on `on_end` is called exactly once.
    ///
    /// # Errors
    /// When it is refused; `on_end` is not called then.
    fn submit(
        &self,
        host: &PipelineHost,
        call: &Call,
        frame: pb::Frame,
        asked: Asked<'_>,
        on_end: OnEnd,
    ) -> Result<RequestId, Refusal> {
        let submission = self.submission(host, call, frame, asked, on_end);
        let submission = submission.inspect_err(|refusal| {
            if !refusal.ends_call() {
                host.note_refused(refusal.label());
            }
        })?;
        host.submit(submission)
    }

    fn submission(
        &self,
        host: &PipelineHost,
        call: &Call,
        frame: pb::Frame,
        asked: Asked<'_>,
        on_end: OnEnd,
    ) -> Result<Submission, Refusal> {
        let Asked {
            timeout,
            sent_at,
            traceparent,
            client,
            shared,
        } = asked;
        // The frame is a part of the message, so it keeps the message's lease.
        let message = call.take_message();
        if self.serves.is_gap(&host.pipeline().name) {
            return Err(Refusal::Replaced);
        }
        let number = frame.number;
        let on_end = match self.ask(host, call)? {
            None => on_end,
            // Dropped before the answer is sent: a client that waits for it may ask again at once.
            Some(asking) => Box::new(move |record| {
                drop(asking);
                on_end(record);
            }),
        };
        let limits = &host.pipeline().limits;
        let bytes = match call.left_out() {
            None => frame.data.len(),
            Some(LeftOut::TooLong { bytes }) => bytes,
            Some(LeftOut::Memory(full)) => return Err(Refusal::Memory(full.to_string())),
        };
        if bytes > limits.frame_bytes {
            return Err(Refusal::FrameTooLarge {
                bytes,
                limit: limits.frame_bytes,
            });
        }
        let own = timeout_of(frame.timeout_ms).map_err(Refusal::InvalidFrame)?;
        let timeout = [timeout, own].into_iter().flatten().min();
        let traceparent = Some(frame.traceparent.as_str())
            .filter(|t| !t.is_empty())
            .or(traceparent);
        let trace = (self.sampler)(traceparent);
        let named = frame.models.iter();
        let named = named.map(|(module, name)| (module.as_str(), name.as_str()));
        let members = families::choose(host.pipeline(), named)?;
        let format = format_of(frame.format).map_err(Refusal::InvalidFrame)?;
        let application = match frame.application.as_str() {
            "" => client.clone(),
            name => client_name(name),
        };
        let data = Frame {
            format,
            data: frame.data,
            width: frame.width,
            height: frame.height,
        };
        let pipeline = host.pipeline();
        let (mut decoding, mut size) = (Duration::ZERO, FrameSize::default());
        let mut sizes = Sizes::default();
        let source_done = pipeline.source.ty == ValueType::Bytes;
        if !source_done {
            let picture = Picture::of(&data, limits.pixels).map_err(Refusal::InvalidFrame)?;
            decoding = picture.decoding;
            let sent = (picture.width, picture.height);
            let source = match (frame.source_width, frame.source_height) {
                (0, _) | (_, 0) => sent,
                source => source,
            };
            sizes = Sizes { source, sent };
            size = FrameSize {
                side: sent.0.max(sent.1),
                source: source.0.max(source.1),
                bytes: data.data.len() as u32,
            };
            let limit = pipeline.decoding_max();
            if decoding > limit {
                return Err(Refusal::DecodingTooLong { decoding, limit });
            }
        }
        let holder = call.holder().clone();
        let job = Job::new(data, message, pipeline.modules.len(), holder);
        let job = Arc::new(job.traced(trace.sampled));
        if source_done {
            if !matches!(format, FrameFormat::Auto | FrameFormat::Bytes) {
                return Err(Refusal::InvalidFrame(format!(
                    "pipeline {} takes bytes, and the frame says that it is a picture",
                    pipeline.name
                )));
            }
            let payload = Value::Bytes(job.frame().data.clone());
            let stored = job.set_outputs(ModuleId::SOURCE, vec![payload]);
            debug_assert!(stored.is_ok(), "the frame holds its bytes already");
        }
        Ok(Submission {
            job,
            source_done,
            number,
            client,
            client_id: call.client(),
            party: shared.party(&pipeline.clients, host.rights(), &application),
            counted: shared.counted(&pipeline.clients, &application),
            application,
            members,
            stream: shared.stream_key(),
            frame: size,
            sizes,
            sent_at,
            timeout,
            decoding,
            trace,
            on_end,
        })
    }
}

/// The parts of a client's request besides its frame.
struct Asked<'a> {
    timeout: Option<Duration>,
    /// When the frame was sent, if that is believed.
    sent_at: Option<Timestamp>,
    traceparent: Option<&'a str>,
    client: Arc<str>,
    shared: Shared,
}

/// Frees a request's work when its call goes away before its answer.
struct CancelOnDrop {
    host: Arc<PipelineHost>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.host.cancel(id);
        }
    }
}

#[tonic::async_trait]
impl Spillgate for ApiCall {
    async fn infer(
        &self,
        request: Request<pb::InferRequest>,
    ) -> Result<Response<pb::InferResponse>, Status> {
        let timeout = grpc_timeout(request.metadata())?;
        let ApiCall { api, call } = self;
        let (metadata, _, message) = request.into_parts();
        let host = api.host(call, &message.pipeline, api.serves.request_key());
        let host = host.map_err(|refusal| convert::call_refused(&refusal))?;
        let frame = message
            .frame
            .ok_or_else(|| Status::invalid_argument("the request carries no frame"))?;
        let number = frame.number;
        let traceparent = metadata.as_ref().get(&TRACEPARENT);
        let traceparent = traceparent.and_then(|t| t.to_str().ok());
        // The timeout counts from the headers, however slowly the frame comes.
        let timeout = timeout.map(|t| t.saturating_sub(host.now().since(call.began_at())));
        let (tx, rx) = oneshot::channel();
        let on_end: OnEnd = Box::new(move |record| drop(tx.send(record)));
        let asked = Asked {
            timeout,
            sent_at: None,
            traceparent,
            client: call.token_name().unwrap_or(&api.unnamed).clone(),
            shared: Shared::new(call, &host.pipeline().clients, metadata.as_ref(), false),
        };
        let id = api
            .submit(&host, call, frame, asked, on_end)
            .map_err(|refusal| convert::unary_refused(number, &refusal))?;
        let mut guard = CancelOnDrop { host, id: Some(id) };
        let record = rx
            .await
            .map_err(|_| Status::internal("the request was lost; this is a bug"))?;
        guard.id = None;
        let result = convert::result(&record);
        match result.outcome() {
            pb::Outcome::Completed | pb::Outcome::Late => Ok(Response::new(pb::InferResponse {
                result: Some(result),
            })),
            _ => Err(convert::status(result)),
        }
    }

    type StreamStream = stream::Results;

    async fn stream(
        &self,
        request: Request<tonic::Streaming<pb::StreamRequest>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        stream::serve(self.api.clone(), self.call.clone(), request)
            .await
            .map(Response::new)
    }

    async fn describe(
        &self,
        request: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        let ApiCall { api, call } = self;
        let pipelines = match request.get_ref().pipeline.as_str() {
            "" => api.hosts_for(call).iter().map(|h| describe(h)).collect(),
            name => {
                let mut allowed = api.hosts_for(call).into_iter();
                match allowed.find(|host| host.pipeline().name == name) {
                    Some(host) => vec![describe(&host)],
                    None => {
                        let refusal = api.unknown(call, name);
                        return Err(convert::call_refused(&refusal));
                    }
                }
            }
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(pb::DescribeResponse { pipelines, version }))
    }
}

fn describe(host: &PipelineHost) -> pb::PipelineDescription {
    let pipeline = host.pipeline();
    let workers = host.all_workers();
    let modules = pipeline.modules[1..]
        .iter()
        .map(|m| pb::ModuleDescription {
            name: m.name.clone(),
            op: m.op.clone(),
            devices: m.devices.clone(),
            workers: workers.iter().filter(|w| w.module == m.id).count() as u32,
            batch_max: m.batch.max,
            after: pipeline
                .predecessors(m.id)
                .iter()
                .map(|p| pipeline.modules[p.idx()].name.clone())
                .collect(),
            conditional: m.when.is_some(),
            emulated: convert::is_emulated(m),
        })
        .collect();
    let outputs = pipeline
        .outputs
        .iter()
        .map(|o| pb::OutputDescription {
            name: o.name.clone(),
            r#type: o.ty.name().to_owned(),
        })
        .collect();
    pb::PipelineDescription {
        name: pipeline.name.clone(),
        slo_ms: pipeline.slo.as_secs_f64() * 1e3,
        source: pipeline.source.ty.name().to_owned(),
        modules,
        outputs,
        drop_policy: pipeline.policy.dropper(),
        dispatch_policy: pipeline.dispatch().name().to_owned(),
        in_flight_max: pipeline.limits.in_flight as u32,
        in_flight_per_stream_max: pipeline.limits.in_flight_per_stream as u32,
        frame_bytes_max: pipeline.limits.frame_bytes as u64,
        pixels_max: pipeline.limits.pixels,
        graph_dot: spillgate_pipeline::graph::render(
            pipeline,
            spillgate_pipeline::graph::Format::Dot,
        ),
    }
}

fn format_of(format: i32) -> Result<FrameFormat, String> {
    match pb::FrameFormat::try_from(format) {
        Ok(pb::FrameFormat::Auto) => Ok(FrameFormat::Auto),
        Ok(pb::FrameFormat::Jpeg) => Ok(FrameFormat::Jpeg),
        Ok(pb::FrameFormat::Png) => Ok(FrameFormat::Png),
        Ok(pb::FrameFormat::Webp) => Ok(FrameFormat::Webp),
        Ok(pb::FrameFormat::Rgb8) => Ok(FrameFormat::Rgb8),
        Ok(pb::FrameFormat::Bytes) => Ok(FrameFormat::Bytes),
        Err(_) => Err(format!(
            "frame format {format} is unknown; see FrameFormat in the API"
        )),
    }
}

fn timeout_of(timeout_ms: f64) -> Result<Option<Duration>, String> {
    if timeout_ms == 0.0 {
        return Ok(None);
    }
    if !(timeout_ms > 0.0 && timeout_ms.is_finite()) {
        return Err(format!(
            "timeout_ms is {timeout_ms}; give a positive number of milliseconds"
        ));
    }
    // The conversion saturates; the ledger caps it at the SLO.
    Ok(Some(Duration::from_nanos((timeout_ms * 1e6) as u64)))
}

/// Reads `grpc-timeout`: at most 8 digits and a unit.
fn grpc_timeout(metadata: &MetadataMap) -> Result<Option<Duration>, Status> {
    let Some(value) = metadata.as_ref().get(&GRPC_TIMEOUT) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let parse = || {
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let n: u64 = digits.parse().ok()?;
        Some(match unit {
            "H" => Duration::from_secs(n * 3600),
            "M" => Duration::from_secs(n * 60),
            "S" => Duration::from_secs(n),
            "m" => Duration::from_millis(n),
            "u" => Duration::from_micros(n),
            "n" => Duration::from_nanos(n),
            _ => return None,
        })
    };
    match parse() {
        Some(timeout) => Ok(Some(timeout)),
        None => Err(Status::invalid_argument(format!(
            "grpc-timeout \"{text}\" is malformed; it is up to 8 digits and one of H M S m u n"
        ))),
    }
}

/// A client's name: the name of its token and, behind a `/`, the name that it gives itself. Without a token it is the
/// name that it gives itself.
fn client_of(call: &Call, own: &str) -> Arc<str> {
    match call.token_name() {
        None => client_name(own),
        Some(token) if own.is_empty() => token.clone(),
        Some(token) => Arc::from(format!("{token}/{}", cut(own))),
    }
}

/// The part of a client's or application's name that is kept.
fn client_name(name: &str) -> Arc<str> {
    Arc::from(cut(name))
}

/// The part of a name that is kept, or repeated in messages.
fn cut(name: &str) -> &str {
    let end = name
        .char_indices()
        .nth(NAME_MAX)
        .map_or(name.len(), |(at, _)| at);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn grpc_timeouts() {
        let parse = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            grpc_timeout(&metadata)
        };
        assert_eq!(parse("250m").unwrap(), Some(Duration::from_millis(250)));
        assert_eq!(
            parse("99999999u").unwrap(),
            Some(Duration::from_micros(99_999_999))
        );
        assert_eq!(grpc_timeout(&MetadataMap::new()).unwrap(), None);
        for wrong in ["", "m", "123456789m", "12", "-1S", "1x"] {
            assert_eq!(
                parse(wrong).unwrap_err().code(),
                Code::InvalidArgument,
                "{wrong}"
            );
        }
    }

    #[test]
    fn own_timeouts() {
        assert_eq!(timeout_of(0.0), Ok(None));
        assert_eq!(timeout_of(1.5), Ok(Some(Duration::from_micros(1500))));
        assert!(timeout_of(1e300).unwrap().unwrap() > Duration::from_secs(1 << 30));
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(timeout_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tokens_name_is_the_clients_and_cannot_be_taken_by_another() {
        let call = crate::edge::access::tests::call_of("camera");
        assert_eq!(client_of(&call, "").as_ref(), "camera");
        assert_eq!(client_of(&call, "front").as_ref(), "camera/front");
        let long = client_of(&call, &"x".repeat(100));
        assert_eq!(long.len(), "camera/".len() + NAME_MAX);
        // Without tokens a client may give itself any name. With tokens, no token's name has a `/`.
        assert_eq!(client_of(&Call::of_nobody(), "front").as_ref(), "front");
    }

    #[test]
    fn long_client_names_are_cut_between_characters() {
        assert_eq!(client_name("cam").as_ref(), "cam");
        assert_eq!(client_name(&"ä".repeat(100)).chars().count(), NAME_MAX);
    }
}
