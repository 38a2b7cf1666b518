//! The example pipelines of this library compile without a warning, and the models they name are shipped.

use std::path::Path;

#[test]
fn shipped_pipelines_compile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pipelines");
    let catalog = spillgate_modules::library().catalog();
    for name in ["traffic.yaml", "live_video.yaml"] {
        let text = std::fs::read_to_string(folder.join(name)).expect(name);
        let compiled = spillgate_pipeline::compile(&text, name, &catalog, None)
            .unwrap_or_else(|problems| panic!("{problems}"));
        assert!(compiled.warnings.is_empty(), "{:?}", compiled.warnings);
        for module in &compiled.pipeline.modules {
            for variant in &module.variants {
                let model = folder.join(&variant.model);
                assert!(model.is_file(), "{name}: {} is not shipped", variant.model);
            }
        }
    }
}
