//! The example pipelines of this library compile without a warning, and the models they name are shipped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::profile::ProfileSet;
use spillgate_pipeline::{Pipeline, profile_file};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines")
}

/// Compiles a shipped pipeline with its profiles, which must give no warning.
fn compile(name: &str, profiles: Option<&ProfileSet>) -> Pipeline {
    let text = std::fs::read_to_string(folder().join(name)).expect(name);
    let catalog = spillgate_modules::library().catalog();
    let compiled = spillgate_pipeline::compile(&text, name, &catalog, profiles)
        .unwrap_or_else(|problems| panic!("{problems}"));
    assert!(compiled.warnings.is_empty(), "{:?}", compiled.warnings);
    compiled.pipeline
}

#[test]
fn shipped_pipelines_compile() {
    for name in ["traffic.yaml", "live_video.yaml", "dynamic.yaml"] {
        for module in &compile(name, None).modules {
            for variant in &module.variants {
                let model = folder().join(&variant.model);
                assert!(model.is_file(), "{name}: {} is not shipped", variant.model);
            }
        }
    }
}

/// The reference workload: what each pipeline is, in a line.
#[test]
fn reference_pipelines_are_those_of_the_reference_workload() {
    let expected = [
        (
            "tm",
            "400ms: detect(source) 12, face(detect) 5, text(face) 7",
        ),
        (
            "lv",
            "500ms: detect(source) 8, face(detect) 4, expression(face) 3, eye(expression) 3, pose(eye) 6",
        ),
        (
            "ga",
            "600ms: detect(source) 8, kill(detect) 4, alive(kill) 4, health(alive) 3, icon(health) 5",
        ),
        (
            "da",
            "420ms: detect(source) 8, pose(detect) 6, face(detect) 4, expression(pose+face) 3, eye(expression) 3",
        ),
    ];
    for (name, expected) in expected {
        let profile = format!("{name}.profile.yaml");
        let text = std::fs::read_to_string(folder().join(&profile)).expect("profile");
        let profiles = profile_file::parse_profiles(&text, &profile).expect("profiles");
        let pipeline = compile(&format!("{name}.yaml"), Some(&profiles));
        let name_of = |id: ModuleId| pipeline.modules[id.idx()].name.clone();
        let modules: Vec<String> = pipeline.modules[1..]
            .iter()
            .map(|module| {
                let from: Vec<String> = pipeline
                    .predecessors(module.id)
                    .into_iter()
                    .map(name_of)
                    .collect();
                assert_eq!((module.batch.max, module.queue), (32, 4096));
                format!("{}({}) {}", module.name, from.join("+"), module.workers.min)
            })
            .collect();
        let slo = spillgate_pipeline::time::format_duration(pipeline.slo);
        assert_eq!(format!("{slo}: {}", modules.join(", ")), expected, "{name}");
        for module in &pipeline.modules[1..] {
            let profile = profiles.get("emulated", &module.name, "-").expect("times");
            assert_eq!(profile.points.len(), 32, "{name}: {}", module.name);
        }
        let detect = profiles.get("emulated", "detect", "-").expect("times");
        assert_eq!(detect.mean(10), Duration::from_millis(72));
    }
}
