//! Pipelines to be attacked, on emulated devices.

use std::path::{Path, PathBuf};

/// Writes a pipeline and its profile into a folder.
fn write(folder: &Path, name: &str, yaml: &str, profile: &str) -> anyhow::Result<PathBuf> {
    let file = folder.join(format!("{name}.yaml"));
    std::fs::write(&file, yaml)?;
    std::fs::write(folder.join(format!("{name}.profile.yaml")), profile)?;
    Ok(file)
}

/// A module that takes this many milliseconds for each picture.
pub(crate) fn look(folder: &Path, ms: u32, slo: &str) -> anyhow::Result<PathBuf> {
    std::fs::write(folder.join("look.pt"), "an emulated device runs no model")?;
    let yaml = format!(
        "name: look\nslo: {slo}\nmodules:\n  look: {{ op: detector, model: look.pt, input: 320, inputs: {{ image: $source.frame }}, \
         device: emulated, batch: {{ max: 1 }} }}\noutputs: {{ boxes: $look.boxes }}\n"
    );
    let profile = format!(
        "emulated:\n  look:\n    \"look.pt@320\":\n      - {{ batch: 1, mean: {ms}ms, p50: {ms}ms, p99: {ms}ms }}\n"
    );
    write(folder, "look", &yaml, &profile)
}

/// A module that takes this many milliseconds, with so many models whose names are numbers of 52 digits.
pub(crate) fn family(folder: &Path, ms: u32, models: u32) -> anyhow::Result<PathBuf> {
    for n in 0..models {
        std::fs::write(folder.join(format!("{n:052}.pt")), "")?;
    }
    let yaml = format!(
        "name: family\nslo: 200ms\nmodules:\n  look: {{ op: detector, models: \"*.pt\", default_model: \"{:052}\", input: 320, inputs: {{ image: \
         $source.frame }}, device: emulated, batch: {{ max: 1 }} }}\noutputs: {{ boxes: $look.boxes }}\n",
        0
    );
    let profile = format!(
        "emulated:\n  look:\n    \"*.pt@320\":\n      - {{ batch: 1, mean: {ms}ms, p50: {ms}ms, p99: {ms}ms }}\n"
    );
    write(folder, "family", &yaml, &profile)
}

/// A module that echoes its payload after this many milliseconds.
pub(crate) fn echo(folder: &Path, ms: u32, slo: &str, limits: &str) -> anyhow::Result<PathBuf> {
    let yaml = format!(
        "name: echo\nslo: {slo}\nsource: {{ payload: bytes }}\nmodules:\n  echo: {{ op: noop, inputs: {{ payload: \
         $source.payload }}, device: emulated, batch: {{ max: 1 }}, queue: 1024 }}\noutputs: {{ payload: $echo.payload }}\n\
         limits: {limits}\n"
    );
    let profile = format!(
        "emulated:\n  echo:\n    \"-\":\n      - {{ batch: 1, mean: {ms}ms, p50: {ms}ms, p99: {ms}ms }}\n"
    );
    write(folder, "echo", &yaml, &profile)
}
