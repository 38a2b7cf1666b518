//! The traffic pipeline and its cameras, as processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use xtask::process;
use xtask::workspace::Workspace;

use super::report::Choice;
use crate::live::real::{PIPELINE, profile_once};
use crate::live::server::Server;

/// A server knows its capacity once every module has published its state.
const SETTLES: Duration = Duration::from_secs(2);

/// What is started, and where.
pub(super) struct Site<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) program: &'a Path,
    /// Gets the pipeline's file and logs.
    pub(super) out: &'a Path,
    pub(super) slo: &'a str,
    /// Of the first camera's scene; each has its own.
    pub(super) seed: u64,
    /// The pipeline's file as it is shipped.
    shipped: String,
    /// Sides of the variants' inputs, by rising accuracy.
    inputs: Vec<u64>,
}

impl<'a> Site<'a> {
    /// Measures the profile that all runs share.
    pub(super) fn new(
        workspace: &'a Workspace,
        program: &'a Path,
        out: &'a Path,
        (slo, seed): (&'a str, u64),
    ) -> Result<Self> {
        let shipped = workspace.path(&format!("apps/pipelines/{PIPELINE}.yaml"));
        let shipped = std::fs::read_to_string(shipped)?;
        let site = Site {
            workspace,
            program,
            out,
            slo,
            seed,
            inputs: inputs(&shipped)?,
            shipped,
        };
        profile_once(workspace, program, &site.prepare(&site.largest(), None)?)?;
        Ok(site)
    }

    /// One variant for all, each of them, by rising size.
    pub(super) fn fixed(&self) -> impl Iterator<Item = Choice> {
        let variants = (0..).zip(&self.inputs);
        variants.map(|(idx, side)| Choice::Fixed { idx, side: *side })
    }

    /// The largest variant for all.
    pub(super) fn largest(&self) -> Choice {
        self.fixed().last().expect("there are variants")
    }

    /// The side of its input.
    pub(super) fn side(&self) -> u64 {
        self.inputs.last().copied().expect("there are variants")
    }

    fn prepare(&self, choice: &Choice, drop: Option<&str>) -> Result<PathBuf> {
        let models = self.workspace.path("apps/modules/models");
        let models = models.to_str().context("the path is not UTF-8")?;
        let text = prepared_text(&self.shipped, models, self.slo, (choice, drop))?;
        let pipeline = self.out.join(format!("{PIPELINE}.yaml"));
        spillgate_output::write(&pipeline, text)?;
        Ok(pipeline)
    }

    /// A server that chooses variants like that, with this drop policy in place of the usual one.
    pub(super) fn start(&self, choice: &Choice, drop: Option<&str>) -> Result<Server> {
        let pipeline = self.prepare(choice, drop)?;
        let server = Server::start(self.workspace, self.program, &pipeline, self.out)?;
        std::thread::sleep(SETTLES);
        Ok(server)
    }

    /// `spillgate stream` of one camera with a scene of its own, at so many frames a second for so many seconds.
    pub(super) fn camera(&self, url: &str, n: usize, (fps, seconds): (f64, usize)) -> Command {
        let mut stream = self.workspace.program(self.program);
        let seed = self.seed + n as u64;
        stream.args(["stream", &format!("scene:seed={seed}"), "--quiet"]);
        stream.args(["--server", url, "--name", &format!("camera-{n}")]);
        stream.args(["--fps", &fps.to_string()]);
        stream.args(["--duration", &format!("{seconds}s")]);
        stream
    }
}

/// Runs a camera to its end.
pub(super) fn stream(camera: &mut Command) -> Result<()> {
    // 1 without a word on why: nothing was served. That is a result too.
    process::capture_unless(camera, |status| !matches!(status.code(), Some(0 | 1))).map(drop)
}

/// The result of each, all at the same time.
pub(super) fn in_parallel<T: Send>(
    each: &[usize],
    run: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = each.iter().map(|n| scope.spawn(move || run(*n))).collect();
        let ended = running
            .into_iter()
            .map(|t| t.join().expect("it does not panic"));
        ended.collect()
    })
}

/// The inputs of the variants in a pipeline's file, as they are written there: by rising accuracy.
fn inputs(text: &str) -> Result<Vec<u64>> {
    let of = |line: &str| {
        let (_, rest) = line.split_once("input: ")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    let inputs: Vec<u64> = text.lines().filter_map(of).collect();
    match inputs.len() >= 2 && inputs.is_sorted() {
        true => Ok(inputs),
        false => bail!("the pipeline file names no variants by rising input"),
    }
}

/// The pipeline with these models, this SLO, this choice, and this drop policy in place of the usual one, where frames may be as small as the
/// smallest variant.
fn prepared_text(
    text: &str,
    models: &str,
    slo: &str,
    (choice, drop): (&Choice, Option<&str>),
) -> Result<String> {
    let (mut has_slo, mut has_least) = (false, false);
    let mut copy = String::new();
    for line in text.lines() {
        let word = line.trim_start();
        if word.starts_with("frame_min:") {
            has_least = true;
            continue;
        }
        match line.starts_with("slo:") {
            true => copy.push_str(&format!("slo: {slo}\n")),
            false => copy.push_str(&format!("{}\n", line.replace("../modules/models", models))),
        }
        has_slo |= line.starts_with("slo:");
        if line.starts_with("policy:") {
            bail!("the pipeline file names a policy already");
        }
    }
    if !has_slo || !has_least {
        bail!("the pipeline file has no slo: or no frame_min: in lines of their own");
    }
    let drop = drop.map_or_else(String::new, |drop| format!(", drop: {drop}"));
    copy.push_str(&format!("policy: {{ adapt: {}{drop} }}\n", choice.yaml()));
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that is shipped has all that is looked for in it.
    #[test]
    fn the_shipped_pipeline_is_served_in_every_size() {
        let shipped = include_str!("../../../../../apps/pipelines/traffic.yaml");
        assert_eq!(inputs(shipped).unwrap(), [128, 192, 256, 320]);
        let largest = Choice::Fixed { idx: 3, side: 320 };
        let text = prepared_text(shipped, "/models", "600ms", (&largest, None)).unwrap();
        assert!(text.contains("\nslo: 600ms\n") && !text.contains("400ms"));
        assert!(text.contains("{ model: /models/road.pt, input: 128") && !text.contains(".."));
        assert!(shipped.contains("frame_min: 640") && !text.contains("frame_min:"));
        assert!(text.ends_with("\npolicy: { adapt: { name: fixed, variant: 3 } }\n"));
        let named = Choice::Named("greedy".to_owned());
        let dropping = prepared_text(shipped, "/models", "1s", (&named, Some("pard"))).unwrap();
        assert!(dropping.ends_with("\npolicy: { adapt: greedy, drop: pard }\n"));
        assert!(
            prepared_text(&text, "", "1s", (&named, None)).is_err(),
            "twice a policy"
        );
        assert!(prepared_text("name: x\n", "", "1s", (&named, None)).is_err());
        assert!(inputs("input: 64\n").is_err());
    }
}
