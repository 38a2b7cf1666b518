//! `live`: does the server do what the simulator says of it? The same arrivals for both, on emulated devices; and
//! the pipeline with models, offered twice what it holds.

mod arrivals;
pub(crate) mod dynamic;
mod emulated;
mod real;
mod report;
mod server;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use lexopt::prelude::*;

use crate::commands::Args;
use crate::peers;
use crate::workspace::Workspace;

use report::Report;

/// Pipelines, arrivals and logs of the last run.
const OUT: &str = "out/live";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/live.md";

struct Options {
    spillgate: Option<PathBuf>,
    seconds: usize,
    loads: Vec<f64>,
    policies: Vec<String>,
    seed: u64,
    real: bool,
    write: bool,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            spillgate: None,
            seconds: 30,
            loads: vec![0.7, 0.9, 1.0, 1.1, 1.3],
            policies: ["spillgate", "pard", "nexus-split", "nexus", "clipper++"]
                .map(str::to_owned)
                .to_vec(),
            seed: 1,
            real: false,
            write: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("spillgate") => options.spillgate = Some(parser.value()?.into()),
                Long("seconds") => options.seconds = parser.value()?.parse()?,
                Long("loads") => options.loads = loads(&parser.value()?.string()?)?,
                Long("policies") => {
                    options.policies = names("--policies", &parser.value()?.string()?)?;
                }
                Long("seed") => options.seed = parser.value()?.parse()?,
                Long("real") => options.real = true,
                Long("write") => options.write = true,
                other => return Err(other.unexpected().into()),
            }
        }
        if !(2..=600).contains(&options.seconds) {
            bail!("--seconds must be from 2 to 600");
        }
        Ok(options)
    }

    /// The command that does the same again.
    fn shown(&self) -> String {
        let loads: Vec<String> = self.loads.iter().map(f64::to_string).collect();
        format!(
            "cargo xtask live --seconds {} --loads {} --policies {} --seed {}{}",
            self.seconds,
            loads.join(","),
            self.policies.join(","),
            self.seed,
            if self.real { " --real" } else { "" }
        )
    }
}

fn loads(text: &str) -> Result<Vec<f64>> {
    text.split(',')
        .map(|word| match word.trim().parse() {
            // Beyond this the client would be what is measured.
            Ok(load) if (0.05..=3.0).contains(&load) => Ok(load),
            _ => bail!("--loads: {word:?} is not a number from 0.05 to 3"),
        })
        .collect()
}

/// Of policies or schedulers.
fn names(option: &str, text: &str) -> Result<Vec<String>> {
    text.split(',')
        .map(|word| match word.trim() {
            // Whether there is one of that name, the server says.
            name if !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || "-+".contains(c)) =>
            {
                Ok(name.to_owned())
            }
            _ => bail!("{option}: {word:?} is no name; names are words of a to z, + and -"),
        })
        .collect()
}

/// `cargo xtask live`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    let (program, out) = prepared(workspace, options.spillgate.as_deref(), OUT)?;
    let machine = machine();
    let emulated = emulated::run(workspace, &program, &options, &out)?;
    println!(
        "\n{}\n{}",
        report::emulated_table(&emulated, options.seconds),
        report::emulated_summary(&emulated)
    );
    let real = match options.real {
        true => Some(real::run(workspace, &program, &out)?),
        false => None,
    };
    if let Some(real) = &real {
        println!(
            "\n{}\n{}",
            report::real_table(real),
            report::real_summary(real)
        );
    }
    if options.write {
        let text = Report {
            command: options.shown(),
            machine,
            seconds: options.seconds,
            emulated: &emulated,
            real: real.as_ref(),
        }
        .document();
        let document = workspace.path(DOCUMENT);
        std::fs::create_dir_all(document.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(&document, text)?;
        println!("written to {DOCUMENT}");
    }
    Ok(())
}

/// The program, and an empty folder for what a run needs.
fn prepared(workspace: &Workspace, given: Option<&Path>, out: &str) -> Result<(PathBuf, PathBuf)> {
    let program = peers::build_spillgate(workspace, given)?;
    // Children run in the repository's root, wherever this was called.
    let program = std::path::absolute(program)?;
    let out = workspace.path(out);
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    std::fs::create_dir_all(&out)?;
    Ok((program, out))
}

/// The machine in words, as it is when a run begins.
fn machine() -> String {
    let mut machine = peers::machine();
    match std::fs::read_to_string("/proc/self/stat").map(|text| niceness(&text)) {
        Ok(Some(nice)) if nice != 0 => machine.push_str(&format!(
            ", server and client at nice {nice}, other processes beside them"
        )),
        _ => {}
    }
    machine
}

/// The priority that children inherit: the 17th field after the name, which is in brackets.
fn niceness(stat: &str) -> Option<i32> {
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(16)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_is_read() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 10 -10 1 0";
        assert_eq!(niceness(stat), Some(-10));
        assert!(niceness("7").is_none());
    }

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(words.iter().map(Into::into).collect())
    }

    #[test]
    fn options_are_read_and_shown() {
        let options = parse(&[]).unwrap();
        assert_eq!(
            options.shown(),
            "cargo xtask live --seconds 30 --loads 0.7,0.9,1,1.1,1.3 \
             --policies spillgate,pard,nexus-split,nexus,clipper++ --seed 1"
        );
        let options = parse(&[
            "--loads",
            "0.5,2",
            "--policies",
            "none",
            "--real",
            "--write",
        ]);
        let options = options.unwrap();
        assert!(options.write && options.loads == [0.5, 2.0]);
        assert_eq!(
            options.shown(),
            "cargo xtask live --seconds 30 --loads 0.5,2 --policies none --seed 1 --real"
        );
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let said = |words: &[&str]| parse(words).err().unwrap().to_string();
        assert!(said(&["--loads", "1,0"]).contains("\"0\""));
        assert!(said(&["--policies", "pard, }"]).contains("--policies"));
        assert!(said(&["--seconds", "0"]).contains("--seconds"));
        assert!(said(&["--live"]).contains("--live"));
    }
}
