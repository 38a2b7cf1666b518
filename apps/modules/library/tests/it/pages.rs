//! Files that are made from the catalogue are those that it makes now. `UPDATE_EXPECT=1` writes them anew.

use std::path::{Path, PathBuf};

use expect_test::{expect, expect_file};
use spillgate_modules::reference;

#[test]
fn the_page_of_modules_is_up_to_date() {
    let page = reference::page(&spillgate_modules::library().catalog());
    expect_file!["../../../../../docs/modules.md"].assert_eq(&page);
}

#[test]
fn the_schema_beside_the_pipelines_is_up_to_date() {
    let schema = spillgate_pipeline::schema::json_schema(&spillgate_modules::library().catalog());
    expect_file!["../../../../pipelines/spillgate.schema.json"].assert_eq(&format!("{schema:#}\n"));
}

#[test]
fn a_type_is_described_with_all_that_it_takes() {
    let catalog = spillgate_modules::library().catalog();
    expect![[r#"
        text_reader: reads a line of text in each box
        It needs a model: `model:`, or `variants:` with several.
        Its time depends on what a request brings where `boxes` is wired
        (docs/schedulers.md).

        inputs:
          image (image)
              the picture that the boxes refer to
          boxes (boxes)
              where to read

        outputs:
          text (texts)
              one text a box; empty where nothing was readable or the frame's bound
              left the box out

        options:
          region (4 numbers)
              part of the box to read: [left, top, right, bottom] in fractions of it
              (default [0.08, 0.56, 0.92, 1.0])
          size (2 numbers)
              [width, height] of the model's input in pixels (default [160, 48])
          alphabet (text)
              letters in the order of the model's classes (default A to Z, then 0 to
              9)
          blank (last or first)
              where the class "no letter" is (default last)
          activation (softmax or sigmoid or none)
              softmax when the model gives logits of which one class is right, sigmoid
              when several may be, none when it gives probabilities (default: what the
              file says, else softmax)
    "#]]
    .assert_eq(&reference::describe(catalog.get("text_reader").unwrap()));
    for ty in catalog.types() {
        for line in reference::describe(ty).lines() {
            assert!(line.len() <= 80 || !line.contains(' '), "{line}");
        }
    }
}

/// Editors complete and check the shipped pipelines, and what is copied from them.
#[test]
fn every_shipped_pipeline_names_its_schema() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines");
    let mut pipelines: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.to_string_lossy();
            name.ends_with(".yaml") && !name.ends_with(".profile.yaml")
        })
        .collect();
    pipelines.sort();
    assert!(pipelines.len() >= 10, "{pipelines:?}");
    for path in pipelines {
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let schema = first.strip_prefix("# yaml-language-server: $schema=");
        let schema = schema.unwrap_or_else(|| panic!("{}: no schema", path.display()));
        assert!(
            folder.join(schema).is_file(),
            "{}: {schema}",
            path.display()
        );
    }
}
