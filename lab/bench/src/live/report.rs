//! The measurements, as tables and as a document.

use std::fmt::Write as _;

use super::emulated::{self, Cell, Emulated};
use super::real::{self, Real, Row};
use spillgate_report::Table;

/// A server should be this close to its simulation, in points.
const CLOSE: f64 = 3.0;
/// This part of the capacity should be left under twice the load.
const LEFT: f64 = 0.9;

/// The simulated and the live side of every cell.
pub(super) fn emulated_table(emulated: &Emulated, seconds: usize) -> Table {
    let mut table = Table::new([
        "policy",
        "load",
        "offered/s",
        "goodput/s, simulated",
        "live",
        "difference",
        "dropped or late, simulated",
        "live",
        "points",
        "invalid, simulated",
        "live",
        "points",
    ]);
    for cell in &emulated.cells {
        let rate = |n: u64| n as f64 / seconds as f64;
        let (simulated, live) = (&cell.simulated, &cell.live);
        table.row([
            format!("`{}`", cell.policy),
            cell.load.to_string(),
            format!("{:.0}", rate(simulated.requests)),
            format!("{:.0}", rate(simulated.good)),
            format!("{:.0}", rate(live.good)),
            format!(
                "{:+.1}%",
                100.0 * (live.good as f64 / simulated.good.max(1) as f64 - 1.0)
            ),
            format!("{:.1}%", 100.0 * simulated.dropped()),
            format!("{:.1}%", 100.0 * live.dropped()),
            format!("{:+.1}", drop_points(cell)),
            format!("{:.1}%", 100.0 * simulated.invalid),
            format!("{:.1}%", 100.0 * live.invalid),
            format!("{:+.1}", invalid_points(cell)),
        ]);
    }
    table
}

fn drop_points(cell: &Cell) -> f64 {
    100.0 * (cell.live.dropped() - cell.simulated.dropped())
}

fn invalid_points(cell: &Cell) -> f64 {
    100.0 * (cell.live.invalid - cell.simulated.invalid)
}

/// How close the two sides are, and how busy the machine was.
pub(super) fn emulated_summary(emulated: &Emulated) -> String {
    let cells = &emulated.cells;
    let close = |points: &dyn Fn(&Cell) -> f64| {
        cells
            .iter()
            .filter(|cell| points(cell).abs() <= CLOSE)
            .count()
    };
    let worst = |value: &dyn Fn(&Cell) -> f64| cells.iter().map(value).fold(0.0_f64, f64::max);
    let mean = |value: &dyn Fn(&Cell) -> f64| {
        cells.iter().map(value).sum::<f64>() / cells.len().max(1) as f64
    };
    format!(
        "Within {CLOSE} points of the simulation: {} of {n} cells by requests dropped or late (mean difference {:+.1}, largest\n\
         {:.1}), {} of {n} by invalid device time (mean {:+.1}, largest {:.1}).\n\
         \n\
         While this was measured the server used {:.2} cores at most and the client {:.2}; the machine was {:.0}% busy on average\n\
         and {:.0}% at most. The client sent {:.1} ms late at worst (99th percentile of a cell; {:.1} ms on average).\n",
        close(&drop_points),
        mean(&drop_points),
        worst(&|cell| drop_points(cell).abs()),
        close(&invalid_points),
        mean(&invalid_points),
        worst(&|cell| invalid_points(cell).abs()),
        worst(&|cell| cell.cost.server_cores),
        worst(&|cell| cell.cost.client_cores),
        100.0 * mean(&|cell| cell.cost.machine),
        100.0 * worst(&|cell| cell.cost.machine),
        worst(&|cell| cell.cost.lag_p99_ms),
        mean(&|cell| cell.cost.lag_p99_ms),
        n = cells.len(),
    )
}

/// The loads on the pipeline with models.
pub(super) fn real_table(real: &Real) -> Table {
    let mut table = Table::new([
        "policy",
        "offered/s",
        "goodput/s",
        "of capacity",
        "late",
        "dropped",
        "of those before decoding",
        "refused or failed",
        "p99 ms",
        "invalid",
        "server, cores",
        "client, cores",
        "decoding, ms a frame",
    ]);
    for row in real.rising.iter().chain(&real.twice) {
        real_row(&mut table, row, real.capacity());
    }
    table
}

