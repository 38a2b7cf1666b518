//! Profile files: round trip, and shorthand. What their errors say stands with those of pipelines, in `compile/errors.txt`.

use std::time::Duration;

use expect_test::expect;
use proptest::prelude::*;
use spillgate_pipeline::profile::{BatchLatency, ModuleProfile, ProfileSet};
use spillgate_pipeline::profile_file::{parse_profiles, render_profiles};

const FILE: &str = "traffic.profile.yaml";

fn span(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

#[test]
fn a_file_reads_as_one_would_write_it() {
    let mut set = ProfileSet {
        origin: Some(FILE.to_owned()),
        ..ProfileSet::default()
    };
    let points = vec![
        BatchLatency {
            batch: 1,
            mean: span(21_300_001),
            p50: span(21_000_000),
            p99: span(25_000_000),
        },
        BatchLatency {
            batch: 8,
            mean: span(92_000_000),
            p50: span(91_500_000),
            p99: span(104_000_000),
        },
    ];
    set.insert(
        "cpu",
        "detect",
        "models/road.pt@320",
        ModuleProfile {
            points,
            load: Some(span(31_000_001)),
        },
    );
    set.insert(
        "cpu",
        "crop",
        "-",
        ModuleProfile::linear(span(0), span(999), 2),
    );
    let text = render_profiles(&set, "Measured by `spillgate profile`.\nOn a laptop.");
    expect![[r##"
        # Measured by `spillgate profile`.
        # On a laptop.
        entries: 5
        cpu:
          detect:
            "models/road.pt@320":
              - { load: 31.000001ms }
              - { batch: 1, mean: 21.300001ms, p50: 21ms, p99: 25ms }
              - { batch: 8, mean: 92ms, p50: 91.5ms, p99: 104ms }
          crop:
            "-":
              - { batch: 1, mean: 0.000999ms, p50: 0.000999ms, p99: 0.000999ms }
              - { batch: 2, mean: 0.001998ms, p50: 0.001998ms, p99: 0.001998ms }
    "##]]
    .assert_eq(&text);
    assert_eq!(parse_profiles(&text, FILE), Ok(set));
}

#[test]
fn a_line_stands_for_many_points() {
    let text = "emulated: { plates: { plate.pt: { alpha: 5ms, beta: 2ms, max: 32, load: 40ms } } }";
    let set = parse_profiles(text, FILE).unwrap();
    let profile = set.get("emulated", "plates", "plate.pt").unwrap();
    assert_eq!(profile.points.len(), 32);
    assert_eq!(profile.mean(1), Duration::from_millis(7));
    assert_eq!(profile.mean(32), Duration::from_millis(69));
    assert_eq!(profile.load, Some(Duration::from_millis(40)));
}

/// Found by `profiles_round_trip`: a name that means something elsewhere in YAML.
#[test]
fn a_variant_may_be_called_like_a_merge_key() {
    let mut set = ProfileSet {
        origin: Some(FILE.to_owned()),
        ..ProfileSet::default()
    };
    set.insert("cpu", "a", "<<", ModuleProfile::linear(span(1), span(1), 1));
    assert_eq!(parse_profiles(&render_profiles(&set, ""), FILE), Ok(set));
}

#[test]
fn percentiles_may_be_left_out() {
    let text = "cpu: { a: { m: [{ batch: 2, mean: 3ms }, { batch: 4, mean: 3ms, p50: 4ms }] } }";
    let set = parse_profiles(text, FILE).unwrap();
    let points = &set.get("cpu", "a", "m").unwrap().points;
    assert_eq!(
        (points[0].p50, points[0].p99),
        (span(3_000_000), span(3_000_000))
    );
    assert_eq!(
        (points[1].p50, points[1].p99),
        (span(4_000_000), span(4_000_000))
    );
}

#[test]
fn a_file_without_profiles_says_so() {
    for text in ["entries: 0", "# nothing yet\nentries: 0\n", "cpu: {}"] {
        let set = parse_profiles(text, FILE).unwrap();
        assert!(set.get("cpu", "detect", "-").is_none());
    }
}

#[test]
fn no_part_of_a_written_file_passes_for_all_of_it() {
    let mut set = ProfileSet {
        origin: Some(FILE.to_owned()),
        ..ProfileSet::default()
    };
    for (kind, module) in [("cpu", "detect"), ("cpu", "plates"), ("emulated", "detect")] {
        let times = ModuleProfile::linear(span(5_000_000), span(2_000_000), 3);
        let load = Some(span(31_000_000));
        set.insert(kind, module, "m@3", ModuleProfile { load, ..times });
    }
    let text = render_profiles(&set, "Measured by `spillgate profile`.");
    let complete = text.trim_end().len();
    for cut in 0..complete {
        let error = parse_profiles(&text[..cut], FILE);
        let error = error.expect_err(&text[..cut]);
        let first = &error.list[0];
        assert!(first.line >= 1 && !first.problem.to_string().is_empty());
    }
    for all in [&text[..complete], &text] {
        assert_eq!(parse_profiles(all, FILE).as_ref(), Ok(&set));
    }
    // At the end of a line nothing else is wrong.
    let half = text.lines().take(7).collect::<Vec<_>>().join("\n");
    let error = parse_profiles(&half, FILE).unwrap_err().to_string();
    expect!["error: traffic.profile.yaml:2: entries: the file has 2 entries, and says 12: it was cut off; measure again with `spillgate profile`"].assert_eq(&error);
}

fn profile() -> impl Strategy<Value = ModuleProfile> {
    let hour = 3_600_000_000_000u64;
    let point = (0..hour, 0..hour, 0..hour);
    let points = proptest::collection::btree_map(1u32..1024, point, 1..6);
    let load = proptest::option::of((0..hour).prop_map(span));
    (points, load).prop_map(|(points, load)| {
        let points = points
            .into_iter()
            .map(|(batch, (mean, a, b))| BatchLatency {
                batch,
                mean: span(mean),
                p50: span(a.min(b)),
                p99: span(a.max(b)),
            })
            .collect();
        ModuleProfile { points, load }
    })
}

proptest! {
    #[test]
    fn profiles_round_trip(
        entries in proptest::collection::vec(
            (0usize..3, "[a-z][a-z0-9_-]{0,8}", "\\PC{1,20}|-|null|0x1F|[ -~]{1,20}|.{1,9}", profile()),
            0..8,
        ),
        header in "[ -~\n\t]{0,60}",
    ) {
        let mut set = ProfileSet { origin: Some(FILE.to_owned()), ..ProfileSet::default() };
        for (kind, module, variant, profile) in entries {
            set.insert(["cpu", "cuda", "emulated"][kind], &module, &variant, profile);
        }
        let text = render_profiles(&set, &header);
        prop_assert_eq!(parse_profiles(&text, FILE), Ok(set), "{}", text);
    }
}
