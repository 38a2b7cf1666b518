//! Logs to standard error: lines for people, or one JSON object a line for machines.
//!
//! ```text
//! tracing event ─▶ RUST_LOG ─▶ Repeats (a burst a call site, then counts) ─┐
//! say, complain, a panic ──────────────────────────────────────────────────┴▶ Queue ─▶ thread "log" ─▶ stderr
//! ```
//!
//! A thread that logs never waits for the reader of standard error and never fails with it. The queue is bounded;
//! lines that do not fit or cannot be written are lost and counted, and the count is logged once there is room again.

mod lines;
pub(crate) mod queue;
pub(crate) mod repeats;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spillgate_pipeline::printable::printable;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use lines::{Format, message_of};
use queue::Queue;
use repeats::Repeats;

/// The default filter, where the environment names none.
const DEFAULT_FILTER: &str = "info";
/// How often the log's thread looks for due counts of repeated lines.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a panic waits for its message to be written: the process may be about to end.
const PANIC_LIMIT: Duration = Duration::from_millis(200);
/// The source of lines of the program itself, which are not events.
const TARGET: &str = "spillgate";

/// Whether lines that are said have their time.
static TIMED: AtomicBool = AtomicBool::new(false);
/// The log of this process, once it is set up.
static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    queue: Arc<Queue>,
    format: Format,
}

/// Sends `tracing` events, [`say`], [`complain`] and panics to standard error. `RUST_LOG` chooses which events;
/// without it, `info` and above.
///
/// # Errors
/// When logging is already set up, or the system gives no thread.
pub fn init_logging(json: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let format = if json { Format::Json } else { Format::Text };
    let queue = Arc::new(Queue::default());
    let repeats = Arc::new(Mutex::new(Repeats::default()));
    let to_queue = {
        let queue = queue.clone();
        move || queue.writer()
    };
    let layer = tracing_subscriber::fmt::layer().with_writer(to_queue);
    let layer = if json {
        layer.json().flatten_event(true).boxed()
    } else {
        layer.with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(Counted(repeats.clone()))
        .with(layer)
        .try_init()?;
    let also = move || {
        let due = repeats.lock().due(Instant::now());
        due.iter()
            .map(|repeated| format.repeated(repeated))
            .collect()
    };
    let lost = move |n| {
        let text = format!("{n} lines of this log were lost: standard error did not take them");
        format.event(Level::WARN, TARGET, &text)
    };
    queue::start(queue.clone(), LOOK_INTERVAL, also, lost)?;
    let _ = LOG.set(Log { queue, format });
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed").to_owned();
        let mut text = format!("thread '{name}' {panic}");
        // As `RUST_BACKTRACE` says.
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            text.push_str(&format!("\n{trace}"));
        }
        write(Level::ERROR, &text, TIMED.load(Ordering::Relaxed));
        flush(PANIC_LIMIT);
    }));
    Ok(())
}

/// From now on lines that are said have their time: the program serves, and its log is read later.
pub fn tell_times() {
    TIMED.store(true, Ordering::Relaxed);
}

/// Logs a message for people that is not an event: as it is, with its time where [`tell_times`] was called, or as the message of a JSON object.
pub fn say(text: &str) {
    write(Level::INFO, text, TIMED.load(Ordering::Relaxed));
}

/// Logs an error that ends the program, as it is or as the message of a JSON object.
pub fn complain(text: &str) {
    write(Level::ERROR, text, false);
}

fn write(level: Level, text: &str, is_timed: bool) {
    let text = &*printable(text);
    match LOG.get() {
        Some(log) => {
            let line = log.format.said(level, TARGET, text, is_timed);
            log.queue.push(line);
        }
        // Before logging is set up. A missing reader is no reason to end.
        None => {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
}

/// Whether lines are JSON objects: no progress bars then.
pub fn is_json() -> bool {
    LOG.get().is_some_and(|log| log.format == Format::Json)
}

/// Formats a usage error like the log, for errors found before logging is set up.
pub fn json_error(text: &str) -> String {
    let line = Format::Json.said(Level::ERROR, TARGET, text, false);
    String::from_utf8_lossy(&line).into_owned()
}

/// Waits until all lines are written, for at most `limit`. Call it before the process ends.
pub fn flush(limit: Duration) {
    if let Some(log) = LOG.get() {
        log.queue.flush(limit);
    }
}

/// Lets the events of a call site pass until they are too many: [`Repeats`] decides.
struct Counted(Arc<Mutex<Repeats>>);

impl<S: Subscriber> Layer<S> for Counted {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Levels below `info` are shown completely: they are asked for explicitly.
        if *metadata.level() > Level::INFO {
            return true;
        }
        let text = || message_of(event);
        self.0.lock().hear(Instant::now(), metadata, text)
    }
}
