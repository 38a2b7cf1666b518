//! `spillgate bench`: load on a pipeline, at exact times or with a fixed number of requests in flight.
//!
//! Two threads: the pacer decides when, the generator sends and receives. Payloads are made before the load starts
//! and sent repeatedly: the run measures the server, not the client's encoder.

mod arrivals;
pub(crate) mod generator;
mod measure;
mod pacer;
pub(crate) mod payloads;
mod scenario;
pub(crate) mod streams;
pub(crate) mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use spillgate_pipeline::time::{parse_duration, parse_positive_duration};
use spillgate_proto::pb;
use spillgate_scenes::SceneConfig;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::arrivals::{Arrivals, Segment, read_trace};
use self::generator::{Generator, Source, Transport};
use self::measure::Measure;
use self::pacer::Pacer;
use self::payloads::Payloads;
use self::scenario::Requests;
use self::streams::Streams;
use self::wire::Connections;
use crate::ExitSummary;
use crate::connect::{Server, ServerArgs, describe};
use crate::models;
use crate::source::scene;

/// Default duration of constant and closed-loop load.
const DURATION: Duration = Duration::from_secs(10);
/// Time from the connections being ready to the first request.
const START_IN: Duration = Duration::from_millis(50);

/// Largest plausible rate in requests a second; sending takes about 5 microseconds each.
const RATE_MAX: f64 = 1e6;

/// Arguments of `spillgate bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
#[command(group(clap::ArgGroup::new("load").required(true).args(["rate", "trace", "concurrency", "scenario"])))]
pub struct BenchArgs {
    /// Requests a second, sent on time whether or not earlier ones were answered
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub rate: Option<f64>,

    /// Rates from a file of `second,rate` lines
    #[arg(long, value_name = "FILE.csv")]
    pub trace: Option<PathBuf>,

    /// Closed loop: this many requests in flight, each followed by the next when it is answered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub concurrency: Option<u32>,

    /// The requests of a scenario, as `simulate --scenario` takes them: models.csv and arrivals.csv of this folder
    #[arg(long, value_name = "FOLDER", requires = "family", conflicts_with_all = ["models", "deadline", "poisson", "shuffle", "duration"])]
    pub scenario: Option<PathBuf>,

    /// The module whose family has the models of --scenario
    #[arg(long, value_name = "MODULE", requires = "scenario")]
    pub family: Option<String>,

    /// Random distances between requests (a Poisson process) instead of equal ones
    #[arg(long, conflicts_with = "concurrency")]
    pub poisson: bool,

    /// Seed of --poisson and --shuffle: equal seeds send the same at equal times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Begin the trace at this time of it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "trace")]
    pub offset: Option<Duration>,

    /// Multiply the rates of the trace
    #[arg(long, value_name = "FACTOR", value_parser = positive, requires = "trace")]
    pub scale: Option<f64>,

    /// How long to send; by default 10s, or the rest of the trace
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Option<Duration>,

    /// Requests that are due before this time has passed are sent, but not counted
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pub warmup: Duration,

    /// The server and how to reach it
    #[command(flatten)]
    pub server: ServerArgs,

    /// Name of the pipeline; not needed when the server serves just one
    #[arg(long, value_name = "NAME", default_value = "")]
    pub pipeline: String,

    /// Send this JPEG, PNG or WebP file, or those of this folder in the order of their names; may be given several times
    #[arg(long, value_name = "PATH", conflicts_with_all = ["payload_bytes", "scene"])]
    pub image: Vec<PathBuf>,

