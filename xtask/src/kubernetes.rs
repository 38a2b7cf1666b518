//! `kubernetes`: the product on a real Kubernetes of one node, which is started on this machine and taken down again.
//!
//! A scenario is one function in a file of its own below, and a row of [`SCENARIOS`]. It gets a namespace of its own, and
//! judges by counts and states.

mod beside;
mod broken;
mod certificates;
mod chart;
mod cluster;
mod evict;
mod killed;
mod leader;
mod load;
mod model;
mod modules;
mod operator;
mod pair;
mod plain;
mod scale;
mod traffic;
mod updates;
mod wrong;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

use self::cluster::{Cluster, Namespace};
use crate::image::{self, Image};
use crate::profile::Profile;

/// Something that is done with the product on the cluster.
struct Scenario {
    /// Its name, and that of its namespace.
    name: &'static str,
    /// What must hold, in a few words.
    asserts: &'static str,
    /// Images that it needs.
    images: &'static [Image],
    /// Does it, and returns what was counted.
    run: fn(&Namespace<'_>) -> Result<String>,
}

/// Images of scenarios with the operator, which is installed before the first of them.
const OPERATED: &[Image] = &[Image::Product, Image::Operator];

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "plain",
        asserts: "deploy/kubernetes/plain gets ready and answers; of three workers one is deleted (nothing fails), one by force, one gets SIGKILL: accepted = ended",
        images: &[Image::Product],
        run: plain::run,
    },
    Scenario {
        name: "traffic",
        asserts: "real models: a Job measures them, Ready, frames are answered; kubectl get and explain",
        images: OPERATED,
        run: traffic::run,
    },
    Scenario {
        name: "broken",
        asserts: "a pipeline that does not compile, over a good one: no pod changes, nothing fails, condition and event say why",
        images: OPERATED,
        run: broken::run,
    },
    Scenario {
        name: "killed",
        asserts: "a worker, the controller and a gateway deleted by force: others answer, accepted = ended, clients by name are answered again",
        images: OPERATED,
        run: killed::run,
    },
    Scenario {
        name: "updates",
        asserts: "another objective (no pod changes), another image (all do): nothing fails, nothing is lost",
        images: OPERATED,
        run: updates::run,
    },
    Scenario {
        name: "model",
        asserts: "another model: a Job measures it, no pod that serves changes, nothing fails",
        images: OPERATED,
        run: model::run,
    },
    Scenario {
        name: "modules",
        asserts: "a module more and less, in pods of its own and with another one: no other pod changes, nothing fails",
        images: OPERATED,
        run: modules::run,
    },
    Scenario {
        name: "pair",
        asserts: "two pipelines of a set, one deleted: nothing of it is left, the other one fails nothing; with the last one the set goes",
        images: OPERATED,
        run: pair::run,
    },
    Scenario {
        name: "leader",
        asserts: "the operator that leads killed, then both: one leads, no pod changes, nothing fails, a change is carried out",
        images: OPERATED,
        run: leader::run,
    },
    Scenario {
        name: "scale",
        asserts: "0.6 to 1.8 of one worker's capacity: wanted, replicas and ready rise, then below 2% not in time, then down again; accepted = ended",
        images: OPERATED,
        run: scale::run,
    },
    Scenario {
        name: "evict",
        asserts: "one of two gateways evicted, the second one refused until there are two again; nothing fails",
        images: OPERATED,
        run: evict::run,
    },
    Scenario {
        name: "certificates",
        asserts: "a new authority: all read new certificates, no pod changes, nothing fails, new links are made",
        images: OPERATED,
        run: certificates::run,
    },
    Scenario {
        name: "wrong",
        asserts: "bounds, names, a module without workers, a quota, rights, an image and a GPU that are not there: the reason and the cure are said",
        images: OPERATED,
        run: wrong::run,
    },
    Scenario {
        name: "chart",
        asserts: "Helm lints, renders, installs, upgrades and uninstalls: rights in one namespace, no pod of a pipeline changes",
        images: OPERATED,
        run: chart::run,
    },
    Scenario {
        name: "beside",
        asserts: "the same pipeline in pods and by `spillgate up`: nothing fails",
        images: OPERATED,
        run: beside::run,
    },
];

/// What to run.
struct Options {
    names: Vec<String>,
    profile: Profile,
    spillgate: Option<PathBuf>,
    operator: Option<PathBuf>,
    keep: bool,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            names: Vec::new(),
            profile: Profile::Release,
            spillgate: None,
            operator: None,
            keep: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("debug") => options.profile = Profile::Tests,
                Long("spillgate") => options.spillgate = Some(parser.value()?.into()),
                Long("operator") => options.operator = Some(parser.value()?.into()),
                Long("keep") => options.keep = true,
                Value(name) => options.names.push(name.string()?),
                other => return Err(other.unexpected().into()),
            }
        }
        for name in &options.names {
            if !SCENARIOS.iter().any(|scenario| scenario.name == name) {
                let known: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
                bail!(
                    "there is no scenario {name:?}; there are: {}",
                    known.join(", ")
                );
            }
        }
        Ok(options)
    }

    /// The scenarios that were asked for, in the order of the table.
    fn scenarios(&self) -> Vec<&'static Scenario> {
        let is_asked = |scenario: &&Scenario| {
            self.names.is_empty() || self.names.iter().any(|name| name == scenario.name)
        };
        SCENARIOS.iter().filter(is_asked).collect()
    }
}

