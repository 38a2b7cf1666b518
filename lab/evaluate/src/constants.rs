//! `spillgate-lab constants`: what halving and doubling each constant of our own policies changes, and leaving its rule out.
//!
//! Each of drop policy, batch scheduler, placement and adaptation has a dozen cases. A case gives the requests that are lost, %; what a
//! constant changes is the difference to the case as it comes.

mod cases;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::report::{self, Report, mean};
use super::{Print, command};
use cases::{ADAPTATION, DROPS, PLACEMENT, SCHEDULER};

/// A mean that changes by fewer points, and no case by [`CASE_POINTS`], is no reason for a rule.
const MEAN_POINTS: f64 = 0.1;
/// See [`MEAN_POINTS`].
const CASE_POINTS: f64 = 1.0;

/// A number that no other one reaches.
const NEVER: f64 = 1e9;

/// Whose constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// The drop policy `spillgate`, with its planner and gate.
    Drops,
    /// The batch scheduler `goodput`.
    Scheduler,
    /// The placement `spillgate`.
    Placement,
    /// `adapt: spillgate`.
    Adaptation,
}

/// What to run.
#[derive(Args)]
pub struct ConstantsArgs {
    /// Folder with tweet.csv, wiki.csv and azure_400fn.csv; without it, generated traces of stated burstiness.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Clockwork's Table 1 as CSV, for the placement: family,model,input_kb,output_kb,weights_mb,transfer_ms,b1,b2,b4,b8,b16.
    #[arg(long)]
    profiles: PathBuf,
    /// Only these sections; repeat it.
    #[arg(long)]
    section: Vec<Section>,
    /// Seconds of each trace, and of each run of the placement.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=300))]
    seconds: u32,
    /// Where the page goes.
    #[arg(long, default_value = "docs/evaluation")]
    out: PathBuf,
}

/// How a constant is halved and doubled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    /// The number itself.
    Itself,
    /// Its distance from one: it is a factor, or a part of which the rest is what counts.
    DistanceFromOne,
}

/// A constant of a recipe.
struct Constant {
    name: &'static str,
    value: f64,
    of: Of,
    /// The largest value that makes sense.
    most: f64,
    /// Value with which its rule does nothing.
    without: f64,
}

/// A constant that is halved and doubled as it is.
const fn constant(name: &'static str, value: f64, without: f64) -> Constant {
    Constant {
        name,
        value,
        of: Of::Itself,
        most: f64::INFINITY,
        without,
    }
}

impl Constant {
    const fn around_one(self) -> Self {
        Constant {
            of: Of::DistanceFromOne,
            ..self
        }
    }

    const fn most(self, most: f64) -> Self {
        Constant { most, ..self }
    }

    /// Its value times a factor.
    fn times(&self, factor: f64) -> f64 {
        let times = match self.of {
            Of::Itself => self.value * factor,
            Of::DistanceFromOne => 1.0 + (self.value - 1.0) * factor,
        };
        times.min(self.most)
    }

    /// Halved, doubled, and without its rule.
    fn others(&self) -> [f64; 3] {
        [self.times(0.5), self.times(2.0), self.without]
    }
}

/// By case: its name, and the requests that are lost with each list of values, %.
type Losses = Vec<(String, Vec<f64>)>;

/// What one of our policies is measured on.
struct Group {
    section: Section,
    title: &'static str,
    /// What its cases are, and what is lost.
    about: &'static str,
    constants: &'static [Constant],
    /// Runs all cases with each list of values.
    run: fn(&ConstantsArgs, &[Vec<f64>]) -> anyhow::Result<Losses>,
}

const GROUPS: [&Group; 4] = [&DROPS, &SCHEDULER, &PLACEMENT, &ADAPTATION];

/// The constants as they are, then each with its other values.
fn variations(constants: &[Constant]) -> Vec<Vec<f64>> {
    let usual: Vec<f64> = constants.iter().map(|c| c.value).collect();
    let mut all = vec![usual.clone()];
    for (at, constant) in constants.iter().enumerate() {
        all.extend(constant.others().map(|other| {
            let mut values = usual.clone();
            values[at] = other;
            values
        }));
    }
    all
}

/// A number as it is written down.
fn shown(value: f64) -> String {
    if value >= NEVER {
        return "∞".to_owned();
    }
    // Sums like 1 - 0.02 have more digits than are meant.
    format!("{}", (value * 1e6).round() / 1e6)
}

/// Points more that are lost, by case.
struct Change(Vec<f64>);

impl Change {
    fn mean(&self) -> f64 {
        mean(self.0.iter().copied())
    }

    /// That of the case that changes most.
    fn largest(&self) -> f64 {
        let larger = |most: f64, change: &f64| {
            if change.abs() > most.abs() {
                *change
            } else {
                most
            }
        };
        self.0.iter().fold(0.0, larger)
    }

    fn is_small(&self) -> bool {
        self.mean().abs() < MEAN_POINTS && self.largest().abs() < CASE_POINTS
    }

