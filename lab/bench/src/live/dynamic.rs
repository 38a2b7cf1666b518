//! `live-dynamic`: which batch scheduler finishes most requests in time, on networks whose time depends on the input?
//! Each scheduler gets the same requests at the same times. The schedulers run one after the other, in several rounds,
//! so that other work on the machine affects all of them.

mod report;

use std::path::Path;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use serde_json::Value;
use xtask::args::Args;
use xtask::workspace::Workspace;

use super::arrivals::Random;
use super::emulated::{Cost, Side, whole};
use super::real::profile_once;
use super::server::{Driven, Server};
use super::{Common, names, read_options};

use report::Report;

/// Pipelines, texts and logs of the last run.
const OUT: &str = "out/live_dynamic";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/live_dynamic.md";
/// Seconds that a closed loop runs to find the capacity, after [`WARM_UP`].
const CLOSED_SECONDS: usize = 6;
/// Load before the measurement, as a part of the capacity. Most batches then have one member, so schedulers learn times
/// alone.
const LEARNING: f64 = 0.1;
/// How long.
const LEARNING_DURATION: &str = "2s";
/// Sent first at each load and not counted.
const WARM_UP: usize = 1;
/// Payloads of each application: enough that the mean work of a request is settled within some percent.
const PAYLOADS: u16 = 250;