/// How a scenario went.
struct Row {
    scenario: &'static Scenario,
    outcome: Result<String>,
    took: Duration,
}

/// `cargo xtask kubernetes`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    let scenarios = options.scenarios();
    let spillgate = match &options.spillgate {
        Some(program) => std::path::absolute(program)?,
        None => options.profile.program(workspace, "spillgate")?,
    };
    let folder = workspace.target_dir()?.join("kubernetes");
    let (mut archives, mut tags) = (Vec::new(), Vec::new());
    for image in [Image::Product, Image::Operator] {
        if scenarios
            .iter()
            .any(|scenario| scenario.images.contains(&image))
        {
            let archive = folder.join(format!("{}.tar", image.package()));
            let built = match image {
                Image::Product => spillgate.clone(),
                Image::Operator => match &options.operator {
                    Some(program) => program.clone(),
                    None => image.program(workspace, options.profile)?,
                },
            };
            tags.push(image::write(workspace, image, &built, &archive)?);
            archives.push(archive);
        }
    }

    let cluster = Cluster::up(workspace, spillgate, options.keep)?;
    for archive in &archives {
        cluster.import(archive)?;
    }
    if let [product, operator] = tags.as_slice() {
        println!("kubernetes: the operator is installed ...");
        operator::install(&cluster, operator, product)?;
    }
    let mut rows = Vec::new();
    for scenario in scenarios {
        println!("kubernetes: {} ...", scenario.name);
        let begun = Instant::now();
        let outcome = run(&cluster, scenario);
        if let Err(error) = &outcome {
            println!("kubernetes: {} FAILED: {error:#}", scenario.name);
        }
        rows.push(Row {
            scenario,
            outcome,
            took: begun.elapsed(),
        });
        if process::interrupted() {
            break;
        }
    }
    drop(cluster);
    print!("{}", table(&rows));
    match rows.iter().filter(|row| row.outcome.is_err()).count() {
        0 => Ok(()),
        n => bail!("kubernetes: {n} of {} scenarios failed", rows.len()),
    }
}

/// Runs a scenario in its namespace, and explains a failure.
fn run(cluster: &Cluster<'_>, scenario: &Scenario) -> Result<String> {
    let namespace = cluster.namespace(scenario.name)?;
    let outcome = (scenario.run)(&namespace);
    if outcome.is_err() && !process::interrupted() {
        let is_operated = scenario.images.contains(&Image::Operator);
        let diagnosed = namespace.diagnose().and_then(|()| {
            if is_operated {
                operator::diagnose(&namespace)?;
            }
            Ok(())
        });
        match diagnosed {
            Ok(()) => println!(
                "kubernetes: logs of its pods and events are in {}",
                namespace.folder.display()
            ),
            Err(error) => println!("kubernetes: its logs were not to be had: {error:#}"),
        }
    }
    // One that failed can be looked at; of the others nothing is in the way of what comes.
    if (outcome.is_ok() || !cluster.keeps()) && !process::interrupted() {
        cluster.kubectl(["delete", "namespace", scenario.name, "--wait"])?;
    }
    outcome
}

/// One line a scenario: its name, what was asserted, what was counted, and how long it took.
fn table(rows: &[Row]) -> String {
    let mut cells = vec![["scenario", "holds", "asserted", "counted", "s"].map(str::to_owned)];
    for row in rows {
        let (holds, counted) = match &row.outcome {
            Ok(counted) => ("yes", counted.clone()),
            // In full it was printed before.
            Err(error) => ("NO", shortened(&format!("{error:#}"))),
        };
        cells.push([
            row.scenario.name.to_owned(),
            holds.to_owned(),
            row.scenario.asserts.to_owned(),
            counted,
            format!("{:.0}", row.took.as_secs_f64()),
        ]);
    }
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &cells {
        let padded: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The beginning of a text that may be a long one.
fn shortened(text: &str) -> String {
    const CHARACTERS: usize = 100;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.to_owned(),
    }
}

/// `cargo xtask cluster`: the cluster alone, by hand.
pub(crate) fn cluster(workspace: &Workspace, args: Args) -> Result<()> {
    process::run(cluster::script(workspace)?.args(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Vec<&'static str>> {
        let options = Options::parse(args.iter().map(Into::into).collect())?;
        Ok(options
            .scenarios()
            .iter()
            .map(|scenario| scenario.name)
            .collect())
    }

    #[test]
    fn scenarios_are_chosen_by_name() {
        assert_eq!(parse(&[]).unwrap().len(), SCENARIOS.len());
        assert_eq!(parse(&["plain", "--keep"]).unwrap(), ["plain"]);
        let error = parse(&["plian"]).unwrap_err().to_string();
        assert!(error.contains("there are: plain"), "{error}");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&"ä".repeat(200));
        assert_eq!(cut.chars().count(), 104);
        assert!(cut.ends_with("ä ..."), "{cut}");
    }

    #[test]
    fn the_table_names_what_failed() {
        let row = |outcome| Row {
            scenario: &SCENARIOS[0],
            outcome,
            took: Duration::from_secs(3),
        };
        let text = table(&[
            row(Ok("5 sent".to_owned())),
            row(Err(anyhow::anyhow!("why"))),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("yes") && lines[1].contains("5 sent"));
        assert!(lines[2].contains("NO") && lines[2].contains("why"));
    }
}
