//! `live-adapting`: more frames than the largest variant serves. What dropping alone, adaptation alone, and both together do with them.
//! Server and cameras are real processes; accuracy is measured against what the scenes show.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use lexopt::prelude::*;
use spillgate_report::{Page, Table};
use xtask::args::Args;
use xtask::workspace::Workspace;

use super::WARM_UP_S;
use super::report::Choice;
use super::site::{Site, in_parallel, stream};
use super::told::{Bounds, Told};
use crate::live::{loads, machine, prepared};
use crate::observe::today;

/// Pipelines, results and logs of the last run.
const OUT: &str = "out/live-adapting";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/live_adapting.md";
const CAMERAS: usize = 8;
/// Frames that each camera sends over and over: rendering takes no time from the server.
const PRELOADED: usize = 40;
/// Frames a second of each camera while the capacity is measured: several times what the server bears.
const FLOOD_FPS: f64 = 40.0;
const SLO: &str = "400ms";
const SLO_MS: f64 = 400.0;

struct Options {
    spillgate: Option<PathBuf>,
    seconds: usize,
    loads: Vec<f64>,
    seed: u64,
    write: bool,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            spillgate: None,
            seconds: 20,
            loads: vec![0.8, 1.0, 1.3, 2.0],
            seed: 1,
            write: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            let Long(name) = argument else {
                return Err(argument.unexpected().into());
            };
            match name {
                "spillgate" => options.spillgate = Some(parser.value()?.into()),
                "seconds" => options.seconds = parser.value()?.parse()?,
                "loads" => options.loads = loads(&parser.value()?.string()?)?,
                "seed" => options.seed = parser.value()?.parse()?,
                "write" => options.write = true,
                _ => return Err(argument.unexpected().into()),
            }
        }
        if !(2..=3600).contains(&options.seconds) {
            bail!("--seconds must be from 2 to 3600");
        }
        Ok(options)
    }

    /// The command that does the same again.
    fn shown(&self) -> String {
        let loads: Vec<String> = self.loads.iter().map(f64::to_string).collect();
        let (seconds, seed) = (self.seconds, self.seed);
        format!(
            "cargo xtask live-adapting --seconds {seconds} --loads {} --seed {seed}",
            loads.join(",")
        )
    }
}

/// How requests are dropped and variants chosen.
#[derive(Clone)]
struct Way {
    drop: &'static str,
    choice: Choice,
}

/// What came of one way at one load.
struct Row {
    way: Way,
    /// Frames a second that were due.
    offered: f64,
    /// Of them answered in time.
    in_time: f64,
    told: Told,
}

impl Row {
    /// Accuracy of a second's frames in time.
    fn weighted(&self) -> f64 {
        self.in_time * self.told.f1_in_time()
    }

    fn cells(&self) -> [String; 7] {
        [
            format!("`{}`", self.way.drop),
            format!("`{}`", self.way.choice.word()),
            format!("{:.1}", self.offered),
            format!("{:.1}", self.in_time),
            format!("{:.3}", self.told.f1_in_time()),
            format!("{:.1}", self.weighted()),
            format!(
                "{:.1}%",
                100.0 * (1.0 - self.in_time / self.offered).max(0.0)
            ),
        ]
    }
}

const HEAD: [&str; 7] = [
    "drops",
    "variants",
    "offered/s",
    "in time/s",
    "F1 in time",
    "weighted/s",
    "missed",
];

/// `cargo xtask live-adapting`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    let (program, out) = prepared(workspace, options.spillgate.as_deref(), OUT)?;
    let machine = machine();
    let runs = Runs::new(workspace, &program, &out, &options)?;
    let capacity = runs.row(&runs.ways[1], FLOOD_FPS * CAMERAS as f64)?.in_time;
    println!("live: {capacity:.1} frames a second of the largest variant are in time");
    let mut tables = Vec::new();
    for load in &options.loads {
        let mut table = Table::new(HEAD);
        for way in &runs.ways {
            let row = runs.row(way, load * capacity)?;
            println!("live: load {load}: {}", row.cells().join(" | "));
            table.row(row.cells());
        }
        tables.push((load, table));
    }
    if options.write {
        let side = runs.site.side();
        let mut page = Page::new("Adaptation and dropping under overload, live");
        page.say(&format!(
            "The traffic pipeline with its models serves {CAMERAS} cameras, each a `spillgate stream` of a scene of its own that sends frames of \
             {side} pixels and takes no part in the adaptation. Server and cameras are processes of one machine; the SLO is {SLO}.",
        ));
        page.say(&format!("On {}, {machine}:", today()?));
        page.made_by(&options.shown());
        page.say(&format!(
            "- **Load**: frames a second over {capacity:.1}, which are in time when far more are sent, `drop: spillgate` drops and the largest variant \
             serves all.\n\
             - **F1 in time**: vehicles and people against what the scenes show, the mean over overlaps of 0.5 to 0.95, of frames in time by the \
             camera's clock. **Weighted**: that F1 times the frames in time.\n\
             - `fixed-{side}` with a drop policy is dropping alone; `none` with a choice is adaptation alone.\n\
             - Frames of {} s count, after {WARM_UP_S} s that do not. Each row is one run of a fresh server; all have one profile.",
            options.seconds,
        ));
        for (load, table) in &tables {
            page.section(&format!("Load {load}"));
            page.table(table);
        }
        let document = workspace.path(DOCUMENT);
        let before = std::fs::read_to_string(&document).unwrap_or_default();
        spillgate_output::write(document, page.text(&before))?;
        println!("written to {DOCUMENT}");
    }
    Ok(())
}

