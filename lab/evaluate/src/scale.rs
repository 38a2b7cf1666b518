//! `spillgate-lab scale`: what travels between processes and what their decisions cost, by the number of gateways, workers and streams.
//!
//! Each gateway and worker is a process of its own, and one holds all controllers. They know each other by registration. Two modules
//! serve all requests at a load of [`LOAD`]; each stream sends [`FRAMES`] a second.

mod extrapolated;
mod fit;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use nix::time::{ClockId, clock_gettime};
use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::id::{DeviceId, GatewayId, ModuleId};
use spillgate_pipeline::policy::DispatchPolicyName;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_protocol::message::Address;
use spillgate_sim::clients::{ClientLoad, Sends, SimClient};
use spillgate_sim::cluster::{Cluster, Node, Travel};
use spillgate_sim::{Report as Run, Served, SimConfig, Traffic, Travelled};

use super::Print;
use super::report::{self, Report};
use extrapolated::Point;

/// Frames a second of a stream.
const FRAMES: f64 = 10.0;
/// Part of the workers' capacity that is offered.
const LOAD: f64 = 0.6;
/// Requests in a full batch.
const BATCH: u32 = 8;
/// A batch takes so many milliseconds, and one more for each request.
const BASE_MS: u32 = 4;
const SLO: Duration = Duration::from_millis(300);
/// So long processes need until they know each other.
const WARM_UP: Duration = Duration::from_secs(3);

/// A row with more streams counts so many seconds at most.
const MANY: (u32, u32) = (5000, 1);

/// Gateways, workers and streams.
type Row = (u16, u16, u32);
const ROWS: [Row; 9] = [
    (1, 8, 160),
    (2, 16, 320),
    (4, 32, 640),
    (8, 64, 1280),
    (16, 128, 2560),
    (64, 128, 2560),
    (16, 512, 2560),
    (64, 512, 2560),
    (64, 512, 10_000),
];

/// What to run.
#[derive(Args)]
pub struct ScaleArgs {
    /// Seconds of each run that count.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Only the first rows.
    #[arg(long, default_value_t = ROWS.len())]
    rows: usize,
    /// Where the page goes.
    #[arg(long, default_value = "docs/evaluation")]
    out: PathBuf,
}

/// A run, and the time that its events took on one core.
struct Measured {
    run: Run,
    cpu: Duration,
    /// Those that count.
    counted: u32,
    /// All of it, until processes knew each other included.
    seconds: f64,
}

/// The time that this thread was on a core.
fn on_core() -> anyhow::Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("no time of this thread")?;
    Ok(time.into())
}

fn config((gateways, workers, streams): Row, seconds: u32) -> anyhow::Result<SimConfig> {
    let mut pipeline = noop_pipeline(SLO, &[&[0], &[1]], &[]);
    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    // A gateway has more open than its share of what the SLO lets wait.
    pipeline.limits.in_flight = 1 << 16;
    let times: Vec<Duration> = (1..=BATCH)
        .map(|b| Duration::from_millis(u64::from(BASE_MS + b)))
        .collect();
    let of_module = workers / 2;
    let duration = WARM_UP + Duration::from_secs(u64::from(seconds));
    let client = SimClient {
        name: "cameras".to_owned(),
        count: 1,
        sends: Sends::Evenly,
        rate: rate((gateways, workers, streams)),
        streams: u16::try_from(streams)?,
        weight: 1.0,
        class: 0,
        application: String::new(),
        takes: 1.0,
        background: false,
    };
    let (clients, arrivals) = ClientLoad::new(&[client], duration, 1, false);
    let gateway = |i| Node::new(format!("gateway-{i}"), vec![Address::Gateway(GatewayId(i))]);
    let worker = |i| Node::new(format!("worker-{i}"), vec![Address::Device(DeviceId(i))]);
    let controllers = [0, 1, 2].map(|m| Address::Controller(ModuleId(m)));
    let mut nodes: Vec<Node> = (0..gateways).map(gateway).collect();
    nodes.push(Node::new("control".to_owned(), controllers.into()));
    nodes.extend((0..2 * of_module).map(worker));
    let cluster = Cluster {
        nodes,
        travel: Travel {
            delay: Duration::from_micros(300),
            jitter: Duration::from_micros(50),
        },
        registers: true,
        ..Cluster::default()
    };
    Ok(SimConfig {
        warm_up: WARM_UP,
        clients: Some(clients),
        gateways: cluster.shares(),
        cluster: Some(Arc::new(cluster)),
        ..SimConfig::undisturbed(
            Served {
                planned: Arc::new(Planned {
                    batch: vec![BATCH; 3],
                    execution: vec![vec![], times.clone(), times].into(),
                    workers: vec![0, u32::from(of_module), u32::from(of_module)],
                    alone: true,
                }),
                workers: vec![
                    vec![],
                    (0..of_module).collect(),
                    (of_module..2 * of_module).collect(),
                ],
                pipeline: Arc::new(pipeline),
                arrivals: arrivals.into(),
                duration,
            },
            1,
        )
    })
}

/// Requests a second that the streams send: no more than a part of what the workers can serve.
fn rate((_, workers, streams): Row) -> f64 {
    let batch = f64::from(BASE_MS + BATCH) * 1e-3;
    let capacity = f64::from(workers / 2) * f64::from(BATCH) / batch;
    (FRAMES * f64::from(streams)).min(LOAD * capacity)
}

