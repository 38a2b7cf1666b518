//! The measurements, as tables and as a document.

use super::overload::{self, Row};
use super::{Cell, DEVICES, NETWORK, SLOWER, set};
use crate::live::emulated::PIPELINE;
use spillgate_report::Table;

/// Live and simulated goodput differ by so many points at most.
const CLOSE: f64 = 3.0;
/// Completed requests a second under overload: at least so many.
const GOOD_MIN: f64 = 47.0;

/// All that the document tells.
pub(super) struct Report<'a> {
    /// Does the same again.
    pub(super) command: String,
    /// In words.
    pub(super) machine: String,
    pub(super) date: String,
    pub(super) seconds: usize,
    /// Of the bottleneck, requests a second.
    pub(super) capacity: f64,
    /// Of the rates, second by second.
    pub(super) variation: f64,
    pub(super) cells: &'a [Cell],
    pub(super) overload: &'a [Row],
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "not met" }
}

impl Report<'_> {
    /// Both sides of each cell.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new([
            "gateways",
            "load",
            "offered/s",
            "goodput/s, simulated",
            "live",
            "in time, simulated",
            "live",
            "points",
            "within 3",
            "processes, cores",
            "machine busy",
            "clients sent late, p99 ms",
        ]);
        for cell in self.cells {
            let rate = |n: u64| n as f64 / self.seconds as f64;
            table.row([
                cell.gateways.to_string(),
                cell.load.to_string(),
                format!("{:.0}", rate(cell.simulated.requests)),
                format!("{:.0}", rate(cell.simulated.good)),
                format!("{:.0}", rate(cell.live.good)),
                format!("{:.1}%", 100.0 * (1.0 - cell.simulated.dropped())),
                format!("{:.1}%", 100.0 * (1.0 - cell.live.dropped())),
                format!("{:+.1}", cell.points()),
                met(cell.points().abs() <= CLOSE).to_string(),
                format!("{:.2}", cell.cost.cores),
                format!("{:.0}%", 100.0 * cell.cost.machine),
                format!("{:.1}", cell.cost.lag_p99_ms),
            ]);
        }
        table
    }

    /// The overload.
    pub(super) fn overload_table(&self) -> Table {
        let mut table = Table::new([
            "offered/s".to_owned(),
            "good/s".to_owned(),
            format!("at least {GOOD_MIN}"),
            "late".to_owned(),
            "dropped".to_owned(),
            "refused".to_owned(),
            "failed".to_owned(),
            "client sent late, p99 ms".to_owned(),
        ]);
        for row in self.overload {
            table.row([
                row.rate.to_string(),
                format!("{:.1}", row.good),
                met(row.good >= GOOD_MIN).to_string(),
                row.late.to_string(),
                row.dropped.to_string(),
                row.refused.to_string(),
                row.failed.to_string(),
                format!("{:.1}", row.lag_p99_ms),
            ]);
        }
        table
    }

    /// As Markdown.
    pub(super) fn document(&self) -> String {
        format!(
            "# Separate processes and the simulated cluster, side by side\n\
             \n\
             ```sh\n\
             {command}\n\
             ```\n\
             \n\
             writes this file when `--write` is added. Measured on {date} with a release build. Processes and clients share the cores\n\
             of the machine: {machine}.\n\
             Figures are of one run, as measured.\n\
             \n\
             ## {devices} emulated devices\n\
             \n\
             `apps/pipelines/{PIPELINE}.yaml` under policy `spillgate`, as a controller, {n_workers} worker processes that have the {devices} devices among\n\
             them, and one, two or four gateways: separate processes, whose links are gRPC over loopback. A process for each device would be\n\
             more processes than this machine has cores for. Each worker is a thread that waits for as long as its batch would take.\n\
             All times of the pipeline, its SLO included, are {SLOWER} times those of the file, so that the cores have little to do.\n\
             Load 1 is {capacity:.0} requests a second, the capacity of the bottleneck by the reference plan.\n\
             Arrivals are a Poisson process whose rate changes every second (coefficient of variation {variation:.2}) for {seconds} s. Each gateway has a\n\
             client of its own; of n clients each sends every n-th request. The clients start within some milliseconds of each other.\n\
             `spillgate simulate --cluster` reads the same times; its gateways get them by equal shares, and its devices are nodes of their own.\n\
             Its network: `{network}`. Each cell is a fresh set.\n\
             \n\
             {table}\
             \n\
             - **In time**: requests that were completed before their deadline, of all. Live, as the clients count.\n\
             - **Points**: live minus simulated. They should be within {CLOSE}.\n\
             - Where the machine was busy or clients sent late, the live figure is that of the machine and not of the processes.\n\
             \n\
             ## More than two stages can serve\n\
             \n\
             `{overload}` under `spillgate up`: two modules of 20 ms, one request at a time, in a worker process each, so that 50\n\
             requests a second can be served. Equal distances between requests, {seconds} s after {warm_up} s that do not count.\n\
             \n\
             {overload_table}",
            command = self.command,
            date = self.date,
            machine = self.machine,
            devices = DEVICES,
            n_workers = set::WORKERS.len(),
            capacity = self.capacity,
            variation = self.variation,
            seconds = self.seconds,
            network = NETWORK.trim_end(),
            table = self.table(),
            overload = overload::PIPELINE,
            warm_up = overload::WARM_UP,
            overload_table = self.overload_table(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::cluster::Cost;
    use crate::live::emulated::Side;

    #[test]
    fn both_parts_say_what_is_met() {
        let side = |good| Side {
            requests: 1000,
            good,
            invalid: 0.0,
        };
        let cell = |live| Cell {
            gateways: 2,
            load: 0.9,
            simulated: side(950),
            live: side(live),
            cost: Cost {
                lag_p99_ms: 0.5,
                cores: 0.75,
                machine: 0.6,
            },
        };
        let cells = [cell(921), cell(919)];
        let row = |rate, good| Row {
            rate,
            good,
            late: 1,
            dropped: 2,
            refused: 3,
            failed: 4,
            lag_p99_ms: 0.1,
        };
        let overload = [row(60, 47.0), row(100, 46.9)];
        let report = Report {
            command: "cargo xtask live-cluster".into(),
            machine: "2 virtual cores".into(),
            date: "2026-01-02".into(),
            seconds: 10,
            capacity: 1700.0,
            variation: 0.3,
            cells: &cells,
            overload: &overload,
        };
        let page = report.document();
        for line in [
            "| 2 | 0.9 | 100 | 95 | 92 | 95.0% | 92.1% | -2.9 | met | 0.75 | 60% | 0.5 |",
            "| 95.0% | 91.9% | -3.1 | not met |",
            "| 60 | 47.0 | met | 1 | 2 | 3 | 4 | 0.1 |",
            "| 100 | 46.9 | not met |",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(!page.contains("\n\n\n"), "{page}");
    }
}
