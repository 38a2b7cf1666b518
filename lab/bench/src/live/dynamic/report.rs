//! The measurements of the schedulers, as tables and as a page.

use std::fmt::Write as _;

use super::{Cell, LEARNING, LEARNING_DURATION, Measured, Options, WARM_UP};
use spillgate_report::Table;

/// Mean, least and most over rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    mean: f64,
    least: f64,
    most: f64,
}

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    Spread {
        mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
        least: values.iter().copied().fold(f64::INFINITY, f64::min),
        most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

impl Cell {
    /// The text for the terminal.
    pub(super) fn line(&self) -> String {
        format!(
            "round {}, load {}, {}: {:.1}% of {} finished in time ({:.1}%, {:.1}%), late {:.1}%, dropped {:.1}%, wasted {:.1}%, \
             batch {:.1}; other processes {:.1} cores",
            self.round + 1,
            self.load,
            self.schedule,
            100.0 * self.finished,
            self.requests,
            100.0 * self.finished_of[0],
            100.0 * self.finished_of[1],
            100.0 * self.late,
            100.0 * self.dropped,
            100.0 * self.wasted,
            self.batch,
            self.others,
        )
    }
}

/// The cells of each scheduler.
type Schedules<'a> = Vec<(&'a str, Vec<&'a Cell>)>;

impl Measured {
    /// Loads, and the schedulers at each, in the order in which the first round of a load met them.
    fn groups(&self) -> Vec<(f64, Schedules<'_>)> {
        let mut groups: Vec<(f64, Schedules<'_>)> = Vec::new();
        for cell in &self.cells {
            let at = groups.iter().position(|(load, _)| *load == cell.load);
            let at = at.unwrap_or_else(|| {
                groups.push((cell.load, Vec::new()));
                groups.len() - 1
            });
            let schedules = &mut groups[at].1;
            match schedules
                .iter()
                .position(|(name, _)| *name == cell.schedule)
            {
                Some(of) => schedules[of].1.push(cell),
                None => schedules.push((&cell.schedule, vec![cell])),
            }
        }
        groups
    }

    /// A row for each scheduler at each load.
    pub(super) fn table(&self) -> Table {
        let [first, second] = self.subject.applications;
        let mut table = Table::new([
            "load".to_owned(),
            "scheduler".to_owned(),
            "finish rate".to_owned(),
            "least to most".to_owned(),
            format!("`{first}`"),
            format!("`{second}`"),
            "dropped".to_owned(),
            "late".to_owned(),
            "failed".to_owned(),
            "wasted".to_owned(),
            "mean batch".to_owned(),
            "others, cores".to_owned(),
        ]);
        for (load, schedules) in self.groups() {
            for (name, cells) in schedules {
                let of = |value: fn(&Cell) -> f64| spread(cells.iter().map(|cell| value(cell)));
                let percent = |value: fn(&Cell) -> f64| 100.0 * of(value).mean;
                let finished = of(|cell| cell.finished);
                table.row([
                    load.to_string(),
                    format!("`{name}`"),
                    format!("{:.3}", finished.mean),
                    format!("{:.3} to {:.3}", finished.least, finished.most),
                    format!("{:.3}", of(|cell| cell.finished_of[0]).mean),
                    format!("{:.3}", of(|cell| cell.finished_of[1]).mean),
                    format!("{:.1}%", percent(|cell| cell.dropped)),
                    format!("{:.1}%", percent(|cell| cell.late)),
                    format!("{:.1}%", percent(|cell| cell.failed)),
                    format!("{:.1}%", percent(|cell| cell.wasted)),
                    format!("{:.1}", of(|cell| cell.batch).mean),
                    format!("{:.1}", of(|cell| cell.others).mean),
                ]);
            }
        }
        table
    }

    /// The best scheduler at each load, in how many rounds it is best, and by how much.
    pub(super) fn summary(&self) -> String {
        let mut text = String::new();
        for (load, schedules) in self.groups() {
            let mean = |cells: &[&Cell]| spread(cells.iter().map(|cell| cell.finished)).mean;
            let mut ranked: Vec<_> = schedules
                .iter()
                .map(|(name, cells)| (mean(cells), *name, cells))
                .collect();
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
            let [(_, best, of_best), others @ ..] = ranked.as_slice() else {
                continue;
            };
            let Some((_, second, of_second)) = others.first() else {
                continue;
            };
            // In the same round both had the same requests at the same times.
            let finished_of = |round: usize, cells: &[&Cell]| {
                let cell = cells.iter().find(|cell| cell.round == round);
                cell.map_or(0.0, |cell| cell.finished)
            };
            let ahead = spread(
                of_best
                    .iter()
                    .map(|cell| 100.0 * (cell.finished - finished_of(cell.round, of_second))),
            );
            let won = of_best.iter().filter(|cell| {
                let rivals = others
                    .iter()
                    .map(|(_, _, cells)| finished_of(cell.round, cells));
                rivals.fold(0.0, f64::max) <= cell.finished
            });
            let _ = writeln!(
                text,
                "- Load {load}: `{best}` finishes most, in {} of {} rounds; ahead of `{second}`, the next, by {:.1} points on average\n  \
                 ({:.1} to {:.1}).",
                won.count(),
                of_best.len(),
                ahead.mean,
                ahead.least,
                ahead.most,
            );
        }
        text
    }
}

/// All that the page tells.
pub(super) struct Report<'a> {
    /// Does the same again.
    pub(super) command: String,
    /// In words.
    pub(super) machine: String,
    pub(super) options: &'a Options,
    pub(super) measured: &'a [Measured],
}

impl Report<'_> {
    /// As Markdown.
    pub(super) fn document(&self) -> String {
        let others = spread(
            self.measured
                .iter()
                .flat_map(|measured| measured.cells.iter().map(|cell| cell.others)),
        );
        let mut text = format!(
            "# Batch schedulers on networks whose time depends on the input\n\
             \n\
             Served over gRPC by libtorch on the CPU, not simulated: how many requests each scheduler of docs/schedulers.md finishes in\n\
             time.\n\
             \n\
             ```sh\n\
             {command}\n\
             ```\n\
             \n\
             writes this file when `--write` is added. Machine: {machine}. Server and client share it with whatever\n\
             else runs, which had {mean:.1} cores on average, {least:.1} to {most:.1} in single runs. So each of {rounds} rounds runs all schedulers one after the other,\n\
             beginning with another one each time, with the same requests at the same times (Poisson, {seconds} s after {WARM_UP} s that do not\n\
             count; other times in each round). Compare results only within a round.\n\
             \n\
             Each run is a fresh server, all with one profile. For {LEARNING_DURATION} it gets {learning:.0}% of load 1: most\n\
             batches then have one member, so schedulers learn times alone. Load 1 is the rate that a closed loop finishes under\n\
             `static`, per second that the device works. Batches hold 8 at most, the SLO is 20 ms: four times the 99th percentile of\n\
             the time alone for `say`, seven times for `who`; ORLOJ's evaluation has 1.5 to 5 times.\n\
             \n\
             `goodput`, `orloj` and `edf` are the drop policy of a pipeline of one module themselves; `static` has the default, `spillgate`,\n\
             with its entry gate (docs/schedulers.md).\n",
            command = self.command,
            machine = self.machine,
            mean = others.mean,
            least = others.least,
            most = others.most,
            rounds = self.options.rounds,
            seconds = self.options.common.seconds,
            learning = 100.0 * LEARNING,
        );
        for measured in self.measured {
            let _ = write!(
                text,
                "\n## `{name}`\n\
                 \n\
                 {about}\n\
                 Load 1 is {capacity:.0} requests a second, by a closed loop of {in_flight}.\n\
                 \n\
                 {table}\
                 \n\
                 {summary}",
                name = measured.subject.name,
                about = measured.subject.about,
                capacity = measured.capacity,
                in_flight = measured.subject.in_flight,
                table = measured.table(),
                summary = measured.summary(),
            );
        }
        text.push_str(
            "\n\
             - **Finish rate**: answers in time, of all requests offered; by application in the two columns after the spread.\n\
             - **Dropped**: given up by the scheduler or the drop policy, or refused at the entry gate.\n\
             - **Wasted**: device time spent on requests without an answer in time, warm-up included.\n\
             - **Mean batch**: of the requests that were executed.\n\
             - **Others**: cores that processes beside server and client used meanwhile.\n",
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::SUBJECTS;
    use super::*;

    fn cell(schedule: &str, load: f64, round: usize, finished: f64) -> Cell {
        Cell {
            schedule: schedule.into(),
            load,
            round,
            requests: 1_000,
            finished,
            finished_of: [1.0, 2.0 * finished - 1.0],
            dropped: 0.1,
            late: 0.05,
            failed: 0.0,
            wasted: 0.025,
            batch: 4.25,
            others: 0.8,
        }
    }

    fn measured() -> Measured {
        Measured {
            subject: &SUBJECTS[0],
            capacity: 1_000.4,
            cells: vec![
                cell("goodput", 1.0, 0, 0.9),
                cell("edf", 1.0, 0, 0.7),
                cell("static", 1.0, 0, 0.5),
                cell("edf", 1.0, 1, 0.85),
                cell("static", 1.0, 1, 0.5),
                cell("goodput", 1.0, 1, 0.8),
            ],
        }
    }

    #[test]
    fn rounds_are_put_together() {
        let table = measured().table().to_string();
        assert!(
            table.contains("| 1 | `goodput` | 0.850 | 0.800 to 0.900 | 1.000 | 0.700 | 10.0% | 5.0% | 0.0% | 2.5% | 4.2 | 0.8 |\n"),
            "{table}"
        );
        let bars = |line: &str| line.matches('|').count();
        assert!(table.lines().all(|line| bars(line) == 13), "{table}");
    }

    #[test]
    fn the_first_is_told_with_the_rounds_that_it_won() {
        assert_eq!(
            measured().summary(),
            "- Load 1: `goodput` finishes most, in 1 of 2 rounds; ahead of `edf`, the next, by 7.5 points on average\n  \
             (-5.0 to 20.0).\n"
        );
    }

    #[test]
    fn the_page_has_a_part_for_each_subject() {
        let options = Options::parse(Vec::new()).unwrap();
        let all = [measured()];
        let page = Report {
            command: options.shown(),
            machine: "2 virtual cores".into(),
            options: &options,
            measured: &all,
        }
        .document();
        assert!(page.contains("\n## `say`\n") && page.contains("1000 requests a second"));
        assert!(page.contains("0.8 cores on average, 0.8 to 0.8"));
        assert!(!page.contains("\n\n\n"), "{page}");
    }
}