    /// Send frames of the built-in scene, drawn and encoded beforehand: seed=7,size=640x360,density=0.5,light=night (day,
    /// dusk, fog), noise=20 grey levels, blur=0.2; may be given several times [default: one frame]
    #[arg(long, value_name = "OPTIONS", value_parser = scene_options, conflicts_with = "payload_bytes",
          num_args = 0..=1, default_missing_value = "")]
    pub scene: Vec<SceneConfig>,

    /// So many pictures of each --scene, each frame of a street of its own [default: 64]
    #[arg(long, value_name = "N", requires = "scene", value_parser = clap::value_parser!(u16).range(1..))]
    pub frames: Option<u16>,

    /// Send the people in the frames of --scene, cut out, instead of the frames: for pipelines of a classifier
    #[arg(long, requires = "scene")]
    pub people: bool,

    /// Send the lines of this file, one each: for pipelines whose source is bytes; may be given several times
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload_bytes", "scene", "image"])]
    pub texts: Vec<PathBuf>,

    /// Take pictures and texts at random instead of in turn
    #[arg(long)]
    pub shuffle: bool,

    /// Send this many random bytes: for pipelines whose source is bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=64 << 20))]
    pub payload_bytes: Option<u32>,

    /// Over this many connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub connections: u16,

    /// Over streams, one a connection, instead of unary calls
    #[arg(long)]
    pub stream: bool,

    /// The client cancels a request after this time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout_ms: Option<u32>,

    /// Ask the server for answers within this time, at most the pipeline's slo
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub deadline: Option<Duration>,

    /// Application of the requests, where execution times depend on the content of requests; once for all, or once for
    /// each --scene, --image or --texts [default: the client's name]
    #[arg(long, value_name = "NAME")]
    pub application: Vec<String>,

    /// Model that a module with a family of models runs, like faces=cam-17; once for each such module, or several times for
    /// one, whose models are then asked for in turn [default: the module's default_model]
    #[arg(long = "model", value_name = "MODULE=NAME", value_parser = models::choice)]
    pub models: Vec<(String, String)>,

    /// Write all numbers, with a series by seconds, to this file; - is standard output, without the summary
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Print the closing summary only
    #[arg(long, short)]
    pub quiet: bool,
}

/// With or without the `scene:` that `stream` wants.
fn scene_options(text: &str) -> Result<SceneConfig> {
    scene::parse(text.strip_prefix("scene:").unwrap_or(text))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| "this must be a number above 0".to_owned())
}

/// Runs the load to its end, or until `stop` is cancelled, and prints the summary.
///
/// # Errors
/// When it could not begin, the server was lost during the run, or a file cannot be written; one line with the
/// reason.
pub async fn run_until(args: BenchArgs, stop: CancellationToken) -> Result<ExitSummary> {
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    let json_file = args.json.as_deref().filter(|_| !to_stdout);
    if let Some(path) = json_file {
        spillgate_output::check(path)?;
    }
    let server = Server::from_args(&args.server)?;
    let pipeline = tokio::select! {
        described = described(&server, &args.pipeline) => described?,
        () = stop.cancelled() => bail!("interrupted before the first request"),
    };
    let mut payloads = Payloads::of(&args, &pipeline)?;
    let load = match (&args.scenario, &args.family) {
        (Some(folder), Some(module)) => {
            let requests = Requests::read(folder)?;
            payloads = payloads.of_scenario(&requests, module)?;
            Load::of_scenario(requests, folder)
        }
        _ => Load::of(&args)?,
    };

    let cpu_before = cpu_time()?;
    let silent = args.quiet || to_stdout;
    let heading = format!(
        "{} at {}, slo {}ms: {}, {}, {} {} over {} connection{}",
        pipeline.name,
        server.url,
        pipeline.slo_ms,
        load.words,
        payloads.words(),
        if args.concurrency.is_some() {
            "closed loop"
        } else {
            "open loop"
        },
        if args.stream {
            "of frames on streams"
        } else {
            "of unary calls"
        },
        args.connections,
        if args.connections == 1 { "" } else { "s" },
    );
    let config = Config {
        server,
        pipeline: pipeline.name.clone(),
        payloads,
        connections: usize::from(args.connections),
        stream: args.stream,
        patience: args.timeout_ms.map(|ms| Duration::from_millis(ms.into())),
        warmup: args.warmup,
        silent,
    };
    let planned = load.planned;
    let words = load.words.clone();
    let n_payloads = config.payloads.frames.len();
    let measure = on_own_thread(config, load, stop).await?;
    let cpu = cpu_time()?.saturating_sub(cpu_before);

    // The summary comes first: it is there even if the file can not be written after all.
    if !to_stdout {
        crate::print(&measure.render(&heading, Some(planned), cpu))?;
    }
    if args.json.is_some() {
        let run = json!({
            "pipeline": pipeline.name, "slo_ms": pipeline.slo_ms, "load": words,
            "poisson": args.poisson, "stream": args.stream, "connections": args.connections, "payloads": n_payloads,
            "warmup_ms": args.warmup.as_secs_f64() * 1e3,
        });
        let text = format!("{:#}\n", measure.to_json(run, Some(planned), cpu));
        match json_file {
            Some(path) => spillgate_output::write(path, text)?,
            None => crate::print(&text)?,
        }
    }
    if let Some(lost) = measure.lost_server(planned) {
        bail!(lost);
    }
    let outcomes = &measure.tally().outcomes;
    Ok(ExitSummary {
        requests: outcomes.total(),
        served: outcomes.served(),
    })
}