    fn cell(&self) -> String {
        if self.0.iter().all(|change| *change == 0.0) {
            return "=".to_owned();
        }
        // No minus before a zero.
        let [mean, largest] =
            [self.mean(), self.largest()].map(|c| (c * 100.0).round() / 100.0 + 0.0);
        format!("{mean:+.2} ({largest:+.2})")
    }
}

/// Runs all sections asked for and writes the page.
pub(super) fn run_all(args: &ConstantsArgs, print: Print) -> anyhow::Result<()> {
    report::prepare(&args.out, "constants")?;
    let base = format!(
        "spillgate-lab constants --profiles FILE --seconds {}",
        args.seconds
    );
    let mut report = Report::titled(
        "constants",
        "What each constant of our own policies changes",
        &command(&base, args.traces.is_some(), &args.section),
        "section,case,constant,value,lost\n",
    );
    report.say(&format!(
        "EMULATED. Each constant of a recipe alone is halved and doubled, and set to the value with which its rule does nothing. Where a constant \
         is a factor, or a part of which the rest is what counts, its distance from 1 is halved and doubled. A cell has the value, then by how \
         many points more is lost on average over the cases, and in brackets in the case that changes most; `=`: nothing changes in any case. A \
         change below {MEAN_POINTS} points on average and {CASE_POINTS} in each case is small."
    ));
    let mut small = Vec::new();
    for group in GROUPS {
        if args.section.is_empty() || args.section.contains(&group.section) {
            eprintln!("constants: {:?}", group.section);
            let of_group = section(args, group, &mut report)?;
            if !of_group.is_empty() {
                small.push(format!("{}: `{}`", group.title, of_group.join("`, `")));
            }
        }
    }
    report.say("## Rules whose removal changes little");
    report.say(&match small.is_empty() {
        true => "None.".to_owned(),
        false => format!(
            "In these cases, by the column *without*. {}.",
            small.join(". ")
        ),
    });
    report.write(&args.out, print)
}

/// Writes the table of a group. Returns the constants whose rules change little.
fn section(
    args: &ConstantsArgs,
    group: &Group,
    report: &mut Report,
) -> anyhow::Result<Vec<&'static str>> {
    let cases = (group.run)(args, &variations(group.constants))?;
    let usual = mean(cases.iter().map(|(_, lost)| lost[0]));
    report.say(&format!(
        "## {}\n\n{} As it comes, {usual:.2}% are lost on average.",
        group.title, group.about
    ));
    let mut small = Vec::new();
    let mut rows = Vec::new();
    for (at, constant) in group.constants.iter().enumerate() {
        let mut row = vec![format!("`{}`", constant.name), shown(constant.value)];
        for (other, value) in constant.others().into_iter().enumerate() {
            let column = 1 + 3 * at + other;
            let change = Change(
                cases
                    .iter()
                    .map(|(_, lost)| lost[column] - lost[0])
                    .collect(),
            );
            row.push(format!("{}: {}", shown(value), change.cell()));
            if other == 2 && change.is_small() {
                small.push(constant.name);
            }
            for (name, lost) in &cases {
                let (section, lost) = (format!("{:?}", group.section), lost[column]);
                report.line(&[
                    &section.to_lowercase(),
                    name,
                    &constant.name,
                    &shown(value),
                    &format!("{lost:.4}"),
                ]);
            }
        }
        rows.push(row);
    }
    report.table(&["constant", "value", "half", "double", "without"], &rows);
    Ok(small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variation_changes_one_constant() {
        for group in GROUPS {
            let all = variations(group.constants);
            assert_eq!(all.len(), 1 + 3 * group.constants.len());
            for (i, values) in all.iter().enumerate().skip(1) {
                let differ = (0..values.len()).filter(|at| values[*at] != all[0][*at]);
                assert_eq!(differ.collect::<Vec<_>>(), [(i - 1) / 3], "{values:?}");
            }
        }
        let count: usize = GROUPS.iter().map(|group| group.constants.len()).sum();
        assert!(count <= 40, "{count} constants");
    }

    #[test]
    fn parts_keep_their_distance_from_one() {
        let sure = constant("sure", 0.9, 0.5).around_one();
        assert_eq!(sure.others().map(shown), ["0.95", "0.8", "0.5"]);
        let share = constant("share", 0.5, NEVER).most(0.85);
        assert_eq!(share.others().map(shown), ["0.25", "0.85", "∞"]);
    }

    #[test]
    fn changes_are_told_by_mean_and_by_the_largest() {
        let change = Change(vec![0.3, -1.2, 0.0]);
        assert_eq!(change.cell(), "-0.30 (-1.20)");
        assert!(!change.is_small());
        assert_eq!(Change(vec![0.0, 0.0]).cell(), "=");
        assert!(Change(vec![0.3, -0.3]).is_small());
        assert_eq!(Change(vec![0.001, -0.002]).cell(), "+0.00 (+0.00)");
    }
}
