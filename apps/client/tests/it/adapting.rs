//! `spillgate stream` whose frames adapt to what the server asks for and the link bears.

use std::path::PathBuf;
use std::time::Duration;

use crate::fake::adaptive::{AdaptiveServer, Part, Seen};
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

/// A file that goes away with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("spillgate-adapting-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    fn path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Streams a street of 640 x 360; what was returned, and the results.
async fn stream(
    server: &AdaptiveServer,
    arguments: &[&str],
) -> (anyhow::Result<ExitSummary>, Vec<Json>) {
    stream_until(server, arguments, |_| false).await
}

/// The same, interrupted once the server has seen enough.
async fn stream_until(
    server: &AdaptiveServer,
    arguments: &[&str],
    has_seen_enough: impl Fn(&AdaptiveServer) -> bool,
) -> (anyhow::Result<ExitSummary>, Vec<Json>) {
    let results = File::new(&format!("{}.jsonl", server.url.replace([':', '/'], "")), "");
    let path = results.path();
    let all = [
        "stream",
        "--quiet",
        "scene:size=640x360",
        "--server",
        &server.url,
        "--results",
        &path,
    ];
    let all = all.iter().chain(arguments);
    let stop = CancellationToken::new();
    let run = run_until(Cli::parse_from(all).stream, stop.clone());
    let interrupts = async {
        while !has_seen_enough(server) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
        std::future::pending::<()>().await
    };
    let ended = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            ended = run => ended,
            () = interrupts => unreachable!("it waits for ever"),
        }
    });
    let ended = ended.await.expect("it ends");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (ended, lines.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_have_the_size_that_is_asked_for_and_say_from_which_they_were_made() {
    let server = AdaptiveServer::start(Part::Asks(10, 320)).await;
    let (ended, lines) = stream(&server, &["--frames", "40", "--fps", "50"]).await;
    assert_eq!(ended.unwrap().served, 40);
    let seen = server.seen();
    assert_eq!((seen[5].size, seen[5].source), ((640, 360), (0, 0)));
    let small: Vec<&Seen> = seen.iter().filter(|s| s.size == (320, 180)).collect();
    assert!(small.len() >= 24, "all but those that were made already");
    for frame in small {
        assert_eq!(frame.source, (640, 360));
        let left = frame.timeout_ms;
        assert!(0.0 < left && left < 1000.0, "the resize counts: {left}");
    }
    let last = &lines[39];
    assert_eq!(last["side"], 320);
    assert!(last["bandwidth_mbps"].as_f64() > Some(0.0), "{last}");
    // The server scales boxes, so the client leaves them.
    assert_eq!(last["outputs"]["vehicles"][0]["box"][2], 60.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_narrow_link_frames_become_smaller_and_say_when_they_were_sent() {
    let trace = File::new("narrow.csv", "second,mbps\n0,4\n");
    let path = trace.path();
    let server = AdaptiveServer::start(Part::Asks(u64::MAX, 0)).await;
    let link = ["--link", &path, "--link-rtt", "40ms", "--fps", "20"];
    // How large they are, and how soon, is exact where the policy is tested (`pipeline/src/camera`).
    let are_small = |server: &AdaptiveServer| {
        let seen = server.seen();
        let newest = seen.iter().rev().take(20);
        let n_small = newest.take_while(|frame| frame.size.0 < 640).count();
        n_small == 20 && server.reports().len() >= 4
    };
    let (ended, lines) = stream_until(&server, &link, are_small).await;
    ended.unwrap();
    let (seen, reports) = (server.seen(), server.reports());
    let newest = reports.last().unwrap();
    assert!(newest.bandwidth > 0.0, "{newest:?}");
    assert!(newest.round_trip_ms >= 39.0, "{newest:?}");
    let frames = &seen[seen.len() - 20..];
    for frame in frames {
        let on_the_way = frame.came_at_ns.saturating_sub(frame.sent_at_ns) as f64 / 1e6;
        // 20 ms of way, and its bytes at 4 Mbit/s.
        let least = 15.0 + frame.bytes as f64 * 8.0 / 4e6 * 1e3;
        assert!(on_the_way >= least, "{on_the_way} ms of {least}: {frame:?}");
    }
    let bits: f64 = frames.iter().map(|s| s.bytes as f64 * 8.0).sum();
    let seconds = frames.len() as f64 / 20.0;
    assert!(bits / seconds < 4e6, "{} bit/s", bits / seconds);
    let sides: Vec<u64> = lines.iter().filter_map(|l| l["side"].as_u64()).collect();
    assert!(sides.last() < Some(&640), "{sides:?}");
}

// Over five seconds: a stream of 5 s, in which the link stands still for 2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_stands_still_delays_frames_and_then_goes_on() {
    let trace = File::new("stall.csv", "second,mbps\n0,50\n1,0\n3,50\n30,50\n");
    let path = trace.path();
    let server = AdaptiveServer::start(Part::Asks(u64::MAX, 0)).await;
    let plot = File::new("stall.svg", "");
    let link = ["--link", &path, "--fps", "20", "--duration", "5s"];
    let picture = ["--plot", &plot.path()];
    let (ended, lines) = stream(&server, &[&link[..], &picture].concat()).await;
    let summary = ended.unwrap();
    let backlog = lines.iter().filter(|l| l["reason"] == "backlog").count();
    // After a second, the SLO, nothing is sent until the link goes on: 20 frames of a client that is on time.
    assert!((1..40).contains(&backlog), "{backlog} of {summary:?}");
    assert_eq!(lines.len() as u64, summary.served + backlog as u64);
    let last = lines.last().unwrap();
    assert_eq!(last["outcome"], "completed");
    // The picture has the link, and a cross for each frame that was not in time and for the legend.
    let picture = std::fs::read_to_string(plot.path()).unwrap();
    assert!(picture.contains(">link<") && picture.ends_with("</svg>\n"));
    let is_late = |l: &&Json| l["latency_ms"].as_f64() > Some(1000.0);
    let is_missed = |l: &&Json| l["outcome"] != "completed" || is_late(l);
    let missed = lines.iter().filter(is_missed).count();
    assert_eq!(picture.matches("l7,7m0,-7l-7,7").count(), missed + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_take_no_part_send_frames_as_they_are() {
    let server = AdaptiveServer::start(Part::Asks(0, 64)).await;
    let (ended, _) = stream(&server, &["--frames", "20", "--fps", "50", "--no-adapt"]).await;
    assert_eq!(ended.unwrap().served, 20);
    for frame in server.seen() {
        assert_eq!((frame.size, frame.source), ((640, 360), (0, 0)));
        assert_eq!((frame.sent_at_ns, frame.timeout_ms), (0, 0.0));
    }
    assert!(server.reports().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preloaded_frames_have_the_size_that_is_asked_for() {
    let server = AdaptiveServer::start(Part::Asks(10, 320)).await;
    let arguments = ["--frames", "60", "--fps", "100", "--preload", "3"];
    let (ended, _) = stream(&server, &arguments).await;
    assert_eq!(ended.unwrap().served, 60);
    let last = *server.seen().last().unwrap();
    assert_eq!((last.size, last.source), ((320, 180), (640, 360)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_every_frame_ends_once() {
    for part in [Part::Silent, Part::Nonsense] {
        let server = AdaptiveServer::start(part).await;
        let (ended, lines) = stream(&server, &["--frames", "100", "--fps", "100"]).await;
        let summary = ended.unwrap();
        assert_eq!((summary.served, lines.len()), (100, 100), "{part:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_trace_is_told_before_the_start() {
    let trace = File::new("wrong.csv", "second,mbps\n0,fast\n");
    let path = trace.path();
    let arguments = ["stream", "--quiet", "scene:", "--link", &path];
    let ended = run_until(Cli::parse_from(arguments).stream, CancellationToken::new()).await;
    let error = format!("{:#}", ended.unwrap_err());
    let says = format!("{path}:2: mbps is \"fast\"; it must be a number from 0 to 100000");
    assert_eq!(error, says);
    let arguments = ["stream", "scene:", "--link", "a.csv", "--link-rtt", "1m"];
    let error = Cli::try_parse_from(arguments).err().unwrap().to_string();
    assert!(error.contains("a round trip is at most 5s"), "{error}");
}
