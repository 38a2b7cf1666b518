//! `spillgate stream` against a small server: every frame is accounted for once, whatever the server does.

mod moving;
mod tls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fake::server::{Answer, Behaviour, FakeServer};
use clap::Parser;
use serde_json::Value as Json;
use spillgate_client::ExitSummary;
use spillgate_client::stream::{StreamArgs, run_until};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    stream: StreamArgs,
}

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("spillgate-client-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How long anything may take on a busy machine: far less than what a client without an SLO waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for the end of a run.
async fn ended<T>(run: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, run).await.expect("it ends")
}

async fn stream(arguments: &[&str]) -> anyhow::Result<ExitSummary> {
    let all = ["stream", "--quiet"].iter().chain(arguments);
    run_until(Cli::parse_from(all).stream, CancellationToken::new()).await
}

/// Streams small frames at a high rate; what was returned, and the results file.
async fn stream_to(
    server: &FakeServer,
    name: &str,
    arguments: &[&str],
) -> (anyhow::Result<ExitSummary>, Vec<Json>) {
    stream_until(server, name, arguments, std::future::pending()).await
}

/// The same, interrupted when something has happened.
async fn stream_until(
    server: &FakeServer,
    name: &str,
    arguments: &[&str],
    happens: impl Future<Output = ()>,
) -> (anyhow::Result<ExitSummary>, Vec<Json>) {
    let folder = Folder::new(name);
    let results = folder.file("results.jsonl");
    let mut all = vec!["scene:size=64x64", "--results", &results];
    all.extend(arguments);
    if !arguments.contains(&"--server") {
        all.extend(["--server", &server.url]);
    }
    if !arguments.contains(&"--fps") {
        all.extend(["--fps", "200"]);
    }
    let all = ["stream", "--quiet"].iter().chain(&all);
    let stop = CancellationToken::new();
    let mut run = std::pin::pin!(run_until(Cli::parse_from(all).stream, stop.clone()));
    let outcome = tokio::select! {
        outcome = ended(&mut run) => outcome,
        () = happens => {
            stop.cancel();
            ended(run).await
        }
    };
    (outcome, read_lines(Path::new(&results)))
}