struct Runs<'a> {
    site: Site<'a>,
    seconds: usize,
    /// The second one: the largest variant under our own drop policy.
    ways: Vec<Way>,
}

impl<'a> Runs<'a> {
    fn new(
        workspace: &'a Workspace,
        program: &'a Path,
        out: &'a Path,
        options: &Options,
    ) -> Result<Self> {
        let site = Site::new(workspace, program, out, (SLO, options.seed))?;
        let named = |name: &str| Choice::Named(name.to_owned());
        let ways = [
            ("pard", site.largest()),
            ("spillgate", site.largest()),
            ("none", named("spillgate")),
            ("pard", named("spillgate")),
            ("spillgate", named("spillgate")),
            ("spillgate", named("jellyfish")),
        ];
        Ok(Runs {
            site,
            seconds: options.seconds,
            ways: ways.map(|(drop, choice)| Way { drop, choice }).to_vec(),
        })
    }

    /// So many frames a second are offered, all cameras together.
    fn row(&self, way: &Way, offered: f64) -> Result<Row> {
        let mut server = self.site.start(&way.choice, Some(way.drop))?;
        let url = server.url().to_owned();
        let bounds = Bounds {
            warm_up_ms: 1e3 * WARM_UP_S as f64,
            slo_ms: SLO_MS,
        };
        let cameras: Vec<usize> = (0..CAMERAS).collect();
        let told = in_parallel(&cameras, |n| {
            let results = self.site.out.join(format!("{n}.jsonl"));
            let rate = (offered / CAMERAS as f64, WARM_UP_S + self.seconds);
            let mut camera = self.site.camera(&url, n, rate);
            camera.args(["--preload", &PRELOADED.to_string(), "--no-adapt"]);
            camera.args(["--max-side", &self.site.side().to_string()]);
            stream(camera.arg("--results").arg(&results))?;
            Told::read(&std::fs::read_to_string(&results)?, bounds)
        })?;
        server.alive()?;
        server.stop()?;
        let mut sum = Told::default();
        told.iter().for_each(|one| sum.add(one));
        let all = sum.frames as f64 / self.seconds as f64;
        Ok(Row {
            way: way.clone(),
            offered,
            in_time: all * (1.0 - sum.missed()),
            told: sum,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::tests::of;
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(words.iter().map(Into::into).collect())
    }

    #[test]
    fn options_are_read_shown_and_refused() {
        let options = parse(&["--loads", "0.5,2"]).unwrap();
        let shown = "cargo xtask live-adapting --seconds 20 --loads 0.5,2 --seed 1";
        assert_eq!(options.shown(), shown);
        for (words, says) in [
            (["--loads", "1,x"], "\"x\""),
            (["--loads", "0"], "\"0\""),
            (["--seconds", "1"], "--seconds"),
            (["--clients", "1"], "--clients"),
        ] {
            let error = parse(&words).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_row_weighs_what_is_in_time_by_its_accuracy() {
        let row = Row {
            way: Way {
                drop: "pard",
                choice: Choice::Named("spillgate".to_owned()),
            },
            offered: 100.0,
            in_time: 60.0,
            told: of(1000, 400),
        };
        let f1 = row.told.f1_in_time();
        assert!((row.weighted() - 60.0 * f1).abs() < 1e-9);
        assert!(
            row.cells()
                .starts_with(&["`pard`", "`spillgate`", "100.0", "60.0"].map(str::to_owned))
        );
        assert_eq!(row.cells()[6], "40.0%");
    }
}
