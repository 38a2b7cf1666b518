//! What a case found, and the table of all.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cases::Case;
use crate::client::{Counts, Sheet};

/// A figure with its bound.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    name: &'static str,
    value: f64,
    /// Not more than this.
    limit: f64,
    unit: &'static str,
}

/// What one run of a case found.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    counts: Counts,
    /// Of requests that were not served: of which client, sent in which second, why, and how many.
    not_served: BTreeMap<(usize, u64, String), usize>,
    figures: Vec<Figure>,
    /// What does not hold.
    broken: Vec<String>,
}

impl Findings {
    /// A run that did not come to its end.
    pub(super) fn broken(why: String) -> Self {
        Findings {
            broken: vec![why],
            ..Findings::default()
        }
    }

    /// Whether something does not hold.
    pub(super) fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// Adds the requests of a client to the sum that is shown. Each is to have one answer, its own, with each module in it once.
    pub(super) fn count(&mut self, client: usize, sheet: &Sheet) {
        let all = sheet.all();
        self.counts.add(&all);
        for (n, what) in [
            (all.missing, "no answer"),
            (all.twice, "two answers"),
            (all.wrong, "a wrong result"),
        ] {
            self.holds(n == 0, || {
                format!("{n} requests of client {client} have {what}")
            });
        }
        for (second, reason) in sheet.not_served() {
            let key = (client, second, reason.to_owned());
            *self.not_served.entry(key).or_default() += 1;
        }
    }

    /// A figure that is to be at most `limit`.
    pub(super) fn at_most(
        &mut self,
        name: &'static str,
        value: f64,
        limit: f64,
        unit: &'static str,
    ) {
        self.figures.push(Figure {
            name,
            value,
            limit,
            unit,
        });
        self.holds(value <= limit, || {
            format!("{name}: {value:.2}{unit}, more than {limit}{unit}")
        });
    }

    /// Something that is to hold.
    pub(super) fn holds(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(otherwise());
        }
    }
}

/// The runs of one case.
pub(super) struct Row {
    case: &'static Case,
    runs: Vec<Findings>,
}

impl Row {
    pub(super) fn new(case: &'static Case) -> Self {
        Row {
            case,
            runs: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, run: Findings) {
        self.runs.push(run);
    }

    pub(super) fn holds(&self) -> bool {
        self.runs.iter().all(|run| run.broken.is_empty())
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.runs.iter().for_each(|run| sum.add(&run.counts));
        sum
    }

    /// Each figure: the median and the worst of the runs, and its bound.
    fn figures(&self) -> String {
        let Some(first) = self.runs.iter().find(|run| !run.figures.is_empty()) else {
            return String::new();
        };
        let shown = first.figures.iter().map(|Figure { name, limit, unit, .. }| {
            let of = |run: &Findings| run.figures.iter().find(|f| f.name == *name).map(|f| f.value);
            let mut values: Vec<f64> = self.runs.iter().filter_map(of).collect();
            values.sort_by(f64::total_cmp);
            let (median, worst) = (values[values.len() / 2], values[values.len() - 1]);
            match values.len() {
                1 => format!("{name} {worst:.2}{unit} (at most {limit}{unit})"),
                n => format!("{name} {median:.2}{unit}, worst of {n} {worst:.2}{unit} (at most {limit}{unit})"),
            }
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    /// For people: what was found.
    pub(super) fn text(&self) -> String {
        let verdict = if self.holds() { "ok" } else { "BROKEN" };
        let mut text = format!(
            "{} ... {verdict}\n  {}\n",
            self.case.name, self.case.promise
        );
        let _ = writeln!(text, "  {}", counts_text(&self.counts()));
        let _ = writeln!(text, "  {}", self.figures());
        for run in self.runs.iter().filter(|run| run.is_broken()) {
            for broken in &run.broken {
                let _ = writeln!(text, "  BROKEN: {broken}");
            }
            for ((client, second, reason), n) in &run.not_served {
                let _ = writeln!(text, "    client {client}, second {second}: {n} {reason}");
            }
        }
        text
    }
}

/// In words.
pub(super) fn counts_text(c: &Counts) -> String {
    format!(
        "requests {}: completed {}, late {}, dropped {}, failed {}, refused {}, lost {}, missing {}, twice {}, wrong {}",
        c.requests,
        c.completed,
        c.late,
        c.dropped,
        c.failed,
        c.refused,
        c.lost,
        c.missing,
        c.twice,
        c.wrong
    )
}

/// All cases as a table of Markdown.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| fault | requests | completed | late | dropped | failed | refused | lost | figures | verdict |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let c = row.counts();
        let verdict = if row.holds() { "holds" } else { "BROKEN" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {verdict} |",
            row.case.name,
            c.requests,
            c.completed,
            c.late,
            c.dropped,
            c.failed,
            c.refused,
            c.lost,
            row.figures(),
        );
    }
    text
}
