//! The measurements, as tables and as a document.

use super::subject::Kind;
use super::{OPEN_RATE, OPEN_SECONDS, OPEN_WARM_UP};
use crate::h2load::{Measured, median};
use spillgate_report::Table;

/// The median latency with one request in flight, over the relay's: at most this.
const P50_RATIO_MAX: f64 = 1.5;
/// Requests a second with 64 in flight, over the relay's: at least this.
const RATE_RATIO_MIN: f64 = 0.5;
/// The 99th percentile at [`OPEN_RATE`]: at most so many ms.
const OPEN_P99_MAX: f64 = 2.0;

/// One load on one subject.
pub(super) struct Cell {
    pub(super) run: Measured,
    /// Bytes that processes wrote to each other, over the messages that carry a payload.
    pub(super) bytes_a_message: Option<f64>,
}

/// One open loop.
pub(super) struct Open {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// How late the client sent.
    pub(super) lag_p99_ms: f64,
    pub(super) unserved: f64,
}

/// The rounds of a subject under one load.
pub(super) struct Row {
    kind: Kind,
    payload: &'static str,
    in_flight: u32,
    rounds: Vec<Cell>,
}

impl Row {
    fn median(&self, value: impl Fn(&Measured) -> f64) -> f64 {
        median(self.rounds.iter().map(|cell| value(&cell.run)))
    }

    /// The median over the rounds of a value over another row's value in the same round.
    fn ratio(&self, other: &Row, value: impl Fn(&Measured) -> f64) -> f64 {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.map(|(mine, theirs)| value(&mine.run) / value(&theirs.run)))
    }
}

/// All that was measured.
pub(super) struct Report {
    /// Does the same again.
    pub(super) command: String,
    /// In words.
    pub(super) machine: String,
    pub(super) date: String,
    pub(super) rounds: usize,
    pub(super) seconds: u32,
    pub(super) cells: Vec<Row>,
    pub(super) open: Vec<(Kind, Vec<Open>)>,
}

impl Report {
    pub(super) fn record(&mut self, kind: Kind, payload: &'static str, in_flight: u32, cell: Cell) {
        match self.row(kind, payload, in_flight) {
            Some(at) => self.cells[at].rounds.push(cell),
            None => self.cells.push(Row {
                kind,
                payload,
                in_flight,
                rounds: vec![cell],
            }),
        }
    }

    pub(super) fn record_open(&mut self, kind: Kind, open: Open) {
        match self.open.iter_mut().find(|(of, _)| *of == kind) {
            Some((_, rounds)) => rounds.push(open),
            None => self.open.push((kind, vec![open])),
        }
    }

    fn row(&self, kind: Kind, payload: &str, in_flight: u32) -> Option<usize> {
        let is_it =
            |row: &Row| row.kind == kind && row.payload == payload && row.in_flight == in_flight;
        self.cells.iter().position(is_it)
    }

