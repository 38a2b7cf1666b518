//! `live`: does the server do what the simulator predicts? Both get the same arrivals, on emulated devices. Then the
//! pipeline with models runs on this machine at twice its capacity.

mod arrivals;
pub(crate) mod cameras;
pub(crate) mod cluster;
pub(crate) mod dynamic;
mod emulated;
pub(crate) mod models;
pub(crate) mod prediction;
mod real;
mod report;
mod server;
pub(crate) mod shares;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::workspace::Workspace;

use crate::peers;

use report::Report;

/// Pipelines, arrivals and logs of the last run.
const OUT: &str = "out/live";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/live.md";

/// The options of both commands.
struct Common {
    spillgate: Option<PathBuf>,
    seconds: usize,
    loads: Vec<f64>,
    seed: u64,
    write: bool,
}

impl Common {
    fn new(seconds: usize, loads: &[f64]) -> Common {
        Common {
            spillgate: None,
            seconds,
            loads: loads.to_vec(),
            seed: 1,
            write: false,
        }
    }

    /// Reads the value of an option. False when it is none of these.
    fn read(&mut self, option: &str, parser: &mut lexopt::Parser) -> Result<bool> {
        match option {
            "spillgate" => self.spillgate = Some(parser.value()?.into()),
            "seconds" => self.seconds = parser.value()?.parse()?,
            "loads" => self.loads = loads(&parser.value()?.string()?)?,
            "seed" => self.seed = parser.value()?.parse()?,
            "write" => self.write = true,
            _ => return Ok(false),
        }
        if !(2..=600).contains(&self.seconds) {
            bail!("--seconds must be from 2 to 600");
        }
        Ok(true)
    }

    /// The options that affect results, with a command's own options between them.
    fn shown(&self, own: &str) -> String {
        let loads: Vec<String> = self.loads.iter().map(f64::to_string).collect();
        let (seconds, loads, seed) = (self.seconds, loads.join(","), self.seed);
        format!("--seconds {seconds} --loads {loads} {own} --seed {seed}")
    }
}

/// Reads options until there is none left: `own` those of one command, [`Common`] the others.
fn read_options<O>(
    args: Args,
    options: &mut O,
    common: impl Fn(&mut O) -> &mut Common,
    own: impl Fn(&mut O, &str, &mut lexopt::Parser) -> Result<bool>,
) -> Result<()> {
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(argument) = parser.next()? {
        let Long(name) = argument else {
            return Err(argument.unexpected().into());
        };
        let name = name.to_owned();
        let known =
            own(options, &name, &mut parser)? || common(options).read(&name, &mut parser)?;
        if !known {
            return Err(Long(&name).unexpected().into());
        }
    }
    Ok(())
}

struct Options {
    common: Common,
    policies: Vec<String>,
    real: bool,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            common: Common::new(30, &[0.7, 0.9, 1.0, 1.1, 1.3]),
            policies: ["spillgate", "pard", "nexus-split", "nexus", "clipper++"]
                .map(str::to_owned)
                .to_vec(),
            real: false,
        };
        let own = |options: &mut Options, name: &str, parser: &mut lexopt::Parser| {
            match name {
                "policies" => {
                    options.policies = names("--policies", &parser.value()?.string()?)?;
                }
                "real" => options.real = true,
                _ => return Ok(false),
            }
            Ok(true)
        };
        read_options(args, &mut options, |options| &mut options.common, own)?;
        Ok(options)
    }

    /// The command that does the same again.
    fn shown(&self) -> String {
        let own = format!("--policies {}", self.policies.join(","));
        let real = if self.real { " --real" } else { "" };
        format!("cargo xtask live {}{real}", self.common.shown(&own))
    }
}

fn loads(text: &str) -> Result<Vec<f64>> {
    text.split(',')
        .map(|word| match word.trim().parse() {
            // At higher rates the client would be measured.
            Ok(load) if (0.05..=3.0).contains(&load) => Ok(load),
            _ => bail!("--loads: {word:?} is not a number from 0.05 to 3"),
        })
        .collect()
}

/// Of policies or schedulers.
fn names(option: &str, text: &str) -> Result<Vec<String>> {
    text.split(',')
        .map(|word| match word.trim() {
            // The server checks whether there is one of that name.
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
    let (program, out) = prepared(workspace, options.common.spillgate.as_deref(), OUT)?;
    let machine = machine();
    let emulated = emulated::run(workspace, &program, &options, &out)?;
    println!(
        "\n{}\n{}",
        report::emulated_table(&emulated, options.common.seconds),
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
    if options.common.write {
        let text = Report {
            command: options.shown(),
            machine,
            seconds: options.common.seconds,
            emulated: &emulated,
            real: real.as_ref(),
        }
        .document();
        let document = workspace.path(DOCUMENT);
        std::fs::create_dir_all(document.parent().unwrap_or(Path::new(".")))?;
        spillgate_output::write(&document, text)?;
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
        assert!(options.common.write && options.common.loads == [0.5, 2.0]);
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
