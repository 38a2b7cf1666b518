//! A status for people.

use std::fmt::Write;
use std::time::Duration;

use super::{
    AdaptationStatus, DeviceStatus, ModuleStatus, PeerStatus, PipelineStatus, RevisionStatus,
    Status, ValuesStatus,
};

/// A device with so many pages was given no bound.
const PAGES_UNBOUNDED: u32 = u32::MAX / 4;
/// Most streams that are shown.
const STREAMS_SHOWN: usize = 32;
/// Columns are this far apart.
const GAP: &str = "  ";

/// The status in lines.
pub(super) fn text(status: &Status) -> String {
    let mut text = String::new();
    let name = match status.process.as_str() {
        "" => "serve".to_owned(),
        name => format!("process {name}"),
    };
    let ready = match &status.not_ready {
        None => "ready".to_owned(),
        Some(why) => format!("NOT READY: {why}"),
    };
    let up = span(status.up_s);
    line(
        &mut text,
        &format!("{name}, spillgate {}, up {up}, {ready}", status.version),
    );
    for pipeline in &status.pipelines {
        text.push('\n');
        self::pipeline(&mut text, pipeline);
    }
    if !status.devices.is_empty() {
        let mut rows = vec![row(["device", "waiting", "state"])];
        for device in &status.devices {
            let state = if device.is_alive { "runs" } else { "DEAD" };
            rows.push(row([&device.name, &device.waiting.to_string(), state]));
        }
        text.push('\n');
        table(&mut text, &rows);
        placed(&mut text, &status.devices);
        errors(&mut text, &status.devices);
    }
    if !status.peers.is_empty() {
        text.push('\n');
        line(&mut text, &values(&status.values));
        peers(&mut text, &status.peers);
    }
    for complaint in &status.complaints {
        line(&mut text, &format!("{}: {}", complaint.peer, complaint.why));
    }
    text
}

/// What devices hold whose memory holds some of the models, and what those and devices of families did.
fn placed(text: &mut String, devices: &[DeviceStatus]) {
    let head = [
        "device",
        "pages",
        "of",
        "workspace",
        "batches",
        "cold requests",
        "loads",
        "failed",
        "unloads",
        "refused",
    ];
    let mut rows = vec![row(head)];
    for device in devices {
        if let Some(of) = &device.weights {
            let limit = match of.pages_limit {
                None => "-".to_owned(),
                Some(limit) if limit >= PAGES_UNBOUNDED => "any".to_owned(),
                Some(limit) => limit.to_string(),
            };
            let pages = of.pages.map_or_else(|| "-".to_owned(), |n| n.to_string());
            rows.push(row([
                &device.name,
                &pages,
                &limit,
                &of.workspace.map_or_else(|| "-".to_owned(), mib),
                &of.batches.to_string(),
                &of.cold.to_string(),
                &of.loads.to_string(),
                &of.failed_loads.to_string(),
                &of.unloads.to_string(),
                &of.refused.total().to_string(),
            ]));
        }
    }
    if rows.len() > 1 {
        table(text, &rows);
    }
}

/// Bytes as they are given with `memory=`.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// Which variant serves each stream, and why nothing better.
fn streams(text: &mut String, of: &AdaptationStatus) {
    let (by, module, part) = (&of.by, &of.module, of.part * 100.0);
    line(
        text,
        &format!(
            "{by} chooses the variant of {module} for each stream, within {part:.0}% of the device time"
        ),
    );
    let head = [
        "stream",
        "requests/s",
        "variant",
        "asked",
        "not the next better one",
    ];
    let mut rows = vec![row(head)];
    for stream in of.streams.iter().take(STREAMS_SHOWN) {
        let variant = match &stream.better {
            None => stream.variant.clone(),
            Some((better, part)) => {
                format!("{}, {:.0}% {better}", stream.variant, part * 100.0)
            }
        };
        let asked = match stream.asked_side {
            None => "-".to_owned(),
            Some(0) => "as it is".to_owned(),
            Some(side) => format!("{side} px"),
        };
        let why = match (&stream.obstacle, &stream.why) {
            (Some(obstacle), Some(why)) => format!("{obstacle}: {why}"),
            _ => "-".to_owned(),
        };
        let rate = format!("{:.1}", stream.rate);
        rows.push(row([&stream.stream, &rate, &variant, &asked, &why]));
    }
    if rows.len() > 1 {
        table(text, &rows);
    }
    if of.streams.len() > STREAMS_SHOWN {
        let more = of.streams.len() - STREAMS_SHOWN;
        line(text, &format!("and {more} more; --json has all"));
    }
}

/// By how much predictions were wrong.
fn errors(text: &mut String, devices: &[DeviceStatus]) {
    let mut rows = vec![row(["device", "error of", "p1", "p50", "p99"])];
    for device in devices {
        for error in &device.errors {
            let ms = |ms: f64| format!("{ms:+.3}ms");
            let of = format!("{} {}", error.action, error.of);
            let [p1, p50, p99] = [ms(error.p1_ms), ms(error.p50_ms), ms(error.p99_ms)];
            rows.push(row([&device.name, &of, &p1, &p50, &p99]));
        }
    }
    if rows.len() > 1 {
        table(text, &rows);
    }
}

fn values(of: &ValuesStatus) -> String {
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    format!(
        "{} of {} are held; {} are kept for {} requests of others, others keep values of {} requests",
        mb(of.held),
        mb(of.limit),
        mb(of.kept),
        of.kept_requests,
        of.known_requests
    )
}