/// Runs all rows, one after the other, and writes the page.
pub(super) fn run_all(args: &ScaleArgs, print: Print) -> anyhow::Result<()> {
    report::prepare(&args.out, "scale")?;
    let mut page = Report::titled(
        "scale",
        "What grows with the number of processes",
        &format!(
            "spillgate-lab scale --seconds {} --rows {}",
            args.seconds, args.rows
        ),
        "gateways,workers,streams,rate,route,messages_s,bytes_s\n",
    );
    page.say(&format!(
        "SIMULATED. Each gateway and each worker is a process, one process holds all controllers, and processes know each other by registration. Two \
         modules with half of the workers each, dispatch `pull`, batches of {BATCH} in {} ms, one delay of 0.3 ms between processes. A stream sends \
         {FRAMES} frames a second, but all together no more than {LOAD} of what the workers can serve. Messages and bytes are those between processes, \
         without the payloads of requests. CPU is the time that one core takes for all decisions, sessions and messages of all processes, the \
         simulator's own work included: an upper bound of what policies take, without sockets. *Seconds* are those whose requests count, after {} s \
         with the same load in which processes come to know each other. Messages, bytes and CPU are those of the whole run.",
        BASE_MS + BATCH,
        WARM_UP.as_secs()
    ));
    let mut rows = Vec::new();
    let mut parts = Vec::new();
    let mut points = Vec::new();
    for &row in ROWS.iter().take(args.rows) {
        eprintln!("scale: {row:?}");
        let counted = match row.2 > MANY.0 {
            true => args.seconds.min(MANY.1),
            false => args.seconds,
        };
        let config = config(row, counted)?;
        let seconds = config.duration.as_secs_f64();
        let began = on_core()?;
        let run = spillgate_sim::run(config)?;
        let measured = Measured {
            run,
            cpu: on_core()?.saturating_sub(began),
            counted,
            seconds,
        };
        points.push(point(row, &measured));
        rows.push(summary(row, &measured));
        parts.push(by_route(row, &measured, &mut page));
    }
    page.table(
        &[
            "gateways",
            "workers",
            "streams",
            "seconds",
            "requests/s",
            "lost",
            "messages a request",
            "bytes a request",
            "bytes of lists",
            "CPU a request, µs",
        ],
        &rows,
    );
    page.say("Messages a second, by who says them to whom; in brackets kB/s.");
    page.table(
        &[
            "gateways", "workers", "g to w", "w to g", "g to c", "c to g", "w to c", "c to w",
            "c to c", "lists",
        ],
        &parts,
    );
    extrapolated::write(&points, &mut page);
    page.write(&args.out, print)
}

/// Messages and bytes of all routes.
fn all_routes(traffic: &Traffic) -> (u64, u64) {
    let all = routes(traffic).into_iter();
    all.fold((0, 0), |(messages, bytes), (_, t)| {
        (messages + t.messages, bytes + t.bytes)
    })
}

fn point(row: Row, of: &Measured) -> Point {
    let traffic = of.run.cluster.map(|c| c.traffic).unwrap_or_default();
    let (messages, bytes) = all_routes(&traffic);
    Point {
        row,
        messages: messages as f64 / of.seconds,
        bytes: bytes as f64 / of.seconds,
        asks: traffic.worker_to_gateway.messages as f64 / of.seconds,
        cpu: of.cpu.as_secs_f64() / of.seconds,
    }
}

fn summary((gateways, workers, streams): Row, of: &Measured) -> Vec<String> {
    let all = of.run.requests as f64 * of.seconds / (of.seconds - WARM_UP.as_secs_f64());
    let traffic = of.run.cluster.map(|c| c.traffic).unwrap_or_default();
    let total = all_routes(&traffic);
    vec![
        gateways.to_string(),
        workers.to_string(),
        streams.to_string(),
        of.counted.to_string(),
        format!("{:.0}", rate((gateways, workers, streams))),
        format!("{:.2}%", 100.0 * of.run.drop_rate),
        format!("{:.2}", total.0 as f64 / all),
        format!("{:.0}", total.1 as f64 / all),
        format!("{}", traffic.lists.bytes),
        format!("{:.1}", of.cpu.as_secs_f64() * 1e6 / all),
    ]
}

fn by_route(row: Row, of: &Measured, page: &mut Report) -> Vec<String> {
    let (gateways, workers, streams) = row;
    let traffic = of.run.cluster.map(|c| c.traffic).unwrap_or_default();
    let mut cells = vec![gateways.to_string(), workers.to_string()];
    for (name, travelled) in routes(&traffic) {
        let messages = travelled.messages as f64 / of.seconds;
        let bytes = travelled.bytes as f64 / of.seconds;
        cells.push(format!("{messages:.0} ({:.0})", bytes / 1e3));
        let figures = [messages, bytes].map(|figure| format!("{figure:.1}"));
        let rate = format!("{:.0}", rate(row));
        page.line(&[
            &gateways,
            &workers,
            &streams,
            &rate,
            &name,
            &figures[0],
            &figures[1],
        ]);
    }
    cells
}

fn routes(traffic: &Traffic) -> [(&'static str, Travelled); 8] {
    let &Traffic {
        gateway_to_worker,
        worker_to_gateway,
        gateway_to_controller,
        controller_to_gateway,
        worker_to_controller,
        controller_to_worker,
        controller_to_controller,
        lists,
    } = traffic;
    [
        ("gateway to worker", gateway_to_worker),
        ("worker to gateway", worker_to_gateway),
        ("gateway to controller", gateway_to_controller),
        ("controller to gateway", controller_to_gateway),
        ("worker to controller", worker_to_controller),
        ("controller to worker", controller_to_worker),
        ("controller to controller", controller_to_controller),
        ("lists", lists),
    ]
}
