//! The table of commands: what `cargo xtask help` lists and what `main` calls.

use std::fmt::Write as _;

use anyhow::Result;
use xtask::args::Args;
use xtask::workspace::Workspace;
use xtask::{setup, tools};

use crate::{
    bench, cargo, ci, demo, dist, e2e, faults, hostile, image, kubernetes, soak, swarm, tidy,
};

/// One command.
pub(crate) struct Command {
    /// What is typed after `cargo xtask`.
    pub(crate) name: &'static str,
    /// Its options, as the help shows them.
    pub(crate) options: &'static str,
    /// One line of help.
    pub(crate) help: &'static str,
    /// Does it.
    pub(crate) run: fn(&Workspace, Args) -> Result<()>,
}

const fn command(
    name: &'static str,
    options: &'static str,
    help: &'static str,
    run: fn(&Workspace, Args) -> Result<()>,
) -> Command {
    Command {
        name,
        options,
        help,
        run,
    }
}

/// Every command, in the order of the help.
pub(crate) const COMMANDS: &[Command] = &[
    command(
        "setup",
        "",
        "fetch libtorch and ONNX Runtime into third_party, unless they are there",
        setup::command,
    ),
    command(
        "demo",
        "[--frames N] [--fps F]",
        "serve the traffic pipeline, stream the synthetic scene to it, save annotated frames",
        demo::command,
    ),
    command(
        "test",
        "[--slowest] [CARGO TEST ARGS]",
        "setup, then every test of the workspace; --slowest: with the ten that took longest",
        cargo::test,
    ),
    command(
        "train",
        "[ARGS]",
        "train the shipped models on synthetic scenes",
        cargo::train,
    ),
    command(
        "eval",
        "[ARGS]",
        "measure the shipped models on scenes they have not seen",
        cargo::eval,
    ),
    command(
        "bench-overhead",
        "[--rounds N] [--seconds S] [--beside SPILLGATE]",
        "measure what the framework itself costs, beside a bare tonic echo (needs h2load)",
        bench::overhead,
    ),
    command(
        "bench-processes",
        "[--rounds N] [--seconds S] [--spillgate PATH] [--write]",
        "measure what separate processes cost, beside one process and a bare tonic relay (needs h2load)",
        bench::processes,
    ),
    command(
        "bench-peers",
        "[--seconds N] [--rates 30,60,100] [--only spillgate,mosec,ray,triton] [--seed N] [--spillgate PATH] [--write]",
        "measure good answers under overload, beside servers that install from PyPI",
        bench::peers,
    ),
    command(
        "live",
        "[--seconds N] [--loads 0.7,0.9,1.0,1.1,1.3] [--policies spillgate,pard,...] [--real] [--spillgate PATH] [--write]",
        "serve and simulate the same arrivals side by side; --real: overload the traffic pipeline too",
        bench::live,
    ),
    command(
        "live-adapting",
        "[--seconds N] [--loads 0.8,1,1.3,2] [--seed N] [--spillgate PATH] [--write]",
        "offer the traffic pipeline more than the largest variant serves: dropping, adaptation, and both",
        bench::live_adapting,
    ),
    command(
        "live-cameras",
        "[--network FOLDER] [--seconds N] [--clients 4,8] [--traces synthetic,wifi,lte] [--adapt greedy,spillgate] [--fps 10] [--slo 400ms] \
         [--link-rtt 20ms] [--seed N] [--spillgate PATH] [--write]",
        "serve cameras on links that change, under each way to choose variants and every fixed one",
        bench::live_cameras,
    ),
    command(
        "live-cluster",
        "[--seconds N] [--loads 0.7,0.9,1.1] [--seed N] [--spillgate PATH] [--write]",
        "serve the same arrivals by separate processes and in the simulated cluster; then overload separate processes",
        bench::live_cluster,
    ),
    command(
        "live-dynamic",
        "[--seconds N] [--rounds N] [--loads 1.0,1.3] [--schedules goodput,orloj,...] [--seed N] [--spillgate PATH] [--write]",
        "batch schedulers side by side on networks whose time depends on the input",
        bench::live_dynamic,
    ),
    command(
        "live-models",
        "[--seconds N] [--models N] [--cache N] [--rates 50,100,150] [--placements spillgate,lru,...] [--device cuda:0] [--seed N] [--spillgate PATH] [--write]",
        "serve many models from the memory of a few, under each placement and in the simulator",
        bench::live_models,
    ),
    command(
        "live-prediction",
        "[--seconds N] [--load 0.8] [--device cuda:0] [--spillgate PATH] [--write]",
        "how far batches are from their expected times, beside a bare loop of the same networks",
        bench::live_prediction,
    ),
    command(
        "live-shares",
        "[--seconds N] [--only NAME] [--spillgate PATH]",
        "what polite clients get beside greedy ones, with fair shares and without",
        bench::live_shares,
    ),
    command(
        "hostile",
        "[--seconds N] [--soak N] [--only NAME] [--spillgate PATH]",
        "attack a release build as hostile clients would, beside polite ones; --soak 600 for ten minutes",
        hostile::command,
    ),
    command("fmt", "[--check]", "format every crate", cargo::fmt),
    command(
        "clippy",
        "",
        "lint every target of every crate; warnings are errors",
        cargo::clippy,
    ),
    command(
        "doc",
        "",
        "build the documentation; warnings are errors",
        cargo::doc,
    ),
    command(
        "tidy",
        "[--no-build] [--spillgate PATH]",
        "the project's own checks: layering, pure policies, sizes, links, pipelines",
        tidy::command,
    ),
    command(
        "deny",
        "",
        "licences, banned and duplicate crates, sources (cargo-deny)",
        tools::deny,
    ),
    command(
        "sim-smoke",
        "",
        "the policies and a quick simulation; needs no libtorch",
        cargo::sim_smoke,
    ),
    command(
        "swarm",
        "[--seeds N] [--from SEED] [--seed SEED]",
        "simulate clusters drawn from seeds, with faults: 10000 of them, or one seed that broke",
        swarm::command,
    ),
    command(
        "faults",
        "[--quick] [--rounds N] [NAME...]",
        "kill, stop and cut off real processes and fill their disks, and count how each request ends (docs/failures.md)",
        faults::command,
    ),
    command(
        "soak",
        "[--minutes 30] [--seed N]",
        "load a set of processes for long while one of them is killed, ended or stopped every 20 s, and count how each request ends",
        soak::command,
    ),
    command(
        "jaeger",
        "",
        "build the pinned Jaeger, unless it is there, and run it",
        tools::jaeger,
    ),
    command(
        "grpcurl",
        "",
        "build the pinned grpcurl, unless it is there",
        tools::grpcurl,
    ),
    command(
        "tools",
        "",
        "build all the foreign tools that e2e and deny use",
        tools::all,
    ),
    command(
        "e2e",
        "",
        "end-to-end tests against real processes: Jaeger, grpcurl, Python",
        e2e::command,
    ),
    command(
        "dist",
        "[--with-libtorch]",
        "make the release archive under dist/",
        dist::command,
    ),
    command(
        "image",
        "[--debug] [--operator] [--program PATH] [OUT.tar]",
        "make a container image without a container engine, dist/spillgate-image.tar; --operator: that of the operator",
        image::command,
    ),
    command(
        "kubernetes",
        "[--debug] [--spillgate PATH] [--operator PATH] [--keep] [SCENARIO...]",
        "start a real Kubernetes on this machine, try the product on it, and take it down (needs root and Debian's containerd)",
        kubernetes::command,
    ),
    command(
        "cluster",
        "up | down | image FILE.tar | kubectl ARGS",
        "the Kubernetes of `kubernetes` by hand",
        kubernetes::cluster,
    ),
    command(
        "ci",
        "",
        "everything that CI runs, in its order",
        ci::command,
    ),
];

/// The command of this name.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// The list of commands, one line each.
pub(crate) fn help() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND [OPTIONS]\n\n");
    for command in COMMANDS {
        let _ = writeln!(text, "  {:<10} {}", command.name, command.help);
        if !command.options.is_empty() {
            let _ = writeln!(text, "  {:<10}   {}", "", command.options);
        }
    }
    let _ = writeln!(text, "  {:<10} this list", "help");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command_once_and_names_are_unique() {
        let help = help();
        for command in COMMANDS {
            let lines = help
                .lines()
                .filter(|line| line.starts_with(&format!("  {} ", command.name)));
            assert_eq!(lines.count(), 1, "{}", command.name);
            assert_eq!(
                COMMANDS
                    .iter()
                    .filter(|other| other.name == command.name)
                    .count(),
                1
            );
            assert!(find(command.name).is_some());
        }
        assert!(find("no-such-command").is_none());
    }
}
