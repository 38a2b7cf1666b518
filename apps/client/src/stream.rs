//! `spillgate stream`: sends a source's frames at their rate and shows the answers.
//!
//! Each client has a producer thread, which reads and encodes, and a session task, which sends and receives. All
//! report to one board. Frames are sent on schedule whether or not answers came.

mod adapting;
pub(crate) mod backoff;
mod board;
mod clock;
mod history;
pub(crate) mod open_stream;
mod pace;
pub(crate) mod plot;
pub(crate) mod producer;
pub(crate) mod saver;
mod screen;
pub(crate) mod session;
pub(crate) mod sources;
mod summary;
mod timeline;
mod trace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow};
use spillgate_pipeline::time::{parse_duration, parse_positive_duration};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use self::adapting::WantedSide;
use self::board::{Board, Lost, Results};
use self::clock::{FrameClock, Pacing};
use self::pace::Pace;
use self::plot::Plot;
use self::producer::{Notice, Producer, ProducerConfig};
use self::saver::SaverConfig;
use self::screen::{Display, Screen, status_line};
use self::session::{Session, SessionConfig, SessionEnd};
use self::sources::Sources;
use self::summary::{Heading, render};
use self::trace::SpanExport;
use crate::ExitSummary;
use crate::connect::{Server, ServerArgs, SlowLink};
use crate::encode::{Encoding, JPEG_QUALITY};
use crate::models;
use crate::resize::MAX_SIDE;
use crate::source::{RawVideo, SourceSpec};

/// Default rate of sources that do not state one.
const DEFAULT_FRAMES_PER_SECOND: f64 = 25.0;
/// Time from the last client being ready to the first frame.
const START_IN: Duration = Duration::from_millis(20);
/// Longest round trip of a link: to the moon and back, twice.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);
/// How often source and server are checked for keeping up.
const SECOND: Duration = Duration::from_secs(1);

/// Arguments of `spillgate stream`.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct StreamArgs {
    /// Video files, rtsp:// and http:// addresses and cameras (/dev/video0), which an installed ffmpeg reads; folders of .jpg, .png and
    /// .webp files, and such files; a synthetic street (scene:seed=7,size=640x360,density=0.5,light=night,noise=20,blur=0.2); - is standard
    /// input: JPEG pictures one after another (MJPEG), or pixels with --raw-video. Each has clients of its own. In an address ${NAME} is
    /// the environment's variable NAME [default: scene:]
    #[arg(value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// Read sources from this file, one a line, so that passwords stand in no list of processes; lines that begin with # are comments
    #[arg(long, value_name = "FILE")]
    pub source_file: Option<PathBuf>,

    /// Standard input carries pixels of this size and rate: rgb24, rows from the top, nothing between the frames
    #[arg(long, value_name = "WIDTHxHEIGHT@FPS")]
    pub raw_video: Option<RawVideo>,

    /// Wait for a live source that ends, or is not there yet, and for a server that goes away, and reach it again; without this flag that is
    /// an error
    #[arg(long)]
    pub reconnect: bool,

    /// The server and how to reach it
    #[command(flatten)]
    pub server: ServerArgs,

    /// Name of the pipeline; not needed when the server serves just one
    #[arg(long, value_name = "NAME", default_value = "")]
    pub pipeline: String,

    /// A video that gives no frame for this time is silent: a live one is dialled anew with --reconnect, and anything else is an error
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    pub silent: Duration,

    /// Frames a second of each client, of live sources at most; by default frames are sent at their own times, or at the rate of the source
    #[arg(long, value_name = "RATE", value_parser = frames_per_second)]
    pub fps: Option<f64>,

    /// Concurrent clients of each source, each with a stream of its own; synthetic scenes differ between them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub clients: u16,

    /// Stop after this many frames of each client
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

    /// Application of the frames, where execution times depend on the content of requests [default: the client's name]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub application: String,

    /// Model that a module with a family of models runs for the frames, like faces=cam-17; once for each such module
    /// [default: the module's default_model]
    #[arg(long = "model", value_name = "MODULE=NAME", value_parser = models::choice)]
    pub models: Vec<(String, String)>,

    /// Results in the order of the frames instead of as they finish
    #[arg(long)]
    pub in_order: bool,

    /// A new frame takes the place of frames that still wait in the server
    #[arg(long)]
    pub latest_only: bool,

    /// Quality of the JPEG that frames are sent as
    #[arg(long, value_name = "1-100", default_value_t = JPEG_QUALITY, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub jpeg_quality: u8,

    /// Pictures with a longer side are made smaller before they are sent; boxes in results, --save-frames and
    /// --save-video are in pixels of the source
    #[arg(long, value_name = "PIXELS", default_value_t = MAX_SIDE, value_parser = clap::value_parser!(u32).range(16..=65_535))]
    pub max_side: u32,

    /// Send frames as they are: do not tell the server about the link, and do not take the size that it asks for
    #[arg(long)]
    pub no_adapt: bool,

    /// Send over a link of this bandwidth: a file of the columns second,mbps, over and over; only what is sent is slowed
    /// down. Each client has a link of its own, and all see the same second of the file
    #[arg(long, value_name = "TRACE.csv")]
    pub link: Option<PathBuf>,

    /// Round trip of --link, half of it in each direction
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = round_trip, requires = "link")]
    pub link_rtt: Duration,

    /// Send pixels instead of JPEG
    #[arg(long, conflicts_with = "jpeg_quality")]
    pub raw: bool,

    /// Name of this client in results, status, traces and metrics; once, or once for each source in their order. Clients with the same name get
    /// -0, -1, ... added
    #[arg(long = "name", value_name = "NAME", default_value = "stream")]
    pub names: Vec<String>,

    /// Trace this share of the frames, 0 to 1; by default the server decides
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub trace_sample: Option<f64>,

    /// Send the client's own span of each traced frame there: OTLP over gRPC, like http://127.0.0.1:4317
    #[arg(long, value_name = "URL", requires = "trace_sample")]
    pub otlp: Option<String>,

    /// Write every result as a line of JSON; - is standard output, and the display then goes to standard error
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,

    /// Draw the run of the first client: bandwidth, size of the frames, latency of each with the SLO
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,

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

