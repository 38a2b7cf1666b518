//! Families of models: `models:` and `default_model:`.

use spillgate_pipeline::compile::{Outside, compile_with};
use spillgate_pipeline::diagnostic::Diagnostics;
use spillgate_pipeline::family::MEMBERS_MAX;
use spillgate_pipeline::id::MemberId;
use spillgate_pipeline::{Pipeline, compile};

use crate::compile::catalog;
use crate::compile::errors::Golden;

/// The files of the folders `m`, `twins` and `crowd`; there are no others.
fn files(folder: &str, is_asked_for: &dyn Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let all: Vec<String> = match folder {
        "m" => ["cam-2.pt", "cam-10.pt", "cam-1.pt", ".cam.pt", "cam.labels"]
            .map(str::to_owned)
            .to_vec(),
        "twins" => ["a.pt", "b.pt", "b.pth"].map(str::to_owned).to_vec(),
        "crowd" => (0..=MEMBERS_MAX).map(|i| format!("{i}.pt")).collect(),
        _ => return Err("No such file or directory (os error 2)".to_owned()),
    };
    Ok(all.into_iter().filter(|name| is_asked_for(name)).collect())
}

fn file(fields: &str) -> String {
    format!(
        "name: traffic\nslo: 400ms\nmodules:\n  detect:\n    op: detector\n    inputs: {{ image: $source.frame }}\n    \
         {fields}\noutputs: {{ vehicles: $detect.vehicles }}\n"
    )
}

fn listed(fields: &str) -> Result<Pipeline, Diagnostics> {
    let outside = Outside {
        files: Some(&files),
        ..Outside::NOTHING
    };
    compile_with(&file(fields), "traffic.yaml", &catalog(), None, outside).map(|c| c.pipeline)
}

/// Cases of the golden file.
pub(crate) fn errors(golden: &mut Golden) {
    for fields in [
        "models: m/*.pt\n    model: a.pt",
        "models: m/*.pt\n    variants: [{ model: a.pt }]",
        "model: a.pt\n    default_model: a",
        "models: \"\"",
        "models: [m/*.pt]",
        "models: m/",
        "models: m/a.pt",
        "models: \"*/a.pt\"",
        "models: n/*.pt",
        "models: \"*.pt\"",
        "models: m/*.onnx",
        "models: twins/*",
        "models: crowd/*.pt",
        "models: m/*.pt\n    default_model: cam-3",
        "models: m/*.pt\n    default_model: front door",
    ] {
        let diagnostics = listed(fields).map(|_| ()).expect_err(fields);
        golden.case(fields, &diagnostics.list);
    }
}

#[test]
fn members_are_named_by_their_files_and_numbered_by_their_names() {
    let pipeline = listed("models: m/*.pt\n    default_model: cam-10\n    input: 320").unwrap();
    let module = &pipeline.modules[1];
    let family = module.family.as_deref().expect("a family");
    let names: Vec<&str> = family.members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["cam-1", "cam-10", "cam-2"]);
    assert_eq!(family.default, Some(MemberId(1)));
    assert_eq!(family.find("cam-2"), Some(MemberId(2)));
    assert_eq!(family.find("cam-3"), None);
    assert_eq!(family.near("can-10").as_deref(), Some("cam-10"));
    assert_eq!(pipeline.families().count(), 1);
    // One profile for all, by the pattern.
    assert_eq!(module.profile_key(0), "m/*.pt@320");
    let one = module.of_member(MemberId(2));
    assert_eq!(one.variants[0].model, "m/cam-2.pt");
    assert_eq!((one.variants[0].input, one.family), (Some(320), None));
}

#[test]
fn where_no_files_are_listed_a_family_has_no_members() {
    let text = file("models: m/*.pt\n    default_model: cam-7");
    let compiled = compile(&text, "t.yaml", &catalog(), None).unwrap_or_else(|e| panic!("{e}"));
    let family = compiled.pipeline.modules[1].family.as_deref().unwrap();
    assert_eq!((family.members.len(), family.default), (0, None));
    assert_eq!(compiled.pipeline.modules[1].variants[0].model, "m/*.pt");
}