fn pipeline(text: &mut String, of: &PipelineStatus) {
    let PipelineStatus {
        name,
        slo_ms,
        drop,
        dispatch,
        ..
    } = of;
    line(
        text,
        &format!("pipeline {name}: slo {slo_ms}ms, drop {drop}, dispatch {dispatch}"),
    );
    if let Some(in_flight) = of.in_flight {
        let gate = match of.gate {
            None => "the entry gate is open".to_owned(),
            Some(rate) => format!("the entry gate lets {rate:.1} requests/s pass"),
        };
        line(text, &format!("{in_flight} requests in flight; {gate}"));
    }
    if let Some(next) = &of.next {
        let dropped = match next.dropped {
            0.0 => "none need be dropped".to_owned(),
            part => format!("at least {:.0}% will be dropped", 100.0 * part),
        };
        let load = match next.load {
            Some(load) => format!("load {load:.2}"),
            None => "no workers now".to_owned(),
        };
        line(
            text,
            &format!(
                "next seconds: {:.1} requests/s of {:.1} that {} can serve ({load}); {dropped}",
                next.offered, next.capacity, next.bottleneck
            ),
        );
    }
    revisions(text, &of.revisions);
    let head = [
        "module",
        "offered/s",
        "ran/s",
        "capacity/s",
        "batch",
        "pace",
        "queueing",
        "left for later",
        "first",
        "waiting",
    ];
    let mut rows = vec![row(head)];
    rows.extend(of.modules.iter().map(module));
    table(text, &rows);
    scaling(text, &of.modules);
    let mut rows = vec![row([
        "worker", "module", "process", "device", "has", "state",
    ])];
    for module in &of.modules {
        for worker in &module.workers {
            rows.push(row([
                &worker.worker.to_string(),
                &module.name,
                or_dash(&worker.process),
                &worker.device,
                &worker.has.to_string(),
                &words(&worker.state),
            ]));
        }
    }
    if rows.len() > 1 {
        table(text, &rows);
    }
    if let Some(adaptation) = &of.adaptation {
        streams(text, adaptation);
    }
    if !of.named.is_empty() {
        let mut rows = vec![row(["stream", "requests", "in time", "refused"])];
        rows.extend(of.named.iter().map(|stream| {
            row([
                &stream.name,
                &stream.requests.to_string(),
                &stream.good.to_string(),
                &stream.refused.to_string(),
            ])
        }));
        table(text, &rows);
    }
}

/// How many workers modules want, where that follows the load.
fn scaling(text: &mut String, modules: &[ModuleStatus]) {
    let mut rows = vec![row(["workers of", "wanted", "for", "serving", "why"])];
    for module in modules {
        if let Some(of) = module.scaling.as_ref().filter(|of| !of.is_fixed) {
            rows.push(row([
                &module.name,
                &of.wanted.to_string(),
                &span(of.wanted_s),
                &of.serving.to_string(),
                &of.reason,
            ]));
        }
    }
    if rows.len() > 1 {
        table(text, &rows);
    }
}

/// The revisions; of a single one that serves, a line is enough.
fn revisions(text: &mut String, all: &[RevisionStatus]) {
    if let [only] = all {
        return line(text, &format!("revision {}", only.revision));
    }
    let mut rows = vec![row(["revision", "streams", "state", "for", "why"])];
    rows.extend(all.iter().map(|of| {
        row([
            &of.revision,
            &format!("{}%", of.share * 100.0),
            &of.state.replace('_', " "),
            &of.for_s.map_or_else(|| "-".to_owned(), span),
            of.why.as_deref().unwrap_or("-"),
        ])
    }));
    if rows.len() > 1 {
        table(text, &rows);
    }
}

fn module(of: &ModuleStatus) -> Vec<String> {
    let mut cells = vec![of.name.clone()];
    match &of.planner {
        Some(planner) => cells.extend([
            format!("{:.1}", planner.offered),
            format!("{:.1}", planner.executed),
            planner
                .capacity
                .map_or_else(|| "-".to_owned(), |c| format!("{c:.1}")),
            format!("{:.1}", planner.batch_size),
            format!("{:.2}", planner.pace),
            format!("{:.1}ms", planner.queueing_ms),
        ]),
        None => cells.extend(["-"; 6].map(str::to_owned)),
    }
    cells.extend([
        format!("{:.1}ms", of.downstream_ms),
        format!("{} budget", of.order),
        of.waiting.to_string(),
    ]);
    cells
}

fn peers(text: &mut String, peers: &[PeerStatus]) {
    let mut rows = vec![row(["peer", "state", "since", "clock", "waiting", "roles"])];
    for peer in peers {
        let (since, clock, waiting) = match peer.state.as_str() {
            "away" => ["-"; 3].map(str::to_owned).into(),
            _ => (
                span(peer.met_s),
                format!("{:+.2}ms ±{:.2}", peer.clock_ms, peer.clock_error_ms),
                format!("{} kB", peer.waiting / 1000),
            ),
        };
        let roles = peer.roles.join(", ");
        rows.push(row([
            &peer.process,
            &words(&peer.state),
            &since,
            &clock,
            &waiting,
            &roles,
        ]));
    }
    table(text, &rows);
}

fn or_dash(text: &str) -> &str {
    match text {
        "" => "-",
        text => text,
    }
}

/// States other than the usual ones stand out.
fn words(state: &str) -> String {
    match state {
        "serves" | "met" => state.to_owned(),
        other => other.replace('_', " ").to_uppercase(),
    }
}

fn span(seconds: f64) -> String {
    let whole = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

fn line(text: &mut String, line: &str) {
    let _ = writeln!(text, "{line}");
}

/// Columns as wide as their widest cell.
fn table(text: &mut String, rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, &w)| format!("{cell:<w$}")).collect();
        line(text, cells.join(GAP).trim_end());
    }
}

#[cfg(test)]
mod tests;