/// A pipeline of one network, and the requests to it.
struct Subject {
    name: &'static str,
    /// For the page.
    about: &'static str,
    /// With `MODELS` and `SCHEDULE` to be filled in.
    pipeline: &'static str,
    applications: [&'static str; 2],
    /// Of the closed loop: as many as keep the device busy and still have answers in time.
    in_flight: &'static str,
    payloads: fn(&Path) -> Result<Vec<String>>,
}

const SUBJECTS: [Subject; 2] = [
    Subject {
        name: "say",
        about: "`text_generator` with `say.pt`: a request is a number as text, half of them (`short`) of 1 to 3 digits, half (`long`)\n\
                of 7 to 9. A batch takes as long as its longest text, and hardly longer for eight than for one.",
        pipeline: "\
name: say
slo: 20ms
source: { payload: bytes }
modules:
  say:
    op: text_generator
    model: MODELS/say.pt
    inputs: { payload: $source.payload }
    batch: { max: 8 }
    schedule: SCHEDULE
outputs: { text: $say.text }
",
        applications: ["short", "long"],
        // Two full batches: one runs, one forms.
        in_flight: "16",
        payloads: texts,
    },
    Subject {
        name: "who",
        about: "`early_exit_classifier` with `who.pt`: a request is a JPEG of a person cut out of a frame of the built-in scene, half of\n\
                them (`day`) seen by a camera of 1280x720 pixels in daylight, half (`night`) by one of 320x180 at night, with noise and\n\
                blur. A batch takes about what its members take together, each one to three segments.",
        pipeline: "\
name: who
slo: 20ms
modules:
  who:
    op: early_exit_classifier
    model: MODELS/who.pt
    inputs: { image: $source.frame }
    options: { exits: 3, threshold: 0.9, region: [0, 0, 1, 0.42] }
    batch: { max: 8 }
    schedule: SCHEDULE
outputs: { faces: $who.labels }
",
        applications: ["day", "night"],
        // Two of eight take about as long as the SLO.
        in_flight: "4",
        payloads: people,
    },
];

/// Numbers in two files.
fn texts(out: &Path) -> Result<Vec<String>> {
    let mut random = Random::new(1);
    let mut args = Vec::new();
    for (name, digits) in [("short", 1..=3), ("long", 7..=9)] {
        let mut text = String::new();
        for idx in 0..usize::from(PAYLOADS) {
            let n = digits.start() + idx % digits.clone().count();
            text.extend((0..n).map(|_| char::from(b'0' + (10.0 * random.uniform()) as u8)));
            text.push('\n');
        }
        let file = out.join(format!("{name}.txt"));
        spillgate_output::write(&file, text)?;
        let file = file.to_str().context("the path is not UTF-8")?.to_owned();
        args.extend(["--texts".to_owned(), file]);
    }
    Ok(args)
}

/// Drawn by the client.
fn people(_: &Path) -> Result<Vec<String>> {
    let n = PAYLOADS.to_string();
    let day = [
        "--scene",
        "size=1280x720,density=1,light=day,noise=1,blur=0",
    ];
    let night = "size=320x180,density=1,seed=1001,light=night,noise=20,blur=0.2";
    let args = [&day[..], &["--scene", night], &["--people", "--frames", &n]].concat();
    Ok(args.into_iter().map(str::to_owned).collect())
}

struct Options {
    common: Common,
    rounds: usize,
    schedules: Vec<String>,
    /// Names of subjects.
    networks: Vec<String>,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            common: Common::new(4, &[1.3, 1.6]),
            rounds: 5,
            schedules: ["goodput", "orloj", "static", "edf"]
                .map(str::to_owned)
                .to_vec(),
            networks: SUBJECTS.map(|subject| subject.name.to_owned()).to_vec(),
        };
        let own = |options: &mut Options, name: &str, parser: &mut lexopt::Parser| {
            match name {
                "rounds" => options.rounds = parser.value()?.parse()?,
                "schedules" => {
                    options.schedules = names("--schedules", &parser.value()?.string()?)?;
                }
                "networks" => {
                    options.networks = names("--networks", &parser.value()?.string()?)?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        };
        read_options(args, &mut options, |options| &mut options.common, own)?;
        if !(1..=100).contains(&options.rounds) {
            bail!("--rounds must be from 1 to 100");
        }
        let known = |name: &&String| SUBJECTS.iter().any(|subject| subject.name == **name);
        if let Some(name) = options.networks.iter().find(|name| !known(name)) {
            let all = SUBJECTS.map(|subject| subject.name).join(", ");
            bail!("--networks: {name:?} is none of {all}");
        }
        Ok(options)
    }

    /// The command that does the same again.
    fn shown(&self) -> String {
        let own = format!(
            "--rounds {} --schedules {} --networks {}",
            self.rounds,
            self.schedules.join(","),
            self.networks.join(",")
        );
        format!("cargo xtask live-dynamic {}", self.common.shown(&own))
    }
}

/// One scheduler at one load in one round. Shares are of the requests that were offered.
#[derive(Debug, Clone, PartialEq)]
struct Cell {
    schedule: String,
    load: f64,
    round: usize,
    requests: u64,
    /// In time.
    finished: f64,
    /// By application.
    finished_of: [f64; 2],
    /// Given up, or refused at the entry gate.
    dropped: f64,
    late: f64,
    failed: f64,
    /// Part of the device time that went to requests without an answer in time.
    wasted: f64,
    batch: f64,
    /// Cores that other processes used.
    others: f64,
}

impl Cell {
    fn of(subject: &Subject, at: (&str, f64, usize), driven: &Driven) -> Result<Cell> {
        let (schedule, load, round) = at;
        let said = &driven.said;
        let side = Side::live(driven)?;
        let share = |n: u64| n as f64 / side.requests.max(1) as f64;
        let outcome = |name| whole(&said["outcomes"], name);
        let row = |list: &str, key: &str, name: &str| -> Result<Value> {
            let rows = said[list].as_array();
            let found = rows.and_then(|rows| rows.iter().find(|row| row[key] == name));
            found
                .cloned()
                .with_context(|| format!("no {name} among the {list}"))
        };
        let mut finished_of = [0.0; 2];
        for (finished, name) in finished_of.iter_mut().zip(subject.applications) {
            let row = row("applications", "application", name)?;
            let requests = whole(&row, "requests")?.max(1) as f64;
            *finished = whole(&row, "completed")? as f64 / requests;
        }
        let module = row("modules", "module", subject.name)?;
        Ok(Cell {
            schedule: schedule.to_owned(),
            load,
            round,
            requests: side.requests,
            finished: share(side.good),
            finished_of,
            dropped: share(outcome("dropped")? + outcome("refused")?),
            late: share(outcome("late")?),
            failed: share(outcome("failed")?),
            wasted: side.invalid,
            batch: module["mean_batch"].as_f64().context("no mean batch")?,
            others: others(&Cost::of(driven)?),
        })
    }
}

/// Cores that other processes had.
fn others(cost: &Cost) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    (cost.machine * cores - cost.server_cores - cost.client_cores).max(0.0)
}