    /// The closed loops.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new([
            "subject",
            "payload",
            "in flight",
            "req/s",
            "to the relay's",
            "p50 ms",
            "to the relay's",
            "p99 ms",
            "CPU us/request, all processes",
            "bytes a message on the link",
            "failed",
        ]);
        for row in &self.cells {
            let relay = self.row(Kind::Relay, row.payload, row.in_flight);
            let relay = &self.cells[relay.expect("each load has the relay's row")];
            let bytes = row.rounds.iter().filter_map(|cell| cell.bytes_a_message);
            let bytes: Vec<f64> = bytes.collect();
            let bytes = match bytes.is_empty() {
                true => "-".to_owned(),
                false => format!("{:.0}", median(bytes.into_iter())),
            };
            table.row([
                row.kind.name().to_string(),
                row.payload.to_string(),
                row.in_flight.to_string(),
                format!("{:.0}", row.median(|m| m.rate)),
                format!("{:.2}", row.ratio(relay, |m| m.rate)),
                format!("{:.3}", row.median(|m| m.p50_ms)),
                format!("{:.2}", row.ratio(relay, |m| m.p50_ms)),
                format!("{:.3}", row.median(|m| m.p99_ms)),
                format!("{:.1}", row.median(|m| m.cpu_us)),
                bytes.to_string(),
                row.rounds
                    .iter()
                    .map(|cell| cell.run.failed)
                    .sum::<u64>()
                    .to_string(),
            ]);
        }
        table
    }

    /// The open loops.
    pub(super) fn open_table(&self) -> Table {
        let mut table = Table::new([
            "subject",
            "p50 ms",
            "p99 ms",
            "p99 ms, worst round",
            "client sent late, p99 ms",
            "not served in time",
        ]);
        for (kind, rounds) in &self.open {
            let worst = rounds.iter().map(|r| r.p99_ms).fold(0.0, f64::max);
            table.row([
                kind.name().to_string(),
                format!("{:.2}", median(rounds.iter().map(|r| r.p50_ms))),
                format!("{:.2}", median(rounds.iter().map(|r| r.p99_ms))),
                format!("{worst:.2}"),
                format!("{:.2}", median(rounds.iter().map(|r| r.lag_p99_ms))),
                format!("{:.0}", rounds.iter().map(|r| r.unserved).sum::<f64>()),
            ]);
        }
        table
    }

    /// What was aimed at, and whether it was reached.
    pub(super) fn targets(&self) -> Table {
        let mut table = Table::new(["target", "measured", ""]);
        let mut line = |what: &str, measured: String, met: bool| {
            let met = if met { "met" } else { "not met" };
            table.row([what.to_string(), measured.to_string(), met.to_string()]);
        };
        for payload in super::PAYLOADS.map(|(payload, _)| payload) {
            let pair = |in_flight| {
                let of = |kind| Some(&self.cells[self.row(kind, payload, in_flight)?]);
                Some((of(Kind::Processes)?, of(Kind::Relay)?))
            };
            if let Some((row, relay)) = pair(1) {
                let ratio = row.ratio(relay, |m| m.p50_ms);
                let what = format!(
                    "{payload}: p50 with 1 in flight at most {P50_RATIO_MAX} times the relay's"
                );
                line(&what, format!("{ratio:.2}"), ratio <= P50_RATIO_MAX);
            }
            if let Some((row, relay)) = pair(64) {
                let ratio = row.ratio(relay, |m| m.rate);
                let what = format!(
                    "{payload}: requests a second with 64 in flight at least {RATE_RATIO_MIN} times the relay's"
                );
                line(&what, format!("{ratio:.2}"), ratio >= RATE_RATIO_MIN);
            }
        }
        if let Some((_, rounds)) = self.open.iter().find(|(kind, _)| *kind == Kind::Processes) {
            let p99 = median(rounds.iter().map(|r| r.p99_ms));
            let what =
                format!("1 KB: p99 at {OPEN_RATE} requests a second at most {OPEN_P99_MAX} ms");
            line(&what, format!("{p99:.2} ms"), p99 <= OPEN_P99_MAX);
        }
        table
    }

    /// As Markdown.
    pub(super) fn document(&self) -> String {
        format!(
            "# What separate processes cost\n\
             \n\
             ```sh\n\
             {command}\n\
             ```\n\
             \n\
             writes this file when `--write` is added. Measured on {date} with release builds. Client and subjects share the cores of\n\
             the machine: {machine}.\n\
             Figures are medians of {rounds} rounds of {seconds} s; in each round the subjects take turns under each load.\n\
             Ratios are medians of the ratios within a round.\n\
             \n\
             `apps/pipelines/noop2.yaml` is a chain of two modules that pass their payload on and take no time. Side by side:\n\
             \n\
             - **{relay}**: what remains of a gateway with two workers without Spillgate (`apps/spillgate/examples/echo.rs`). A call goes\n  \
               through two other processes in turn, over one open bidirectional stream to each, before it is answered. The messages are\n  \
               those of the API, the server is tonic's own, its runtime tokio's default: a thread a core.\n\
             - **{serve}**: all roles in one process; nothing travels between processes.\n\
             - **{processes}**: `spillgate up`; each module has a worker process of its own.\n\
             - **{secure}**: with certificates on both sides of each link.\n\
             \n\
             ## Targets\n\
             \n\
             {targets}\
             \n\
             ## A number of requests in flight\n\
             \n\
             h2load has so many requests in flight, one a connection.\n\
             \n\
             {table}\
             \n\
             - **CPU**: user and system time of all processes of the subject, over the answered requests. The supervisor of `spillgate up` and\n  \
               the client are left out.\n\
             - **Bytes a message on the link**: what the processes wrote to each other (`spillgate_peer_sent_bytes_total`), over four messages\n  \
               with the payload a request: to each worker, and back. Asks, reports of controllers and heartbeats are in it. The frames of\n  \
               HTTP/2 and TLS are not.\n\
             - **Failed**: calls without an answer, and requests that did not end in time.\n\
             \n\
             ## {rate} requests a second\n\
             \n\
             `spillgate bench --rate {rate} --payload-bytes 1024`, {open} s after {warm_up} s that do not count. Latency counts from the moment\n\
             at which a request was due.\n\
             \n\
             {open_table}",
            command = self.command,
            date = self.date,
            machine = self.machine,
            rounds = self.rounds,
            seconds = self.seconds,
            relay = Kind::Relay.name(),
            serve = Kind::Serve.name(),
            processes = Kind::Processes.name(),
            secure = Kind::Secure.name(),
            targets = self.targets(),
            table = self.table(),
            rate = OPEN_RATE,
            open = OPEN_SECONDS,
            warm_up = OPEN_WARM_UP,
            open_table = self.open_table(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report {
            command: "cargo xtask bench-processes".into(),
            machine: "2 virtual cores".into(),
            date: "2026-01-02".into(),
            rounds: 1,
            seconds: 4,
            cells: Vec::new(),
            open: Vec::new(),
        };
        let cell = |rate, p50_ms, bytes_a_message| Cell {
            run: Measured {
                rate,
                requests: 100,
                failed: 0,
                data_bytes: 0,
                p50_ms,
                p99_ms: 2.0 * p50_ms,
                cpu_us: 50.0,
            },
            bytes_a_message,
        };
        for in_flight in [1, 64] {
            // The second round is on a machine that is twice as slow.
            for slow in [1.0, 2.0] {
                let relay = cell(4000.0 / slow, 0.2 * slow, None);
                report.record(Kind::Relay, "1 KB", in_flight, relay);
                let set = cell(1900.0 / slow, 0.28 * slow, Some(1300.0));
                report.record(Kind::Processes, "1 KB", in_flight, set);
            }
        }
        let open = Open {
            p50_ms: 0.4,
            p99_ms: 1.9,
            lag_p99_ms: 0.1,
            unserved: 0.0,
        };
        report.record_open(Kind::Processes, open);
        report
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let table = report().table().to_string();
        assert!(
            table.contains("| 1 KB | 64 | 1900 | 0.47 | 0.560 | 1.40 | 1.120 | 50.0 | 1300 | 0 |"),
            "{table}"
        );
        let columns = table.lines().map(|line| line.matches('|').count());
        let columns: Vec<usize> = columns.collect();
        assert!(columns.iter().all(|n| *n == columns[0]), "{columns:?}");
    }

    #[test]
    fn targets_are_met_or_not() {
        let targets = report().targets().to_string();
        assert!(
            targets.contains("1.5 times the relay's | 1.40 | met |"),
            "{targets}"
        );
        assert!(
            targets.contains("0.5 times the relay's | 0.47 | not met |"),
            "{targets}"
        );
        assert!(
            targets.contains("at most 2 ms | 1.90 ms | met |"),
            "{targets}"
        );
        assert!(
            !targets.contains("150 KB"),
            "what was not measured has no line"
        );
    }

    #[test]
    fn the_page_names_its_command_and_its_date() {
        let page = report().document();
        assert!(page.contains("\ncargo xtask bench-processes\n") && page.contains("2026-01-02"));
        assert!(!page.contains("\n\n\n"), "{page}");
    }
}