fn round_trip(text: &str) -> Result<Duration, String> {
    let span = parse_duration(text)?;
    match span > ROUND_TRIP_MAX {
        true => Err(format!("a round trip is at most {ROUND_TRIP_MAX:?}")),
        false => Ok(span),
    }
}

/// Streams until the source ends, a limit is reached, or `stop` is cancelled; then prints the summary.
///
/// # Errors
/// When streaming could not begin, or the source broke off; one line with the reason.
pub async fn run_until(args: StreamArgs, stop: CancellationToken) -> Result<ExitSummary> {
    let mut server = Server::from_args(&args.server)?;
    let link = args.link.as_deref();
    let link = link.map(|path| SlowLink::from_file(path, args.link_rtt));
    let link = link.transpose()?;
    if let Some(link) = &link {
        server = server.over(link.clone());
    }
    let sources = Sources::of(&args)?;
    let clients = sources.clients();
    let mut saving = SaverConfig {
        folder: args.save_frames.clone(),
        video: args.save_video.clone(),
        frames_per_second: DEFAULT_FRAMES_PER_SECOND,
    };
    for client in 0..clients {
        saving.for_client(client, clients).prepare()?;
    }
    let (results, display) = match args.results.as_deref() {
        Some(path) if path == Path::new("-") => (Results::Stdout, Display::Stderr),
        Some(path) => (Results::File(path), Display::Stdout),
        None => (Results::None, Display::Stdout),
    };
    let screen = Screen::new(display, args.quiet);
    let plot = args.plot.as_deref().map(Plot::create).transpose()?;
    let board = Board::new(results, plot, screen, args.verbose, stop.clone())?;
    let board = Arc::new(board);

    let spans = args.otlp.as_deref().map(SpanExport::start).transpose()?;
    let sending = stop.child_token();
    let mut opening = JoinSet::new();
    for client in 0..clients {
        let wanted = (!args.no_adapt).then(WantedSide::default);
        let name = sources.name(client);
        let mut session = session_config(&args, &server, client, name, wanted)?;
        session.spans = spans.clone();
        let source = sources.of_client(client);
        let producer = producer_config(&args, source, client, &board, &session, &sending);
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
        match opened? {
            Ok(session) => sessions.push(session),
            Err(error) => {
                // A source that is still waited for is not wanted any more.
                sending.cancel();
                return Err(error);
            }
        }
    }
    sessions.sort_by_key(|(client, _)| *client);
    let Some((_, first)) = sessions.first() else {
        return Err(anyhow!("no clients"));
    };

    let rates = sessions.iter().map(|(_, session)| rate_of(&args, session));
    let rate = rates.sum::<f64>() / clients as f64;
    let mut heading = Heading {
        pipeline: first.opened().pipeline.clone(),
        server: server.url.clone(),
        source: sources.shown(),
        clients,
        sources: sources.count(),
        paced: paced(&args, &sessions),
        slo_ms: first.opened().slo_ms,
        frames_per_second: rate,
        elapsed: Duration::ZERO,
        slipped: Duration::ZERO,
        saved: (0, 0),
    };
    let start = Instant::now() + START_IN;
    board.starts(SystemTime::now() + START_IN);
    let mut running = JoinSet::new();
    for (client, session) in sessions {
        let rate = rate_of(&args, &session);
        let interval = Duration::from_secs_f64(1.0 / rate);
        saving.frames_per_second = rate;
        // Clients take turns within an interval, like unsynchronised cameras.
        let phase = interval.mul_f64(client as f64 / clients as f64);
        let clock = FrameClock::new(pacing_of(&args, &session), start + phase, interval);
        let saving = saving.for_client(client, clients);
        let (board, sending, stop) = (board.clone(), sending.clone(), stop.clone());
        running.spawn(async move {
            let ended = session.run(&board, start, clock, saving, sending, stop);
            ended.await
        });
    }
    let pace = Pace::new(rate, clients);
    let ends = watch(&mut running, &board, start, args.duration, &sending, pace).await?;
    heading.elapsed = start.elapsed();
    if let Some(spans) = spans {
        tokio::task::spawn_blocking(move || spans.finish()).await?;
    }
    // What cannot be written is told after the summary.
    let written = board.finish_results();
    let plot = board.plot.as_ref().map_or(Ok(()), |plot| {
        plot.write(&plot::Of {
            pipeline: &heading.pipeline,
            slo_ms: heading.slo_ms,
            start,
            elapsed: heading.elapsed,
            link: link.as_ref(),
        })
    });
    let mut unwritten = written.err().or(plot.err());

    let mut error = None;
    for end in ends {
        heading.slipped = heading.slipped.max(end.slipped);
        heading.saved.0 += end.saved.0;
        heading.saved.1 += end.saved.1;
        unwritten = unwritten.or(end.unsaved);
        if let Some(lost) = end.lost {
            error.get_or_insert(anyhow!(lost));
        }
        if let Some(source_error) = end.source_error {
            error = Some(source_error);
        }
    }
    let counts = board.counts();
    board.screen.summary(&render(&heading, &counts));
    if counts.tally.outcomes.total() == 0 {
        error.get_or_insert(anyhow!("no frame came from {}", heading.source));
    }
    match error.or(unwritten) {
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
    mut pace: Pace,
) -> Result<Vec<SessionEnd>> {
    let every = board.screen.refresh_every();
    let mut refresh = interval_at(start + every, every);
    refresh.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut seconds = interval_at(start + SECOND, SECOND);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
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
            _ = seconds.tick(), if !sending.is_cancelled() => {
                for line in pace.judge(board.sample(start.elapsed())) {
                    board.screen.line(&line);
                }
            }
            () = &mut over, if duration.is_some() && !sending.is_cancelled() => sending.cancel(),
        }
    }
}