/// All that was measured of a subject.
struct Measured {
    subject: &'static Subject,
    /// Requests a second at load 1.
    capacity: f64,
    cells: Vec<Cell>,
}

/// `cargo xtask live-dynamic`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    let (program, out) = super::prepared(workspace, options.common.spillgate.as_deref(), OUT)?;
    let machine = super::machine();
    let bench = Bench {
        workspace,
        program: &program,
        out: &out,
        options: &options,
    };
    let mut all = Vec::new();
    let wanted = |subject: &&Subject| options.networks.iter().any(|name| name == subject.name);
    for subject in SUBJECTS.iter().filter(wanted) {
        let measured = bench.measure(subject)?;
        println!("\n{}\n{}", measured.table(), measured.summary());
        all.push(measured);
    }
    if options.common.write {
        let text = Report {
            command: options.shown(),
            machine,
            options: &options,
            measured: &all,
        }
        .document();
        spillgate_output::write(workspace.path(DOCUMENT), text)?;
        println!("written to {DOCUMENT}");
    }
    Ok(())
}

/// What every measurement needs.
struct Bench<'a> {
    workspace: &'a Workspace,
    program: &'a Path,
    out: &'a Path,
    options: &'a Options,
}

impl Bench<'_> {
    fn measure(&self, subject: &'static Subject) -> Result<Measured> {
        let payloads = (subject.payloads)(self.out)?;
        let mut args: Vec<&str> = payloads.iter().map(String::as_str).collect();
        for application in subject.applications {
            args.extend(["--application", application]);
        }
        args.push("--shuffle");
        let capacity = self.capacity(subject, &args)?;
        println!(
            "live-dynamic: {}, load 1 is {capacity:.0} a second",
            subject.name
        );
        let mut cells = Vec::new();
        let schedules = &self.options.schedules;
        for round in 0..self.options.rounds {
            for load in &self.options.common.loads {
                for idx in 0..schedules.len() {
                    // Each begins in turn: none always has the machine as the same other left it.
                    let schedule = &schedules[(idx + round) % schedules.len()];
                    let at = (schedule.as_str(), *load, round);
                    let cell = self.cell(subject, &args, at, capacity)?;
                    println!("live-dynamic: {} {}", subject.name, cell.line());
                    cells.push(cell);
                }
            }
        }
        Ok(Measured {
            subject,
            capacity,
            cells,
        })
    }

    /// What the device could do all of the time, as it does under `static` in a closed loop: few in flight leave it
    /// idle while the client reads the answers.
    fn capacity(&self, subject: &Subject, args: &[&str]) -> Result<f64> {
        let mut server = self.serve(subject, "static")?;
        let duration = format!("{}s", CLOSED_SECONDS + WARM_UP);
        let warm_up = format!("{WARM_UP}s");
        let load = ["--concurrency", subject.in_flight, "--duration", &duration];
        let args = [args, &load, &["--warmup", &warm_up]].concat();
        let driven = server.drive(self.workspace, self.program, &args)?;
        server.stop()?;
        let goodput = driven.said["goodput_per_s"]
            .as_f64()
            .context("what bench says has no goodput")?;
        let busy = driven.busy.get("cpu:0").copied().unwrap_or_default();
        if busy == 0.0 {
            bail!("cpu:0 did nothing in the closed loop");
        }
        Ok(goodput * (CLOSED_SECONDS + WARM_UP) as f64 / busy)
    }

    /// A fresh server: it learns at a low rate, then gets the load.
    fn cell(
        &self,
        subject: &Subject,
        args: &[&str],
        at: (&str, f64, usize),
        capacity: f64,
    ) -> Result<Cell> {
        let (schedule, load, round) = at;
        let mut server = self.serve(subject, schedule)?;
        // Other times in each round, the same for all schedulers.
        let seed = (self.options.common.seed + round as u64).to_string();
        let mut offer = |part: f64, duration: &str, warm_up: &str| {
            let rate = format!("{:.2}", part * capacity);
            let when = ["--rate", &rate, "--poisson", "--seed", &seed];
            let how_long = ["--duration", duration, "--warmup", warm_up];
            let args = [args, &when[..], &how_long].concat();
            server.drive(self.workspace, self.program, &args)
        };
        offer(LEARNING, LEARNING_DURATION, "0s")?;
        let duration = format!("{}s", self.options.common.seconds + WARM_UP);
        let driven = offer(load, &duration, &format!("{WARM_UP}s"))?;
        server.stop()?;
        Cell::of(subject, at, &driven).context("what bench says")
    }

    fn serve(&self, subject: &Subject, schedule: &str) -> Result<Server> {
        let models = self.workspace.path("apps/modules/models");
        let models = models.to_str().context("the path is not UTF-8")?;
        let pipeline = self.out.join(format!("{}.yaml", subject.name));
        let text = subject.pipeline.replace("MODELS", models);
        spillgate_output::write(&pipeline, text.replace("SCHEDULE", schedule))?;
        profile_once(self.workspace, self.program, &pipeline)?;
        Server::start(self.workspace, self.program, &pipeline, self.out)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(words.iter().map(Into::into).collect())
    }

    #[test]
    fn options_are_read_and_shown() {
        assert_eq!(
            parse(&["--write"]).unwrap().shown(),
            "cargo xtask live-dynamic --seconds 4 --loads 1.3,1.6 --rounds 5 --schedules goodput,orloj,static,edf --networks say,who --seed 1"
        );
        let said = |words: &[&str]| parse(words).err().unwrap().to_string();
        assert!(said(&["--rounds", "0"]).contains("--rounds"));
        assert!(said(&["--networks", "whom"]).contains("none of say, who"));
        assert!(said(&["--schedules", "edf,}"]).contains("--schedules: \"}\""));
    }

    #[test]
    fn shares_are_of_what_was_offered() {
        let driven = Driven {
            said: json!({
                "requests": 200,
                "outcomes": {"completed": 150, "late": 10, "dropped": 20, "refused": 18, "failed": 2},
                "applications": [
                    {"application": "short", "requests": 100, "completed": 90},
                    {"application": "long", "requests": 100, "completed": 60},
                ],
                "modules": [{"module": "say", "mean_batch": 3.5}],
                "send_delay_ms": {"p99": 0.5}, "generator_cpu": 0.1,
            }),
            device_time: BTreeMap::from([("completed".to_owned(), 3.0), ("late".to_owned(), 1.0)]),
            busy: BTreeMap::new(),
            server_cores: 1.0,
            machine: 0.9,
        };
        let cell = Cell::of(&SUBJECTS[0], ("edf", 1.3, 2), &driven).unwrap();
        assert_eq!((cell.finished, cell.finished_of), (0.75, [0.9, 0.6]));
        assert_eq!((cell.dropped, cell.late, cell.failed), (0.19, 0.05, 0.01));
        assert_eq!((cell.wasted, cell.batch), (0.25, 3.5));
        // More was used by the two than the machine had: clocks differ a little.
        let idle = Cost {
            machine: 0.0,
            ..Cost::of(&driven).unwrap()
        };
        assert_eq!(others(&idle), 0.0);
        let error = Cell::of(&SUBJECTS[1], ("edf", 1.3, 2), &driven).unwrap_err();
        assert!(error.to_string().contains("no day among the applications"));
    }

    #[test]
    fn numbers_are_of_the_digits_that_their_application_has() {
        let out = std::env::temp_dir().join(format!("xtask-numbers-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let args = texts(&out).unwrap();
        let read = |idx: usize| std::fs::read_to_string(&args[idx]).unwrap();
        let (short, long) = (read(1), read(3));
        std::fs::remove_dir_all(&out).unwrap();
        for (text, digits) in [(short, 1..=3), (long, 7..=9)] {
            assert_eq!(text.lines().count(), usize::from(PAYLOADS));
            assert!(text.lines().all(|line| digits.contains(&line.len())
                && line.bytes().all(|byte| byte.is_ascii_digit())));
        }
    }
}
