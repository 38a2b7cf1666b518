//! Model files that mean no good.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use anyhow::Context;
use zip::write::{FileOptions, ZipWriter};
use zip::{CompressionMethod, ZipArchive};

use super::Scene;
use crate::report::Outcome;
use crate::server::{Server, fresh_folder};

/// What the forward pass of the shipped classifier begins with.
const FORWARD: &str = "    argument_1: Tensor) -> Tensor:\n";

/// The shipped classifier, whose forward pass runs this code first.
fn changed(shipped: &Path, code: &str) -> anyhow::Result<Vec<u8>> {
    let mut from = ZipArchive::new(Cursor::new(std::fs::read(shipped)?))?;
    let mut into = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = FileOptions::default().compression_method(CompressionMethod::Stored);
    for i in 0..from.len() {
        let mut entry = from.by_index(i)?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        if entry.name().ends_with(".py") {
            let text = String::from_utf8(bytes)?;
            bytes = text
                .replace(FORWARD, &format!("{FORWARD}{code}"))
                .into_bytes();
        }
        into.start_file(entry.name(), stored)?;
        into.write_all(&bytes)?;
    }
    Ok(into.finish()?.into_inner())
}

/// Models whose code reads or writes a file, written in ways that a search of the text would not find. None may be served.
pub(super) async fn files(scene: &Scene) -> anyhow::Result<Outcome> {
    let models = scene.pipelines.join("../modules/models");
    let folder = fresh_folder()?;
    std::fs::copy(models.join("light.labels"), folder.join("light.labels"))?;
    let pipeline = folder.join("p.yaml");
    let text = "name: p\nslo: 1s\nmodules:\n  light:\n    op: classifier\n    variants: [{ model: light.pt, input: 64 }]\n    \
                inputs: { image: $source.frame }\noutputs: { light: $light.labels }\n";
    std::fs::write(&pipeline, text)?;
    let secret = folder.join("secret");
    std::fs::write(&secret, [7; 4096])?;
    let (secret, target) = (secret.display().to_string(), folder.join("written"));
    let branch = "    if bool(torch.gt(torch.sum(argument_1), 1e30)):\n";
    let rest = "False, 16, dtype=6, layout=0, device=torch.device(\"cpu\"), pin_memory=False";
    let codes = [
        format!("    _9 = torch.from_file (\"{secret}\", {rest})\n    print(_9)\n"),
        format!("    _9 = ops.aten.from_file (\"{secret}\", {rest})\n    print(_9)\n"),
        format!(
            "{branch}      print(ops.aten.from_file(\"{secret}\", {rest}))\n    else:\n      pass\n"
        ),
        format!(
            "{branch}      torch.save (1, \"{}\")\n    else:\n      pass\n",
            target.display()
        ),
    ];
    let mut holds = true;
    for code in codes {
        let archive = changed(&models.join("light.pt"), &code).context("the shipped model")?;
        std::fs::write(folder.join("light.pt"), archive)?;
        let refused = match Server::start(&scene.spillgate, &pipeline, &[]).await {
            Ok(_) => false,
            Err(why) => why.to_string().contains("names aten::"),
        };
        holds &= refused;
    }
    holds &= !target.exists();
    std::fs::remove_dir_all(folder)?;
    Ok(Outcome {
        holds: Some(holds),
        ..Outcome::default()
    })
}