/// Usual frames a second of a client.
fn rate_of(args: &StreamArgs, session: &Session) -> f64 {
    let rate = args.fps.or(session.frames_per_second);
    rate.unwrap_or(DEFAULT_FRAMES_PER_SECOND)
}

fn pacing_of(args: &StreamArgs, session: &Session) -> Pacing {
    match (session.is_live, session.has_times && args.fps.is_none()) {
        (true, _) => Pacing::Live,
        (false, true) => Pacing::Own,
        (false, false) => Pacing::Even,
    }
}

/// When frames are sent, for people.
fn paced(args: &StreamArgs, sessions: &[(usize, Session)]) -> String {
    let mut all: Vec<String> = Vec::new();
    for (_, session) in sessions {
        let rate = rate_of(args, session);
        let text = match pacing_of(args, session) {
            Pacing::Even => format!("at {rate:.3} frames/s"),
            Pacing::Own => "at their own times".to_owned(),
            Pacing::Live => match args.fps {
                Some(rate) => format!("live, at most {rate:.3} frames/s"),
                None => "live".to_owned(),
            },
        };
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join(", ")
}

fn session_config(
    args: &StreamArgs,
    server: &Server,
    client: usize,
    name: Arc<str>,
    wanted: Option<WantedSide>,
) -> Result<SessionConfig> {
    Ok(SessionConfig {
        client,
        server: server.clone(),
        pipeline: args.pipeline.clone(),
        name,
        in_order: args.in_order,
        latest_only: args.latest_only,
        timeout: args.timeout,
        application: args.application.clone(),
        models: models::of_each(&args.models)?,
        trace_sample: args.trace_sample,
        spans: None,
        runs: Arc::default(),
        reconnect: args.reconnect,
        wanted,
    })
}

fn producer_config(
    args: &StreamArgs,
    source: &SourceSpec,
    client: usize,
    board: &Arc<Board>,
    session: &SessionConfig,
    stop: &CancellationToken,
) -> ProducerConfig {
    let encoding = if args.raw {
        Encoding::Rgb
    } else {
        Encoding::Jpeg(args.jpeg_quality)
    };
    let (source, board) = (source.clone(), board.clone());
    let name = session.name.clone();
    let tell = move |notice| match notice {
        Notice::Lost(text) | Notice::Remark(text) => {
            board.screen.line(&format!("{name}: {text}"));
        }
        Notice::Jumped(text) => {
            board.counts().jumps += 1;
            board.screen.line(&format!("{name}: {text}"));
        }
        Notice::Skipped(n) => board.counts().skipped += n,
        Notice::Unreadable(pictures, damaged) => {
            let unreadable = &mut board.counts().unreadable;
            unreadable.0 += pictures;
            unreadable.1 += damaged;
        }
        Notice::Back(text) => {
            board.reconnected(Lost::Source);
            board.screen.line(&format!("{name}: {text}"));
        }
    };
    let silent = args.silent;
    ProducerConfig {
        is_remote: source.is_remote(),
        open: Box::new(move || source.open(client, silent)),
        stop: stop.clone(),
        runs: session.runs.clone(),
        live_interval: args.fps.map(|rate| Duration::from_secs_f64(1.0 / rate)),
        encoding,
        max_side: args.max_side,
        wanted: session.wanted.clone(),
        keep_pictures: args.save_frames.is_some() || args.save_video.is_some(),
        repeat: args.repeat,
        reconnect: args.reconnect || args.repeat,
        tell: Box::new(tell),
        preload: args.preload.map(usize::from),
        limit: args.frames,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sending_ends_when_the_duration_is_over_and_not_before() {
        let screen = Screen::new(Display::Stderr, true);
        let board =
            Board::new(Results::None, None, screen, false, CancellationToken::new()).unwrap();
        let (start, sending) = (Instant::now(), CancellationToken::new());
        let duration = Duration::from_millis(300);
        let mut running = JoinSet::new();
        let over = sending.clone();
        running.spawn(async move {
            over.cancelled().await;
            let end = SessionEnd {
                slipped: start.elapsed(),
                saved: (0, 0),
                unsaved: None,
                source_error: None,
                lost: None,
            };
            Ok(end)
        });
        let pace = Pace::new(200.0, 1);
        let ends = watch(&mut running, &board, start, Some(duration), &sending, pace);
        let took: Vec<Duration> = ends.await.unwrap().iter().map(|e| e.slipped).collect();
        // Timers of tokio go by milliseconds.
        let exact = duration..=duration + Duration::from_millis(1);
        assert!(
            matches!(took[..], [took] if exact.contains(&took)),
            "{took:?}"
        );
    }
}
