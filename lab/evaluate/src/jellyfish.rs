//! `spillgate-lab evaluate jellyfish`: cameras over links that change, under every way to choose variants, on the settings of Jellyfish's
//! evaluation (`jellyfish.txt`, §7). The reference is an independent program on the same profile (`NOTES.md`, Jellyfish).

mod compared;
mod instances;
mod loops;
mod many;
mod mapping;
mod runs;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use spillgate_camera::bandwidth::BandwidthTrace;
use spillgate_jellyfish::cameras::{F1_POINTS, Zoo};
use spillgate_sim::network::synthetic;

use super::report::{self, Report};
use super::{Print, command, read_table};
use instances::Question;

/// A part of the paper's evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// §7.6: answers to single questions beside the best ones.
    Mapping,
    /// Figures 12, 13 and 15: clients that are alike, by trace, number, SLO and rate.
    Loop,
    /// Table 2: clients that differ.
    Heterogeneous,
    /// Figure 17: eight workers.
    Scale,
    /// §7.7: how often a variant is there when it is wanted.
    Prefetch,
}

/// What to run.
#[derive(Args)]
pub(super) struct JellyfishArgs {
    /// Folder with questions as JSON: gpus, profile, clients, `budget_ms`, reference. Runs use the profile of the first named f10_*.
    #[arg(long)]
    instances: PathBuf,
    /// Folder with wifi.csv and lte.csv (second,mbps); without it, only the synthetic trace is replayed, which is known by its law.
    #[arg(long)]
    network: Option<PathBuf>,
    /// Only these sections; repeat it.
    #[arg(long)]
    section: Vec<Section>,
    /// Seconds of each run that count.
    #[arg(long, default_value_t = 140, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Runs of each setting.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// Where the page goes.
    #[arg(long, default_value = "docs/evaluation")]
    out: PathBuf,
}

/// What all sections need.
struct Given {
    questions: Vec<Question>,
    zoo: Zoo,
    /// By name.
    traces: Vec<(&'static str, BandwidthTrace)>,
    /// Numbers of clients of two workers, and of eight.
    clients: Vec<usize>,
    clients_of_eight: Vec<usize>,
    seconds: u32,
    seeds: u32,
}

impl Given {
    fn new(args: &JellyfishArgs) -> anyhow::Result<Self> {
        let questions = instances::read_all(&args.instances)?;
        let profiled = questions.iter().find(|q| q.name.starts_with("f10_"));
        let profiled = profiled.with_context(|| {
            let folder = args.instances.display();
            format!("{folder} has no f10_*.json, whose profile runs use")
        })?;
        Ok(Given {
            zoo: profiled.zoo()?,
            questions,
            traces: traces(args.network.as_deref())?,
            clients: vec![1, 2, 4, 8],
            clients_of_eight: vec![8, 16, 24, 32],
            seconds: args.seconds,
            seeds: args.seeds,
        })
    }

    fn trace(&self, name: &str) -> Option<&BandwidthTrace> {
        let found = self.traces.iter().find(|(n, _)| *n == name);
        found.map(|(_, rates)| rates)
    }
}

fn traces(folder: Option<&Path>) -> anyhow::Result<Vec<(&'static str, BandwidthTrace)>> {
    let mut traces = vec![("synthetic", synthetic())];
    for name in ["wifi", "lte"] {
        if let Some(folder) = folder {
            let path = folder.join(format!("{name}.csv"));
            let rates = BandwidthTrace::parse(&read_table(&path)?);
            traces.push((name, rates.with_context(|| path.display().to_string())?));
        }
    }
    Ok(traces)
}

/// Runs all sections asked for and writes the page.
pub(super) fn run_all(args: &JellyfishArgs, print: Print) -> anyhow::Result<()> {
    report::prepare(&args.out, "jellyfish")?;
    let given = Given::new(args)?;
    let mut base = "spillgate-lab evaluate jellyfish --instances FOLDER".to_owned();
    if args.network.is_some() {
        base.push_str(" --network FOLDER");
    }
    base.push_str(&format!(
        " --seconds {} --seeds {}",
        args.seconds, args.seeds
    ));
    let mut report = Report::titled(
        "jellyfish",
        "Clients and models adapt to links: Jellyfish's workloads",
        &command(&base, false, &args.section),
        runs::CSV_HEAD,
    );
    describe(&given, &mut report);
    sections(&args.section, &given, &mut report)?;
    report.write(&args.out, print)
}

fn describe(given: &Given, report: &mut Report) {
    let points = F1_POINTS
        .map(|(side, f1)| format!("{side}: {f1}"))
        .join(", ");
    report.say(&format!(
        "EMULATED: workers with the profile of the reference, which is reconstructed from the paper's figures ({} variants); execution times \
         have a standard deviation of 1%, and the profile is their 99th percentile. Links replay a trace from random places; a round trip \
         takes 0.5 ms, encoding 1 ms and an acknowledgement 2 ms. Frames of {} s count from 5 s after the last client started; figures are means over {} seeds. \
         *Missed*: late, dropped or not sent, of all frames. *F1* is a proxy, not measured: of frames in time, by the smaller of the sizes sent and executed, an \
         exponential that saturates, through {points} pixels. B_L, B_M and B_H run the lowest, middle (352) and highest variant on all \
         workers with one queue, earliest deadline first; of the others, frames of clients without a worker run in idle time. Cameras of `spillgate` decide as `spillgate stream` \
         does, by the same code; those of the others as the authors' do (§3.3). `adapt: spillgate` and `adapt: jellyfish` are what serves: the same cameras, links and devices, \
         with a pipeline of one module between them, one queue of which any worker takes any variant, the default drop policy, and cameras of ours. *Reference* is an independent program, *paper* what the paper's text says. A \
         cell is empty where there is no figure.",
        given.zoo.sizes().len(),
        given.seconds,
        given.seeds,
    ));
}

/// All sections asked for.
fn sections(asked: &[Section], given: &Given, report: &mut Report) -> anyhow::Result<()> {
    for section in Section::value_variants() {
        if !asked.is_empty() && !asked.contains(section) {
            continue;
        }
        eprintln!("jellyfish: {section:?}");
        match section {
            Section::Mapping => mapping::mapping(given, report)?,
            Section::Loop => loops::alike(given, report)?,
            Section::Heterogeneous => many::heterogeneous(given, report)?,
            Section::Scale => many::scale(given, report)?,
            Section::Prefetch => many::prefetch(given, report)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &str = r#"{"gpus": 2, "factor": 1, "profile": {"input_size": [128, 352, 608],
        "accuracy": [0.2, 0.44, 0.49], "latency_ms": [[23, 27], [28, 36], [40, 60]], "frame_kbit": [80, 443, 1066]},
        "clients": [{"fps": 15}, {"fps": 25}], "budget_ms": [[90, 80, 0], [70, 60, 50]],
        "reference": {"objective": 0.44}}"#;

    /// Every section on the synthetic trace, for a second.
    #[test]
    fn sections_run_without_files_of_links() {
        let given = Given {
            questions: vec![Question::parse("f10_x", QUESTION).unwrap()],
            zoo: Question::parse("f10_x", QUESTION).unwrap().zoo().unwrap(),
            traces: traces(None).unwrap(),
            clients: vec![1, 2],
            clients_of_eight: vec![2],
            seconds: 1,
            seeds: 1,
        };
        let mut report = Report::titled("x", "X", "x", "");
        sections(&[], &given, &mut report).unwrap();
    }
}
