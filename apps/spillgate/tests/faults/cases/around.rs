//! What surrounds the processes: logs, traces, clients.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::stream_request::Message as Ask;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::findings::Findings;
use crate::pipelines::WORKER_RATE;
use crate::set::{END_LIMIT, Log, Plan};
use crate::trial::{Served, Trial};

/// Requests of a gateway that may be late for the load of the machine: logs at the finest level take time.
const BAD_MAX: usize = 3;
/// How long requests are served so.
const SPAN: Duration = Duration::from_secs(6);
/// A pipe of 64 KiB that nobody reads has at least so many bytes when a line finds no room.
const PIPE: usize = 56 << 10;
/// Frames whose answers nobody reads are taken for so long at most: their answers fill what holds them before that.
const STILL_WITHIN: Duration = Duration::from_secs(30);
/// A client's part at a gateway follows what it asked for in the last two reports (docs/fairness.md).
const PARTS_AGE: Duration = Duration::from_secs(3);
/// Streams whose answers nobody reads.
const UNREAD_STREAMS: usize = 4;
/// Bytes of each of their frames, and of its answer: a few fill what HTTP/2 takes without being read.
const UNREAD_BYTES: usize = 16 << 10;

/// A rate that the workers serve easily.
fn rate(plan: &Plan) -> f64 {
    0.5 * WORKER_RATE * plan.workers as f64 / plan.gateways as f64
}

/// Something that blocks would take longer than this SLO; a busy machine does not.
fn patient() -> Plan {
    Plan {
        slo: "2s",
        ..Plan::default()
    }
}

/// Serves for a while under the plan. Nearly all requests are to be served, and all processes to end.
fn serves(runtime: &Handle, plan: &Plan) -> anyhow::Result<Served> {
    let trial = Trial::start(runtime, plan, rate(plan), Duration::from_secs(2))?;
    std::thread::sleep(SPAN);
    let mut served = trial.finish();
    for sheet in served.sheets.clone() {
        let all = sheet.all();
        served
            .findings
            .holds(all.bad() <= BAD_MAX, || format!("not served: {all:?}"));
    }
    Ok(served)
}

/// Every line of every log fails for lack of space.
pub(super) fn full_log(runtime: &Handle) -> anyhow::Result<Findings> {
    let plan = Plan {
        log: Log::Into("/dev/full".into()),
        environment: vec![("RUST_LOG".to_owned(), "debug".to_owned())],
        ..patient()
    };
    Ok(serves(runtime, &plan)?.findings)
}

/// Standard error of every process is a pipe that nobody reads, and that is full.
pub(super) fn unread_log(runtime: &Handle) -> anyhow::Result<Findings> {
    let plan = Plan {
        log: Log::Unread,
        environment: vec![("RUST_LOG".to_owned(), "trace".to_owned())],
        ..patient()
    };
    let mut served = serves(runtime, &plan)?;
    for (name, mut pipe) in std::mem::take(&mut served.unread) {
        let mut held = Vec::new();
        pipe.read_to_end(&mut held)?;
        served.findings.holds(held.len() >= PIPE, || {
            format!("the pipe of {name} was not full: {} bytes", held.len())
        });
    }
    Ok(served.findings)
}

/// The collector of traces takes connections, and says nothing.
pub(super) fn hanging_traces(runtime: &Handle) -> anyhow::Result<Findings> {
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    let n_accepted = Arc::new(AtomicUsize::new(0));
    let accepts = runtime.spawn({
        let n_accepted = n_accepted.clone();
        async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
                n_accepted.store(held.len(), Ordering::Relaxed);
            }
        }
    });
    let plan = Plan {
        flags: vec![format!("--otlp=http://{address}")],
        ..patient()
    };
    let mut served = serves(runtime, &plan)?;
    accepts.abort();
    let (n, least) = (n_accepted.load(Ordering::Relaxed), plan.gateways);
    served
        .findings
        .holds(n >= least, || format!("the collector had {n} connections"));
    let longest = served.stopped_within.as_secs_f64();
    served
        .findings
        .at_most("end", longest, END_LIMIT.as_secs_f64(), " s");
    Ok(served.findings)
}

/// Streams at one gateway send frames and read no answer.
pub(super) fn unread_answers(runtime: &Handle) -> anyhow::Result<Findings> {
    let plan = Plan::default();
    let trial = Trial::start(runtime, &plan, rate(&plan) / 2.0, Duration::from_secs(3))?;
    let n_taken = Arc::new(Mutex::new(0));
    let streams: Vec<_> = (0..UNREAD_STREAMS)
        .map(|_| runtime.spawn(unread_stream(trial.set.gateways[0], n_taken.clone())))
        .collect();
    // How long the flood lasts is a matter of the machine: what is judged is what comes after it.
    let still = stands_still(&n_taken);
    std::thread::sleep(PARTS_AGE);
    let from = Instant::now();
    std::thread::sleep(SPAN);
    let mut served = trial.finish();
    let later = *n_taken.lock().unwrap();
    streams.iter().for_each(|stream| stream.abort());
    let findings = &mut served.findings;
    findings.holds(still == Some(later), || {
        format!("the gateway still reads their frames: {still:?}, then {later}")
    });
    for (gateway, sheet) in served.sheets.iter().enumerate() {
        let name = [
            "not completed beside them",
            "not completed at the other gateway",
        ][gateway.min(1)];
        let beside = sheet.between(from, from + SPAN);
        findings.at_most(name, 100.0 - beside.goodput(), 12.0, "%");
    }
    Ok(served.findings)
}

/// Waits until a number stands still for a second; `None` where it does not.
fn stands_still(number: &Mutex<usize>) -> Option<usize> {
    let mut last = *number.lock().unwrap();
    for _ in 0..STILL_WITHIN.as_secs() {
        std::thread::sleep(Duration::from_secs(1));
        let now = *number.lock().unwrap();
        if now == last && now > 0 {
            return Some(now);
        }
        last = now;
    }
    None
}

/// Sends frames as fast as they are taken, and reads only that the stream is open.
async fn unread_stream(gateway: SocketAddr, n_taken: Arc<Mutex<usize>>) {
    let Ok(mut client) = SpillgateClient::connect(format!("http://{gateway}")).await else {
        return;
    };
    let (frames, sent) = mpsc::channel(1);
    let open = Ask::Open(pb::StreamOpen::default());
    let _ = frames.try_send(pb::StreamRequest {
        message: Some(open),
    });
    let Ok(answers) = client.stream(ReceiverStream::new(sent)).await else {
        return;
    };
    let mut answers = answers.into_inner();
    let _ = answers.next().await;
    let data = bytes::Bytes::from(vec![7; UNREAD_BYTES]);
    for number in 0.. {
        let frame = pb::Frame {
            number,
            data: data.clone(),
            ..Default::default()
        };
        let message = Some(Ask::Frame(frame));
        if frames.send(pb::StreamRequest { message }).await.is_err() {
            return;
        }
        *n_taken.lock().unwrap() += 1;
    }
}
