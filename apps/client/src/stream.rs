//! `spillgate stream`: sends a source's frames at their rate and shows what comes back.
//!
//! Each client has a producer thread, which reads and encodes, and a session task, which sends and takes the
//! answers; all report to one board. Frames leave on schedule whether or not answers came.

mod board;
mod clock;
mod producer;
mod saver;
mod screen;
mod session;
mod summary;
mod trace;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use spillgate_pipeline::time::parse_positive_duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use self::board::Board;
use self::clock::FrameClock;
use self::producer::{Producer, ProducerConfig};
use self::saver::SaverConfig;
use self::screen::{Screen, status_line};
use self::session::{Session, SessionConfig, SessionEnd};
use self::summary::{Heading, render};
use self::trace::SpanExport;
use crate::ExitSummary;
use crate::connect::{DEFAULT_SERVER, server_url};
use crate::encode::Encoding;
use crate::source::SourceSpec;

/// For sources that do not say at what rate they were made.
const DEFAULT_FRAMES_PER_SECOND: f64 = 25.0;
/// From the last client being ready to the first frame.
const START_IN: Duration = Duration::from_millis(20);

/// Arguments of `spillgate stream`.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct StreamArgs {
    /// An .mp4 file, a folder of .jpg and .png files, one such file, a synthetic street
    /// (scene:seed=7,size=640x360,density=0.5,light=night,noise=20,blur=0.2), or anything that an installed ffmpeg reads: other video
    /// files, rtsp:// addresses, /dev/video0
    #[arg(default_value = "scene:")]
    pub source: String,

    /// Address of the server
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    pub server: String,

    /// Name of the pipeline; not needed when the server serves just one
    #[arg(long, value_name = "NAME", default_value = "")]
    pub pipeline: String,

    /// Frames a second of each client; by default the rate of the source
    #[arg(long, value_name = "RATE", value_parser = frames_per_second)]
    pub fps: Option<f64>,

    /// Concurrent clients, each with a stream of its own; synthetic scenes differ between them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub clients: u16,

    /// Stop after so many frames of each client
    #[arg(long, value_name = "N")]
    pub frames: Option<u64>,

    /// Stop after this time, for example 30s
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Option<Duration>,

    /// Begin again when the source ends
    #[arg(long = "loop")]
    pub repeat: bool,

    /// Make N frames beforehand and send them over and over, so that rendering and encoding take no time
    /// from the server on the same machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub preload: Option<u16>,

    /// Ask for answers within this time, at most the pipeline's slo
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Option<Duration>,

    /// Whose work it is, where execution times depend on what requests bring [default: the client's name]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub application: String,

    /// Results in the order of the frames instead of as they finish
    #[arg(long)]
    pub in_order: bool,

    /// A new frame takes the place of frames that still wait in the server
    #[arg(long)]
    pub latest_only: bool,

    /// Quality of the JPEG that frames are sent as
    #[arg(long, value_name = "1-100", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub jpeg_quality: u8,

    /// Send pixels instead of JPEG
    #[arg(long, conflicts_with = "jpeg_quality")]
    pub raw: bool,

    /// Name of this client in traces and metrics; clients get -0, -1, ... added when there are several
    #[arg(long, value_name = "NAME", default_value = "stream")]
    pub name: String,

    /// Trace this share of the frames, 0 to 1; by default the server decides
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub trace_sample: Option<f64>,

    /// Send the client's own span of each traced frame there: OTLP over gRPC, like http://127.0.0.1:4317
    #[arg(long, value_name = "URL", requires = "trace_sample")]
    pub otlp: Option<String>,

    /// Write every result as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,

    /// Save frames with results drawn into them as .jpg files
    #[arg(long, value_name = "DIR")]
    pub save_frames: Option<PathBuf>,

    /// Save a video with results drawn into it
    #[arg(long, value_name = "FILE.mp4")]
    pub save_video: Option<PathBuf>,

    /// Print every result
    #[arg(long, short)]
    pub verbose: bool,

    /// Print the closing summary only
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
}

fn frames_per_second(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate| (0.01..=1000.0).contains(rate));
    rate.ok_or_else(|| "a rate is a number from 0.01 to 1000".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text
        .parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 to 1".to_owned())
}

/// Streams until the source ends, a limit is reached, or Ctrl-C; then prints the summary.
///
/// # Errors
/// When streaming could not begin, or the source broke off; one line that says why.
pub async fn run(args: StreamArgs) -> Result<ExitSummary> {
    let stop = CancellationToken::new();
    let interrupted = stop.clone();
    let mut signals = JoinSet::new();
    signals.spawn(async move {
        // Without a handler Ctrl-C ends the process, which is right as well.
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.cancel();
        }
    });
    run_until(args, stop).await
}