fn real_row(table: &mut Table, row: &Row, capacity: f64) {
    table.row([
        format!("`{}`", row.policy),
        format!("{:.1}", row.offered),
        format!("{:.1}", row.goodput),
        format!("{:.0}%", 100.0 * row.goodput / capacity.max(1e-9)),
        row.late.to_string(),
        row.dropped.to_string(),
        row.undecoded.to_string(),
        row.refused.to_string(),
        row.p99_ms
            .map_or("-".to_owned(), |ms| format!("{ms:.0}"))
            .to_string(),
        format!("{:.1}%", 100.0 * row.side.invalid),
        format!("{:.2}", row.cost.server_cores),
        format!("{:.3}", row.cost.client_cores),
        format!("{:.1}", row.decode_ms),
    ]);
}

/// What is left of the capacity at twice the rate.
pub(super) fn real_summary(real: &Real) -> String {
    let mut text = format!(
        "Capacity, the highest goodput while the rate rose: {:.1} frames a second (a closed loop reached {:.1}). Offered twice that:",
        real.capacity(),
        real.closed_loop
    );
    for row in &real.twice {
        let _ = write!(
            text,
            " `{}` keeps {:.0}% of it,",
            row.policy,
            100.0 * row.goodput / real.capacity().max(1e-9)
        );
    }
    let kept = real
        .twice
        .first()
        .is_some_and(|row| row.goodput >= LEFT * real.capacity());
    let _ = writeln!(
        text,
        "\nwhere our own should keep {:.0}% or more: {}.",
        100.0 * LEFT,
        if kept { "it does" } else { "it does not" }
    );
    text
}

/// All that the document tells.
pub(super) struct Report<'a> {
    /// Does the same again.
    pub(super) command: String,
    /// In words.
    pub(super) machine: String,
    pub(super) seconds: usize,
    pub(super) emulated: &'a Emulated,
    pub(super) real: Option<&'a Real>,
}

