//! `live-shares`: what polite clients get of a real server beside greedy ones. Each row is served three times, by a fresh
//! server each: to the polite clients alone, to all of them told apart, and to all of them as one client with one stream,
//! which is the entry gate without shares.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use serde_json::Value;
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

use super::emulated::whole;
use super::server::Server;
use super::{machine, prepared};

/// Pipelines, tokens and logs of the last run.
const OUT: &str = "out/shares";
/// A server knows its capacity once every module has published its state.
const SETTLES: Duration = Duration::from_secs(2);
/// Makes all requests those of one client with one stream.
const ONE_CLIENT: &str = "clients: { by: application, streams: application }";
/// Tokens of clients on hosts of their own, and the hashes that the server reads.
const TOKENS: [(&str, &str, &str); 2] = [
    (
        "polite",
        "sgt_polite",
        "7c070a431b11785e98e85f5117979089680e71f48b75b92144519a770a6f3b8e",
    ),
    (
        "greedy",
        "sgt_greedy",
        "2c2abdbf54620193b86b616f0fba20c76106be586f8ba21b4cc15d70ef50a71d",
    ),
];

/// Clients of one kind: processes of `bench`.
#[derive(Clone, Copy)]
struct Sends {
    processes: usize,
    /// Streams of each process; 0: unary calls.
    streams: usize,
    /// Requests a second of each process.
    rate: f64,
}

/// Polite clients beside one greedy client.
struct Row {
    words: &'static str,
    pipeline: &'static str,
    polite: Sends,
    greedy: Sends,
    /// They are on hosts of their own: each shows its token. If not, they are one client.
    apart: bool,
}

const fn unary(rate: f64) -> Sends {
    Sends {
        processes: 1,
        streams: 0,
        rate,
    }
}

const fn beside(words: &'static str, rate: f64) -> Row {
    Row {
        words,
        pipeline: "two_stage",
        polite: unary(10.0),
        greedy: unary(rate),
        apart: true,
    }
}

const fn cameras(words: &'static str, pipeline: &'static str, processes: usize) -> Row {
    let streams = 7 / processes;
    Row {
        words,
        pipeline,
        polite: Sends {
            processes,
            streams,
            rate: 5.0 * streams as f64,
        },
        greedy: Sends {
            processes: 1,
            streams: 1,
            rate: 150.0,
        },
        apart: false,
    }
}

const ROWS: [Row; 8] = [
    beside("10/s beside 45/s", 45.0),
    beside("10/s beside 100/s", 100.0),
    beside("10/s beside 500/s", 500.0),
    beside("10/s beside 2500/s", 2500.0),
    cameras(
        "7 streams of 5/s of one process, beside 150/s",
        "two_stage",
        1,
    ),
    cameras(
        "7 processes of 5/s on one host, beside 150/s",
        "two_stage",
        7,
    ),
    cameras("the same streams, traffic pipeline", "traffic", 1),
    cameras("the same processes, traffic pipeline", "traffic", 7),
];

/// Answers in time: of the polite clients, and of all.
#[derive(Clone, Copy, Debug, Default)]
struct Good {
    polite: u64,
    asked: u64,
    all: u64,
}

struct Options {
    spillgate: Option<PathBuf>,
    seconds: usize,
    only: String,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            spillgate: None,
            seconds: 12,
            only: String::new(),
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("spillgate") => options.spillgate = Some(parser.value()?.into()),
                Long("seconds") => options.seconds = parser.value()?.parse()?,
                Long("only") => options.only = parser.value()?.string()?,
                _ => return Err(argument.unexpected().into()),
            }
        }
        if !(2..=600).contains(&options.seconds) {
            bail!("--seconds must be from 2 to 600");
        }
        Ok(options)
    }
}

/// `cargo xtask live-shares`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    let (program, out) = prepared(workspace, options.spillgate.as_deref(), OUT)?;
    let runs = Runs {
        workspace,
        program: &program,
        out: &out,
        seconds: options.seconds,
    };
    println!("{}; {} s each\n", machine(), options.seconds);
    println!(
        "| clients | asked | alone | without shares | with shares | of alone | all, without | all, with | of without |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in ROWS {
        if !row.words.contains(&options.only) && !row.pipeline.contains(&options.only) {
            continue;
        }
        let alone = runs.serve(&row, true, true)?;
        let without = runs.serve(&row, false, false)?;
        let with = runs.serve(&row, true, false)?;
        println!("{}", line(row.words, alone, without, with));
    }
    Ok(())
}

fn line(words: &str, alone: Good, without: Good, with: Good) -> String {
    let part = |of: u64, all: u64| of as f64 / all.max(1) as f64;
    format!(
        "| {words} | {} | {} | {} | {} | {:.3} | {} | {} | {:.3} |",
        alone.asked,
        alone.polite,
        without.polite,
        with.polite,
        part(with.polite, alone.polite),
        without.all,
        with.all,
        part(with.all, without.all),
    )
}

struct Runs<'a> {
    workspace: &'a Workspace,
    program: &'a Path,
    out: &'a Path,
    seconds: usize,
}