/// Like [`run`], with any other event in the place of Ctrl-C.
///
/// # Errors
/// As [`run`].
pub async fn run_until(args: StreamArgs, stop: CancellationToken) -> Result<ExitSummary> {
    let server = server_url(&args.server)?;
    let source = SourceSpec::parse(&args.source)?;
    let board = Board::new(
        args.results.as_deref(),
        Screen::new(args.quiet),
        args.verbose,
    )?;
    let board = std::sync::Arc::new(board);

    let spans = args.otlp.as_deref().map(SpanExport::start).transpose()?;
    let mut opening = JoinSet::new();
    for client in 0..usize::from(args.clients) {
        let session = session_config(&args, &server, client, spans.clone());
        let producer = producer_config(&args, &source, client);
        opening.spawn(async move {
            let producer = tokio::task::spawn_blocking(|| Producer::start(producer)).await??;
            let session = Session::open(session, producer).await?;
            anyhow::Ok((client, session))
        });
    }
    let mut sessions = Vec::new();
    while let Some(opened) = tokio::select! {
        opened = opening.join_next() => opened,
        () = stop.cancelled() => return Err(anyhow!("interrupted before the first frame")),
    } {
        sessions.push(opened??);
    }
    sessions.sort_by_key(|(client, _)| *client);
    let Some((_, first)) = sessions.first() else {
        return Err(anyhow!("no clients"));
    };

    let rate = args
        .fps
        .or(first.frames_per_second)
        .unwrap_or(DEFAULT_FRAMES_PER_SECOND);
    let mut heading = Heading {
        pipeline: first.opened.pipeline.clone(),
        server,
        source: args.source.clone(),
        clients: sessions.len(),
        slo_ms: first.opened.slo_ms,
        frames_per_second: rate,
        elapsed: Duration::ZERO,
        slipped: Duration::ZERO,
        saved: (0, 0),
    };
    let saving = SaverConfig {
        folder: args.save_frames.clone(),
        video: args.save_video.clone(),
        frames_per_second: rate,
    };

    let start = Instant::now() + START_IN;
    let interval = Duration::from_secs_f64(1.0 / rate);
    let sending = stop.child_token();
    let clients = sessions.len();
    let mut running = JoinSet::new();
    for (client, session) in sessions {
        // Clients take turns within an interval, as cameras do that nobody synchronised.
        let phase = interval.mul_f64(client as f64 / clients as f64);
        let clock = FrameClock::new(start + phase, interval);
        let saving = saving.for_client(client, clients);
        let (board, sending) = (board.clone(), sending.clone());
        running.spawn(async move { session.run(&board, start, clock, saving, sending).await });
    }
    let ends = watch(&mut running, &board, start, args.duration, &sending).await?;
    heading.elapsed = start.elapsed();
    if let Some(spans) = spans {
        tokio::task::spawn_blocking(move || spans.finish()).await?;
    }
    board.flush()?;
    board.screen.clear_status();

    let mut error = None;
    for end in ends {
        heading.slipped = heading.slipped.max(end.slipped);
        heading.saved.0 += end.saved.0;
        heading.saved.1 += end.saved.1;
        if let Some(lost) = end.lost {
            error.get_or_insert(anyhow!(lost));
        }
        if let Some(source_error) = end.source_error {
            error = Some(source_error);
        }
    }
    let counts = board.counts();
    crate::print(&render(&heading, &counts))?;
    match error {
        Some(error) => Err(error),
        None => Ok(ExitSummary {
            requests: counts.tally.outcomes.total(),
            served: counts.tally.outcomes.served(),
        }),
    }
}

/// Shows the status until all clients have ended.
async fn watch(
    running: &mut JoinSet<Result<SessionEnd>>,
    board: &Board,
    start: Instant,
    duration: Option<Duration>,
    sending: &CancellationToken,
) -> Result<Vec<SessionEnd>> {
    let every = board.screen.refresh_every();
    let mut refresh = interval_at(start + every, every);
    refresh.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let over = tokio::time::sleep_until(start + duration.unwrap_or_default());
    tokio::pin!(over);
    let mut ends = Vec::new();
    loop {
        tokio::select! {
            ended = running.join_next() => match ended {
                Some(end) => ends.push(end??),
                None => return Ok(ends),
            },
            _ = refresh.tick() => board.screen.status(&status_line(board, start.elapsed())),
            () = &mut over, if duration.is_some() && !sending.is_cancelled() => sending.cancel(),
        }
    }
}

fn session_config(
    args: &StreamArgs,
    server: &str,
    client: usize,
    spans: Option<SpanExport>,
) -> SessionConfig {
    let name = if args.clients == 1 {
        args.name.clone()
    } else {
        format!("{}-{client}", args.name)
    };
    SessionConfig {
        client,
        server: server.to_owned(),
        pipeline: args.pipeline.clone(),
        name,
        in_order: args.in_order,
        latest_only: args.latest_only,
        timeout: args.timeout,
        application: args.application.clone(),
        trace_sample: args.trace_sample,
        spans,
    }
}

fn producer_config(args: &StreamArgs, source: &SourceSpec, client: usize) -> ProducerConfig {
    let encoding = if args.raw {
        Encoding::Rgb
    } else {
        Encoding::Jpeg(args.jpeg_quality)
    };
    ProducerConfig {
        source: source.clone(),
        client,
        encoding,
        keep_pictures: args.save_frames.is_some() || args.save_video.is_some(),
        repeat: args.repeat,
        preload: args.preload.map(usize::from),
        limit: args.frames,
    }
}
