//! `spillgate bench` against a small server.

use std::path::Path;
use std::time::Duration;

use crate::fake::server::{Answer, Behaviour, FakeServer};
use clap::Parser;
use serde_json::Value as Json;
use spillgate_client::bench::{BenchArgs, run_until};
use tokio_util::sync::CancellationToken;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Runs with small payloads; the numbers.
async fn bench(name: &str, behaviour: Behaviour, arguments: &[&str]) -> Json {
    let server = FakeServer::start(behaviour).await;
    let file = format!("spillgate-bench-{}-{name}.json", std::process::id());
    let path = std::env::temp_dir().join(file);
    let json = path.to_string_lossy().into_owned();
    let fixed = ["bench", "--quiet", "--json", &json, "--server", &server.url];
    let small: &[&str] = match arguments.contains(&"--texts") {
        true => &[],
        false => &["--payload-bytes", "64"],
    };
    let cli = Cli::parse_from(fixed.iter().chain(small).chain(arguments));
    run_until(cli.bench, CancellationToken::new())
        .await
        .unwrap();
    read(&path)
}

fn read(path: &Path) -> Json {
    let json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    json
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_unary_call_is_counted_by_what_became_of_it() {
    let behaviour = |n| match n % 4 {
        0 => Answer::Dropped,
        1 => Answer::Late,
        2 => Answer::Break,
        _ => Answer::Completed,
    };
    let json = bench(
        "unary",
        behaviour,
        &["--rate", "400", "--duration", "1s", "--connections", "2"],
    )
    .await;
    assert_eq!(json["requests"], 400);
    for outcome in ["completed", "late", "dropped", "failed"] {
        assert_eq!(json["outcomes"][outcome], 100, "{outcome}");
    }
    let causes = json["causes"].as_array().unwrap();
    let dropped = causes.iter().find(|c| c["outcome"] == "dropped").unwrap();
    assert_eq!(
        (&dropped["module"], &dropped["reason"]),
        (&"detect".into(), &"estimate".into())
    );
    assert_eq!(json["latency_ms"]["count"], 200);
    assert_eq!(json["series"][0]["due"], 400);
    // Of the device time that results tell of, half was for late requests and a third for drops.
    assert!((json["invalid_rate"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_carry_the_same_load() {
    let behaviour = |n| {
        if n % 2 == 0 {
            Answer::Refused
        } else {
            Answer::Twice
        }
    };
    let arguments = [
        "--stream",
        "--rate",
        "400",
        "--duration",
        "500ms",
        "--connections",
        "2",
        "--poisson",
    ];
    let json = bench("stream", behaviour, &arguments).await;
    let n = json["requests"].as_u64().unwrap();
    assert!((150..250).contains(&n), "{n}");
    assert_eq!(json["outcomes"]["completed"].as_u64().unwrap(), n / 2);
    assert_eq!(json["outcomes"]["failed"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impatient_client_gives_up_and_the_load_goes_on() {
    for stream in [false, true] {
        let behaviour = |n| {
            if n < 10 {
                Answer::Silence
            } else {
                Answer::Completed
            }
        };
        let mut arguments = vec![
            "--rate",
            "100",
            "--duration",
            "500ms",
            "--timeout-ms",
            "400",
        ];
        arguments.extend(stream.then_some("--stream"));
        let json = bench(&format!("impatient-{stream}"), behaviour, &arguments).await;
        assert_eq!(
            (&json["requests"], &json["outcomes"]["completed"]),
            (&50.into(), &40.into())
        );
        assert_eq!(json["causes"][0]["reason"], "gave_up");
        assert_eq!(json["causes"][0]["requests"], 10);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_loop_keeps_its_number_in_flight() {
    for stream in [false, true] {
        let mut arguments = vec!["--concurrency", "4", "--duration", "300ms"];
        arguments.extend(stream.then_some("--stream"));
        let json = bench(
            &format!("closed-{stream}"),
            |_| Answer::Completed,
            &arguments,
        )
        .await;
        let n = json["requests"].as_u64().unwrap();
        assert!(n > 40, "{n}");
        assert_eq!(json["outcomes"]["completed"], n);
    }
}

/// Each request carries the payload whose turn it is: the server refuses one of the two applications.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_take_turns_and_applications_are_told_apart() {
    let file = std::env::temp_dir().join(format!("spillgate-texts-{}", std::process::id()));
    std::fs::write(&file, "1\n2\n").unwrap();
    let text = file.to_str().unwrap();
    for stream in [false, true] {
        let mut arguments = vec!["--rate", "400", "--duration", "500ms"];
        arguments.extend(["--texts", text, "--texts", text]);
        arguments.extend(["--application", "wanted", "--application", "unwanted"]);
        arguments.extend(stream.then_some("--stream"));
        let name = format!("turns-{stream}");
        let json = bench(&name, |_| Answer::Completed, &arguments).await;
        assert_eq!(json["outcomes"]["completed"], 100);
        assert_eq!(json["outcomes"]["refused"], 100);
        let by = |idx: usize| json["applications"][idx]["completed"].clone();
        assert_eq!((by(0), by(1)), (100.into(), 0.into()));
    }
    std::fs::remove_file(&file).unwrap();
}

/// The numbers are written all the same.
// Over five seconds: two runs of 3 s, each of which waits for answers for a while after its last request.
#[test]
fn a_server_that_goes_away_is_an_error() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let ours = runtime();
    for stream in [false, true] {
        let theirs = runtime();
        let server = theirs.block_on(FakeServer::start(|_| Answer::Completed));
        let path = std::env::temp_dir().join(format!("spillgate-gone-{}.json", std::process::id()));
        let file = path.to_string_lossy();
        let load = ["--payload-bytes", "64", "--rate", "100", "--duration", "3s"];
        let to = ["bench", "--quiet", "--json", &file, "--server", &server.url];
        let mode = stream.then_some(&"--stream");
        let cli = Cli::parse_from(to.iter().chain(&load).chain(mode));
        let run = ours.spawn(run_until(cli.bench, CancellationToken::new()));
        theirs.block_on(async {
            tokio::time::timeout(PATIENCE, server.has_seen(50))
                .await
                .expect("requests come");
        });
        // With its listener and its connections.
        theirs.shutdown_background();
        let error = ours.block_on(run).unwrap().unwrap_err().to_string();
        assert!(
            error.starts_with("the server has not answered since second "),
            "{error}"
        );
        let json = read(&path);
        assert_eq!(json["requests"], 300);
        let completed = json["outcomes"]["completed"].as_u64().unwrap();
        assert!((1..200).contains(&completed), "{completed}");
    }
}