impl Report<'_> {
    /// As Markdown.
    pub(super) fn document(&self) -> String {
        let mut text = format!(
            "# Served and simulated, side by side\n\
             \n\
             The simulator and the server run the same policies. This page shows how far their results differ.\n\
             \n\
             ```sh\n\
             {command}\n\
             ```\n\
             \n\
             writes this file when `--write` is added. Machine: {machine}. Server and client share it. Figures are of one run,\n\
             as measured.\n\
             \n\
             ## {devices} emulated devices\n\
             \n\
             `apps/pipelines/{pipeline}.yaml`, its assumed profile and an SLO of 400 ms, all at full speed: each of the {devices} workers is\n\
             a thread that waits for as long as its batch would take. Everything else is that of a real server: gRPC over loopback,\n\
             gateway, planners, brokers. Load 1 is {capacity:.0} requests a second, the capacity of the bottleneck by the reference plan.\n\
             Arrivals are a Poisson process whose rate changes every second (coefficient of variation {variation:.2}) for {seconds} s;\n\
             `bench` sends at the very times that `simulate --arrivals` reads, over unary calls, and never gives up. Each\n\
             cell is a fresh server with the policy's defaults. Batch sizes and workers are the same on both sides.\n\
             \n\
             {table}\
             \n\
             {summary}\
             \n\
             - At a **load** above 1 every policy must drop requests. Compare policies only at equal loads.\n\
             - **Dropped or late**: every request without an answer in time, as the server judges it.\n\
             - **Invalid**: device time spent on such requests; live from `spillgate_device_request_time_seconds_total`.\n\
             - The simulator assumes 0.5 ms for a message from part to part and 0.5 ms from a device's end to the start\n  \
               of a batch that is bound only then; in one process both are shorter.\n\
             - Simulated times are exact, and exact times can fall into step: at load 1.3 (12 s, seed 1) `nexus-split` drops from 33%\n  \
               to 42% in the simulator as `--hop` goes from 0.1 to 1 ms, and 31 to 32% once `--noise 0.01` lets executions\n  \
               vary by 1%. Times of a server vary as well. This is a likely reason for the differences; it was not measured.\n",
            command = self.command,
            machine = self.machine,
            devices = emulated::DEVICES,
            pipeline = emulated::PIPELINE,
            capacity = self.emulated.capacity,
            variation = self.emulated.variation,
            seconds = self.seconds,
            table = emulated_table(self.emulated, self.seconds),
            summary = emulated_summary(self.emulated),
        );
        if let Some(real) = self.real {
            let _ = write!(
                text,
                "\n## Twice the capacity, with models\n\
                 \n\
                 `apps/pipelines/{pipeline}.yaml` with its models on the CPU, no GPU. The client sends one frame of the built-in scene,\n\
                 encoded beforehand, again and again: {step} s at each rate after 2 s that do not count, Poisson arrivals, no giving up.\n\
                 \n\
                 {table}\
                 \n\
                 {summary}\
                 \n\
                 The client's column has its cost; the last column has the cost of decoding, for each offered frame. Models, decoding,\n\
                 gRPC and the client share the cores, so a higher rate leaves less time for the models.\n\
                 Each goodput is of {step} s and varies with other work on the machine, so the highest one overstates the capacity.\n",
                pipeline = real::PIPELINE,
                step = real::STEP,
                table = real_table(real),
                summary = real_summary(real),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::emulated::{Cost, Side};

    fn cost() -> Cost {
        Cost {
            lag_p99_ms: 0.25,
            client_cores: 0.1,
            server_cores: 0.5,
            machine: 0.4,
        }
    }

    fn side(good: u64, invalid: f64) -> Side {
        Side {
            requests: 1_000,
            good,
            invalid,
        }
    }

    fn measured() -> Emulated {
        let cell = |load, live| Cell {
            policy: "pard".into(),
            load,
            simulated: side(900, 0.01),
            live,
            cost: cost(),
        };
        Emulated {
            capacity: 1724.1,
            variation: 0.3,
            cells: vec![cell(0.9, side(910, 0.02)), cell(1.1, side(850, 0.05))],
        }
    }

    fn real() -> Real {
        let row = |policy, offered, goodput| Row {
            policy,
            offered,
            goodput,
            side: side(600, 0.1),
            late: 50,
            dropped: 340,
            refused: 10,
            undecoded: 200,
            p99_ms: None,
            decode_ms: 4.0,
            cost: cost(),
        };
        Real {
            closed_loop: 9.0,
            rising: vec![row("spillgate", 5.0, 5.0), row("spillgate", 12.0, 10.0)],
            twice: vec![row("spillgate", 20.0, 9.5), row("none", 20.0, 0.5)],
        }
    }

    #[test]
    fn both_sides_stand_beside_each_other() {
        let table = emulated_table(&measured(), 10).to_string();
        assert!(table.contains(
            "| `pard` | 0.9 | 100 | 90 | 91 | +1.1% | 10.0% | 9.0% | -1.0 | 1.0% | 2.0% | +1.0 |\n"
        ));
        let columns: Vec<usize> = table
            .lines()
            .map(|line| line.matches('|').count())
            .collect();
        assert!(columns.iter().all(|n| *n == columns[0]), "{columns:?}");
        let summary = emulated_summary(&measured());
        assert!(summary.starts_with("Within 3 points of the simulation: 1 of 2 cells"));
        assert!(summary.contains("1 of 2 by invalid"), "{summary}");
    }

    #[test]
    fn what_is_left_of_the_capacity_is_said() {
        let table = real_table(&real()).to_string();
        assert!(table.contains(
            "| `none` | 20.0 | 0.5 | 5% | 50 | 340 | 200 | 10 | - | 10.0% | 0.50 | 0.100 | 4.0 |\n"
        ));
        let summary = real_summary(&real());
        assert!(summary.contains("10.0 frames a second") && summary.contains("it does."));
        let mut real = real();
        real.twice[0].goodput = 8.0;
        assert!(real_summary(&real).contains("it does not."));
    }

    #[test]
    fn the_document_has_both_parts_when_both_were_measured() {
        let (emulated, real) = (measured(), real());
        let mut report = Report {
            command: "cargo xtask live".into(),
            machine: "2 virtual cores".into(),
            seconds: 10,
            emulated: &emulated,
            real: None,
        };
        let without = report.document();
        assert!(without.contains("\ncargo xtask live\n") && !without.contains("with models"));
        report.real = Some(&real);
        let with = report.document();
        assert!(with.starts_with(&without) && with.contains("## Twice the capacity"));
        assert!(!with.contains("\n\n\n"));
    }
}
