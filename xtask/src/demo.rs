//! `demo`: the whole product on this machine, once: a server, a client, annotated frames.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::address::await_address;
use xtask::args::Args;
use xtask::process::{self, Daemon, Ended};
use xtask::setup;
use xtask::workspace::Workspace;

use crate::profile::Profile;

/// What the server may take to answer what is in flight: many times the pipeline's objective.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// How much is streamed.
pub(crate) struct Options {
    /// Frames sent.
    pub(crate) frames: u32,
    /// Frames sent a second.
    pub(crate) fps: u32,
    /// Which build serves and streams.
    pub(crate) profile: Profile,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        // Ten seconds of video at a rate that two cores keep up with.
        let mut options = Options {
            frames: 100,
            fps: 10,
            profile: Profile::Release,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("frames") => options.frames = parser.value()?.parse()?,
                Long("fps") => options.fps = parser.value()?.parse()?,
                other => return Err(other.unexpected().into()),
            }
        }
        if options.frames == 0 || options.fps == 0 {
            bail!("--frames and --fps must be at least 1");
        }
        Ok(options)
    }
}

/// `cargo xtask demo`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, &Options::parse(args)?)
}

/// Builds, serves, streams, and leaves nothing running.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::run(workspace)?;
    if let Profile::Release = options.profile {
        println!("demo: building the release binary: some minutes the first time ...");
    }
    let spillgate = options.profile.program(workspace, "spillgate")?;

    let out = workspace.path("out/demo");
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    std::fs::create_dir_all(&out)?;
    let port_file = out.join("address");
    let log = out.join("server.log");
    let mut server = Daemon::start(
        "the server",
        workspace
            .program(&spillgate)
            .args([
                "serve",
                "apps/pipelines/traffic.yaml",
                "--listen",
                "127.0.0.1:0",
            ])
            .args(["--admin", "127.0.0.1:0", "--port-file"])
            .arg(&port_file),
        &log,
    )?;
    let address = await_address(&mut server, &port_file)?;
    println!("demo: serving apps/pipelines/traffic.yaml at {address} (log: out/demo/server.log)");

    // On an error the server is stopped as it goes out of scope.
    process::run(&mut stream(workspace, &spillgate, &address, options, &out))?;

    match server.stop(DRAIN_LIMIT)? {
        Ended::Itself(status) if status.success() => {}
        Ended::Itself(status) => bail!("the server ended with {status}; see out/demo/server.log"),
        Ended::Killed => bail!("the server did not end within {DRAIN_LIMIT:?} of SIGTERM"),
    }
    // A thread that dies need not take the server with it.
    if std::fs::read_to_string(&log)?.contains("panicked at") {
        bail!("a thread of the server panicked; see out/demo/server.log");
    }
    std::fs::remove_file(&port_file)?;
    println!(
        "demo: annotated frames are in out/demo/frames, each result in out/demo/results.jsonl"
    );
    Ok(())
}

fn stream(
    workspace: &Workspace,
    spillgate: &Path,
    address: &str,
    options: &Options,
    out: &Path,
) -> Command {
    let mut client = workspace.program(spillgate);
    client.args([
        "stream",
        "scene:",
        "--server",
        address,
        "--pipeline",
        "traffic",
        "--verbose",
    ]);
    client.args([
        "--frames",
        &options.frames.to_string(),
        "--fps",
        &options.fps.to_string(),
    ]);
    client.arg("--save-frames").arg(out.join("frames"));
    client.arg("--results").arg(out.join("results.jsonl"));
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(Into::into).collect());
        let options = parse(&["--frames", "7", "--fps=3"]).unwrap();
        assert_eq!((options.frames, options.fps), (7, 3));
        assert!(parse(&["--frames", "0"]).is_err());
        assert!(parse(&["--frame", "1"]).is_err());
    }
}