fn read_lines(path: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn by_outcome(lines: &[Json]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts
            .entry(line["outcome"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    counts
}

/// Panics unless frames 0 to n-1 of each client end exactly once.
fn assert_each_once(lines: &[Json], clients: u64, frames: u64) {
    let mut ends: Vec<(u64, u64)> = lines
        .iter()
        .map(|l| (l["client"].as_u64().unwrap(), l["frame"].as_u64().unwrap()))
        .collect();
    ends.sort_unstable();
    let expected: Vec<(u64, u64)> = (0..clients)
        .flat_map(|c| (0..frames).map(move |f| (c, f)))
        .collect();
    assert_eq!(ends, expected);
}

const MIXED: Behaviour = |number| match number % 5 {
    0 => Answer::Dropped,
    1 => Answer::Late,
    2 => Answer::Refused,
    3 => Answer::Twice,
    _ => Answer::Completed,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_frame_of_every_client_ends_once() {
    let server = FakeServer::start(MIXED).await;
    let (outcome, lines) = stream_to(
        &server,
        "mixed",
        &["--frames", "50", "--clients", "3", "--trace-sample", "0.5"],
    )
    .await;
    let summary = outcome.unwrap();
    assert_each_once(&lines, 3, 50);
    assert_eq!(
        summary,
        ExitSummary {
            requests: 150,
            served: 90
        }
    );
    let counts = by_outcome(&lines);
    assert_eq!((counts["completed"], counts["late"]), (60, 30));
    assert_eq!((counts["dropped"], counts["refused"]), (30, 30));
    let dropped = lines.iter().find(|l| l["outcome"] == "dropped").unwrap();
    assert_eq!(
        (&dropped["module"], &dropped["reason"]),
        (&"detect".into(), &"estimate".into())
    );
    // What did not come in time found nothing, though late frames are answered.
    let sum = |line: &Json, key: &str| -> u64 {
        let counts = line["detection"][key].as_array().unwrap();
        counts.iter().filter_map(Json::as_u64).sum()
    };
    for line in &lines {
        let boxes = sum(line, "found") + sum(line, "spurious");
        assert_eq!(boxes > 0, line["outcome"] == "completed", "{line}");
    }
    assert!(
        lines
            .iter()
            .any(|l| l["outcome"] == "refused" && sum(l, "missed") > 0)
    );
}

/// The server is told that no more comes, and ends the stream: nobody waits for answers that all are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_with_its_last_answer() {
    let server = FakeServer::start_without_slo(|_| Answer::Completed).await;
    let (outcome, _) = stream_to(&server, "end", &["--frames", "5"]).await;
    assert_eq!(outcome.unwrap().served, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_leave_on_schedule_though_nothing_is_answered() {
    let server = FakeServer::start(|_| Answer::Silence).await;
    let (outcome, lines) = stream_to(&server, "silence", &["--frames", "40", "--fps", "100"]).await;
    let error = outcome.unwrap_err().to_string();
    let says = "40 frames have no answer: the server did not answer in time";
    assert_eq!(error, says);
    assert_each_once(&lines, 1, 40);
    for line in &lines {
        assert_eq!(line["reason"], "no_answer");
        assert!(
            line["sent_ms"].as_f64() >= line["due_ms"].as_f64(),
            "{line}"
        );
    }
    // With the last frame all are answered, so none of them waited for an answer.
    let server = FakeServer::start_without_slo(|n| match n {
        39 => Answer::Completed,
        _ => Answer::Held,
    })
    .await;
    let (outcome, lines) = stream_to(&server, "held", &["--frames", "40", "--fps", "100"]).await;
    assert_eq!(outcome.unwrap().served, 40);
    assert_each_once(&lines, 1, 40);
}

// Over five seconds: answers that take longer than a client with an SLO would wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_without_an_slo_are_waited_for_as_long_as_they_may_take() {
    let slow: Behaviour = |_| Answer::Slow;
    let frames = ["--frames", "5"];
    let server = FakeServer::start_without_slo(slow).await;
    let (outcome, lines) = stream_to(&server, "no-slo", &frames).await;
    assert_eq!(outcome.unwrap().served, 5);
    assert_each_once(&lines, 1, 5);
    // Those of a client that has one, and those that it asks for sooner, are given up.
    let server = FakeServer::start(slow).await;
    let unanswered = |outcome: anyhow::Result<ExitSummary>| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("5 frames have no answer"), "{error}");
    };
    let (outcome, _) = stream_to(&server, "slo", &frames).await;
    unanswered(outcome);
    let server = FakeServer::start_without_slo(slow).await;
    let soon = ["--frames", "5", "--timeout", "300ms"];
    let (outcome, _) = stream_to(&server, "no-slo-soon", &soon).await;
    unanswered(outcome);
}

/// Whether its frames are still coming or have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_stream_gives_up_answers_without_an_slo() {
    let server = FakeServer::start_without_slo(|_| Answer::Silence).await;
    for frames in ["5", "1000000"] {
        let arguments = ["stream", "scene:size=64x64", "--quiet", "--fps", "50"];
        let all = [
            &arguments[..],
            &["--server", &server.url, "--frames", frames],
        ]
        .concat();
        let stop = CancellationToken::new();
        let interrupt = stop.clone();
        let before = server.seen();
        let interrupts = async {
            server.has_seen(before + 5).await;
            interrupt.cancel();
        };
        let run = run_until(Cli::parse_from(all).stream, stop);
        let (outcome, ()) = ended(async { tokio::join!(run, interrupts) }).await;
        let outcome = outcome.unwrap();
        assert!(outcome.requests >= 5 && outcome.served == 0, "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_server_goes_the_rest_has_failed_with_the_cause() {
    let server = FakeServer::start(|n| {
        if n == 20 {
            Answer::Break
        } else {
            Answer::Completed
        }
    })
    .await;
    let (outcome, lines) = stream_to(&server, "gone", &["--frames", "100"]).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("it fell over"), "{error}");
    assert_each_once(&lines, 1, 100);
    let counts = by_outcome(&lines);
    assert_eq!((counts["completed"], counts["failed"]), (20, 80));
    for line in lines.iter().filter(|l| l["outcome"] == "failed") {
        assert_eq!(line["reason"], "connection_lost");
        assert!(line["detail"].as_str().unwrap().contains("it fell over"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_is_reached_again() {
    let server = FakeServer::start(|n| {
        if n == 20 {
            Answer::Break
        } else {
            Answer::Completed
        }
    })
    .await;
    // The break, and frames after it.
    let is_back = server.has_seen(21 + 30);
    let (outcome, lines) = stream_until(&server, "back", &["--reconnect"], is_back).await;
    let summary = outcome.unwrap();
    assert_each_once(&lines, 1, summary.requests);
    let failed: Vec<u64> = lines
        .iter()
        .filter(|l| l["outcome"] == "failed")
        .map(|l| l["frame"].as_u64().unwrap())
        .collect();
    // What was due while nobody was there, and only that.
    let while_away: Vec<u64> = (20..20 + failed.len() as u64).collect();
    assert_eq!(failed, while_away);
    assert!(!failed.is_empty());
    assert_eq!(summary.served, summary.requests - failed.len() as u64);
    assert!(summary.served >= 20 + 30, "{summary:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_pictures_are_sent_smaller_and_their_boxes_are_where_they_were() {
    let server = FakeServer::start(|_| Answer::Completed).await;
    let (_, plain) = stream_to(&server, "plain", &["--frames", "1"]).await;
    let arguments = ["--frames", "1", "--max-side", "16"];
    let (_, small) = stream_to(&server, "small", &arguments).await;
    let corner = |lines: &[Json]| lines[0]["outputs"]["vehicles"][0]["box"][2].as_f64();
    assert_eq!((corner(&plain), corner(&small)), (Some(60.0), Some(240.0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_run_waits_for_answers_and_reports() {
    let server = FakeServer::start(|_| Answer::Completed).await;
    let stop = CancellationToken::new();
    let arguments = [
        "stream",
        "--quiet",
        "scene:size=64x64",
        "--server",
        &server.url,
    ];
    let running = run_until(Cli::parse_from(arguments).stream, stop.clone());
    let interrupt = async {
        server.has_seen(5).await;
        stop.cancel();
    };
    let (outcome, ()) = ended(async { tokio::join!(running, interrupt) }).await;
    let summary = outcome.unwrap();
    assert!(summary.requests >= 5, "{summary:?}");
    assert_eq!(summary.requests, summary.served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duration_ends_the_run() {
    let server = FakeServer::start(|_| Answer::Completed).await;
    let begun = Instant::now();
    // Its frames have no end of their own. When exactly they end is tested at `watch`, in virtual time.
    let (outcome, lines) = stream_to(
        &server,
        "duration",
        &["--duration", "300ms", "--preload", "2"],
    )
    .await;
    let summary = outcome.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(summary.requests >= 1, "{summary:?}");
    assert_each_once(&lines, 1, summary.requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotated_frames_and_video_are_saved() {
    let server = FakeServer::start(MIXED).await;
    let folder = Folder::new("saved");
    let (frames, video) = (folder.file("frames"), folder.file("out.mp4"));
    let arguments = [
        "scene:size=128x96",
        "--frames",
        "10",
        "--save-frames",
        &frames,
        "--save-video",
        &video,
    ];
    let all: Vec<&str> = arguments
        .into_iter()
        .chain(["--server", &server.url])
        .collect();
    stream(&all).await.unwrap();
    assert_eq!(std::fs::read_dir(&frames).unwrap().count(), 10);

    // The video goes round once more: as a source, without its end.
    let results = folder.file("results.jsonl");
    stream(&[
        &video,
        "--server",
        &server.url,
        "--fps",
        "200",
        "--results",
        &results,
    ])
    .await
    .unwrap();
    assert_each_once(&read_lines(Path::new(&results)), 1, 10);

    // And the frames as a folder, two times over.
    let all = [
        &*frames,
        "--server",
        &server.url,
        "--fps",
        "200",
        "--loop",
        "--frames",
        "20",
    ];
    assert_eq!(stream(&all).await.unwrap().requests, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_begin_says_why_in_one_line() {
    let server = FakeServer::start(|_| Answer::Completed).await;
    let folder = Folder::new("errors");
    let not_a_picture = folder.file("a.jpg");
    std::fs::write(&not_a_picture, b"nor is this a picture").unwrap();
    let empty = Folder::new("errors-empty");
    let url = server.url.as_str();
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let cases: [(&[&str], &str); 8] = [
        (
            &["--server", url, "rtsp:/me:secret@host/a"],
            "no address: those are scheme://host/path",
        ),
        (
            &["--server", &closed],
            "connection refused; is `spillgate serve` running there?",
        ),
        (
            &["--server", url, "--pipeline", "nope"],
            "no pipeline named \"nope\"; there is: fake",
        ),
        (
            &["--server", url, "ftp://me:secret@host/a"],
            "ftp:// is not read; there are http, https, rtsp",
        ),
        (
            &["--server", url, &not_a_picture],
            "a.jpg: the frame's 21 bytes are neither JPEG, PNG nor WebP",
        ),
        (&["--server", url, "/no/such/file.mp4"], "/no/such/file.mp4"),
        (
            &["--server", url, &empty.file("")],
            "has no .jpg, .jpeg, .png or .webp files",
        ),
        (
            &["--server", url, "scene:colour=red"],
            "unknown scene option \"colour\"",
        ),
    ];
    for (arguments, says) in cases {
        let error = format!("{:#}", stream(arguments).await.unwrap_err());
        assert!(error.contains(says), "{error}");
        assert!(
            !error.contains('\n') && !error.contains("secret"),
            "{error}"
        );
    }
}
