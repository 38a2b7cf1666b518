//! No text makes the compiler of pipeline files panic or lose its bounds; what it accepts can be drawn.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use spillgate_pipeline::catalog::{Catalog, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_pipeline::compile::{Outside, compile_with};
use spillgate_pipeline::graph::{Format, render};
use spillgate_pipeline::profile_file::parse_profiles;

/// Short names, so that the fuzzer finds them.
static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let mut catalog = Catalog::new();
    catalog.register(
        ModuleType::new("d", "Model.", ModelNeed::Required)
            .input("i", ValueType::Image, "In.")
            .output("b", ValueType::Boxes, "Out.")
            .option("n", OptionType::Number(0.0, 1.0), "Number.")
            .option("c", OptionType::Choice(vec!["x".to_owned(), "y".to_owned()]), "Choice.")
            .option("l", OptionType::Numbers(2), "List.")
            .option("m", OptionType::NumberByText(0.0, 1.0), "Map.")
            .option("g", OptionType::Groups(ValueType::Boxes), "Groups."),
    );
    catalog.register(
        ModuleType::new("n", "No model.", ModelNeed::None)
            .optional_input("b", ValueType::Boxes, "In.")
            .optional_input("c", ValueType::Boxes, "In.")
            .output("b", ValueType::Boxes, "Out.")
            .required_option("t", OptionType::Texts, "Texts."),
    );
    catalog
});

fuzz_target!(|text: &str| {
    let profiles = parse_profiles("cpu: { a: { m@3: [{ batch: 1, mean: 2s }] } }", "p.yaml").ok();
    // Short names are set, to themselves thrice.
    let variables = |name: &str| (name.len() < 3).then(|| name.repeat(3));
    let files = |_: &str, is_asked_for: &dyn Fn(&str) -> bool| {
        let all = ["a.pt", "b.pt", "b.x", ".d"].into_iter();
        Ok(all.filter(|name| is_asked_for(name)).map(str::to_owned).collect())
    };
    let outside = Outside {
        variables: &variables,
        files: Some(&files),
    };
    match compile_with(text, "f.yaml", &CATALOG, profiles.as_ref(), outside) {
        Ok(compiled) => {
            for format in Format::ALL {
                assert!(!render(&compiled.pipeline, format).is_empty());
            }
        }
        Err(errors) => {
            let rendered = errors.to_string();
            assert_eq!(rendered.lines().count(), errors.list.len(), "{rendered}");
        }
    }
});