async fn described(server: &Server, pipeline: &str) -> Result<pb::PipelineDescription> {
    let (mut client, _) = server.connect().await?;
    describe(server, &mut client, pipeline).await
}

/// When requests are sent.
struct Load {
    kind: LoadKind,
    planned: Duration,
    words: String,
}

/// The times at which requests are due.
type Due = Box<dyn Iterator<Item = Duration> + Send>;

enum LoadKind {
    Open(Due),
    Closed(usize),
}

impl Load {
    fn of_scenario(requests: Requests, folder: &Path) -> Self {
        Load {
            planned: requests.due.last().copied().unwrap_or_default(),
            words: format!("scenario {}", folder.display()),
            kind: LoadKind::Open(Box::new(requests.due.into_iter())),
        }
    }

    fn of(args: &BenchArgs) -> Result<Self> {
        if let Some(n) = args.concurrency {
            let planned = args.duration.unwrap_or(DURATION);
            let words = format!("{n} in flight");
            return Ok(Load {
                kind: LoadKind::Closed(n as usize),
                planned,
                words,
            });
        }
        let (segments, words) = match (args.rate, &args.trace) {
            (Some(rate), _) if rate > RATE_MAX => {
                bail!(
                    "--rate {rate} is more than the {RATE_MAX} requests a second that one generator can send"
                )
            }
            (Some(rate), _) => {
                let seconds = args.duration.unwrap_or(DURATION).as_secs_f64();
                (vec![Segment { seconds, rate }], format!("{rate}/s"))
            }
            (None, Some(path)) => {
                let (offset, scale) = (args.offset.unwrap_or_default(), args.scale.unwrap_or(1.0));
                let segments = read_trace(path, offset, args.duration, scale)?;
                (segments, format!("trace {} times {scale}", path.display()))
            }
            (None, None) => bail!("give --rate, --trace or --concurrency"),
        };
        let arrivals = if args.poisson {
            Arrivals::poisson(segments, args.seed)
        } else {
            Arrivals::even(segments)
        };
        let planned = arrivals.duration();
        let words = if args.poisson {
            format!("{words} poisson")
        } else {
            words
        };
        Ok(Load {
            kind: LoadKind::Open(Box::new(arrivals)),
            planned,
            words,
        })
    }
}

struct Config {
    server: Server,
    pipeline: String,
    payloads: Payloads,
    connections: usize,
    stream: bool,
    patience: Option<Duration>,
    warmup: Duration,
    silent: bool,
}

/// A runtime of its own: other work of the caller's runtime cannot delay a request.
async fn on_own_thread(config: Config, load: Load, stop: CancellationToken) -> Result<Measure> {
    let (sender, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("generator".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let measured = match runtime {
                Ok(runtime) => runtime.block_on(generate(config, load, stop)),
                Err(error) => Err(error.into()),
            };
            // The caller is gone and does not need the numbers.
            let _ = sender.send(measured);
        })
        .context("cannot start a thread for the generator")?;
    let measured = outcome.await;
    thread
        .join()
        .map_err(|_| anyhow!("the generator panicked"))?;
    measured.context("the generator ended without a result")?
}

async fn generate(config: Config, load: Load, stop: CancellationToken) -> Result<Measure> {
    let Payloads { frames, order } = config.payloads;
    let applications = frames.iter().map(|f| f.application.clone()).collect();
    let transport = if config.stream {
        let streams = Streams::open(&config.server, config.connections, &config.pipeline).await?;
        Transport::Stream(streams, frames)
    } else {
        let request = |frame| pb::InferRequest {
            pipeline: config.pipeline.clone(),
            frame: Some(frame),
        };
        let requests = frames.into_iter().map(request);
        Transport::Unary(Box::new(
            Connections::open(&config.server, config.connections, requests).await?,
        ))
    };
    let start = Instant::now() + START_IN;
    let source = match load.kind {
        LoadKind::Open(arrivals) => Source::Open(Pacer::start(arrivals, start.into_std())?),
        LoadKind::Closed(n) => {
            tokio::time::sleep_until(start).await;
            Source::Closed(n, start + load.planned)
        }
    };
    let measure = Measure::new(config.warmup, applications);
    let generator = Generator::new(start, transport, order, config.patience, measure);
    let tell = |line: String| {
        if !config.silent {
            // A line that cannot be shown is no reason to end the run.
            let _ = crate::print(&format!("{line}\n"));
        }
    };
    generator.run(source, stop, tell).await
}

/// CPU time of this process so far.
fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}