impl Runs<'_> {
    /// Serves a row by a fresh server: with shares or without, to all clients or to the polite ones alone.
    fn serve(&self, row: &Row, with_shares: bool, alone: bool) -> Result<Good> {
        let pipeline = self.prepare(row.pipeline, with_shares)?;
        let tokens = self.out.join("tokens.yaml");
        let own = TOKENS.map(|(name, _, hash)| {
            format!("- {{ name: {name}, sha256: \"{hash}\", pipelines: all }}\n")
        });
        spillgate_output::write(&tokens, format!("tokens:\n{}", own.concat()))?;
        let mut arguments: Vec<&str> = Vec::new();
        if row.apart {
            let tokens = tokens.to_str().context("the path is not UTF-8")?;
            arguments.extend(["--tokens", tokens]);
        }
        let server = Server::start_with(
            self.workspace,
            self.program,
            &pipeline,
            self.out,
            &arguments,
        )?;
        thread::sleep(SETTLES);
        let mut senders = vec![(0, row.polite); row.polite.processes];
        if !alone {
            senders.push((1, row.greedy));
        }
        let said = thread::scope(|scope| {
            let start = |&(kind, sends)| {
                let url = server.url();
                scope.spawn(move || Ok((kind, self.send(row, url, kind, sends)?)))
            };
            let running: Vec<_> = senders.iter().map(start).collect();
            let ended = running
                .into_iter()
                .map(|t| t.join().expect("it does not panic"));
            ended.collect::<Result<Vec<(usize, Value)>>>()
        })?;
        server.stop()?;
        let mut good = Good::default();
        for (kind, said) in said {
            let completed = whole(&said["outcomes"], "completed")?;
            good.all += completed;
            if kind == 0 {
                good.polite += completed;
                good.asked += whole(&said, "requests")?;
            }
        }
        Ok(good)
    }

    /// Runs one process of clients to its end.
    fn send(&self, row: &Row, url: &str, kind: usize, sends: Sends) -> Result<Value> {
        let mut bench = self.workspace.program(self.program);
        bench.args(["bench", "--server", url, "--json", "-"]);
        bench.args(["--rate", &sends.rate.to_string()]);
        bench.args(["--duration", &format!("{}s", self.seconds)]);
        match row.pipeline {
            "traffic" => bench.args(["--scene", "seed=7,density=0.3", "--frames", "4"]),
            _ => bench.args(["--payload-bytes", "64"]),
        };
        if row.apart {
            let file = self.out.join(TOKENS[kind].0);
            spillgate_output::write(&file, TOKENS[kind].1)?;
            bench.arg("--token-file").arg(file);
        }
        // The same for all: where shares are switched off all requests are those of one application.
        bench.args(["--application", "any"]);
        if sends.streams > 0 {
            bench.args(["--stream", "--connections", &sends.streams.to_string()]);
        }
        // 1 without a word on why: nothing was served in time. That is a result too.
        let said = process::capture_unless(&mut bench, |s| !matches!(s.code(), Some(0 | 1)))?;
        serde_json::from_str(&said).context("bench gives no result")
    }

    /// A copy of the pipeline, with its profile and what it says of clients.
    fn prepare(&self, name: &str, with_shares: bool) -> Result<PathBuf> {
        let source = self.workspace.path(&format!("apps/pipelines/{name}.yaml"));
        let models = self.workspace.path("apps/modules/models");
        let models = models.to_str().context("the path is not UTF-8")?;
        let text = std::fs::read_to_string(source)?;
        let text = text.replace("../modules/models/", &format!("{models}/"));
        let clients = if with_shares { "" } else { ONE_CLIENT };
        // Shares are compared at one capacity.
        let policy = match text.contains("variants:") {
            true => "policy: { adapt: fixed }\n",
            false => "",
        };
        let pipeline = self.out.join(format!("{name}.yaml"));
        spillgate_output::write(
            &pipeline,
            format!("{}\n{policy}{clients}\n", text.trim_end()),
        )?;
        let profile = format!("{name}.profile.yaml");
        let known = self.workspace.path(&format!("apps/pipelines/{profile}"));
        if known.exists() {
            std::fs::copy(known, self.out.join(&profile))?;
        } else {
            super::real::profile_once(self.workspace, self.program, &pipeline)?;
        }
        Ok(pipeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(Into::into).collect());
        let options = parse(&["--seconds", "3", "--only", "traffic"]).unwrap();
        assert_eq!((options.seconds, options.only.as_str()), (3, "traffic"));
        assert!(parse(&["--seconds", "1"]).is_err());
        assert!(parse(&["--loads", "1"]).is_err());
    }

    #[test]
    fn a_line_compares_with_alone_and_with_the_gate() {
        let good = |polite, all| Good {
            polite,
            asked: 120,
            all,
        };
        let line = line("a", good(120, 120), good(59, 600), good(117, 597));
        assert_eq!(
            line,
            "| a | 120 | 120 | 59 | 117 | 0.975 | 600 | 597 | 0.995 |"
        );
    }
}
