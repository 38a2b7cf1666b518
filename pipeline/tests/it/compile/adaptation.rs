//! `policy: { adapt: ... }`: which module's variants are chosen request by request, and what is said of wrong ones.

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::compile;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::placement::{Decider, ServedBy};
use spillgate_pipeline::policy::{Adapt, AdaptName};

use crate::compile::catalog;
use crate::compile::errors::Golden;

const RATED: [&str; 2] = [
    "{ model: road.pt, input: 192, accuracy: 0.78 }",
    "{ model: road.pt, input: 320, accuracy: 0.87 }",
];
const UNRATED: [&str; 2] = [
    "{ model: road.pt, input: 192 }",
    "{ model: road.pt, input: 320 }",
];

/// A pipeline with a detector of these variants and that policy.
fn text(variants: &[&str], policy: &str) -> String {
    format!(
        "name: traffic
slo: 400ms
policy: {{ {policy} }}
modules:
  detect:
    op: detector
    variants: [ {} ]
    inputs: {{ image: $source.frame }}
outputs: {{ vehicles: $detect.vehicles }}
",
        variants.join(", ")
    )
}

pub(crate) fn errors(golden: &mut Golden) {
    for policy in [
        "adapt: gredy",
        "adapt: { variant: 0 }",
        "adapt: { name: fixed, variant: 2 }",
        "adapt: { name: fixed, variant: -1 }",
        "adapt: { name: spillgate, variant: 0 }",
        "adapt: [fixed]",
    ] {
        golden.compiled(policy, &text(&RATED, policy));
    }
    golden.compiled("adapt: spillgate", &text(&UNRATED, "adapt: spillgate"));
    golden.compiled("adapt: greedy", &text(&RATED[..1], "adapt: greedy"));
    let scheduled = text(&RATED, "adapt: spillgate").replace(
        "    inputs",
        "    schedule: orloj
    inputs",
    );
    golden.compiled("schedule: orloj, adapt: spillgate", &scheduled);
    let dominated = [
        "{ model: road.pt, input: 320, accuracy: 0.78 }",
        "{ model: road.pt, input: 192, accuracy: 0.87 }",
    ];
    golden.file(&text(&dominated, "adapt: spillgate"));
}

fn compiled(variants: &[&str], policy: &str) -> Pipeline {
    compile(&text(variants, policy), "traffic.yaml", &catalog(), None)
        .expect("it is right")
        .pipeline
}

#[test]
fn variants_with_accuracies_are_chosen_by_ours_unless_something_else_is_named() {
    let of = |variants: &[&str], policy| compiled(variants, policy).adapt;
    let by = |name| Some(Adapt::new(ModuleId(1), name));
    assert_eq!(of(&RATED, "drop: spillgate"), by(AdaptName::Spillgate));
    assert_eq!(of(&RATED, "adapt: { name: greedy }"), by(AdaptName::Greedy));
    assert_eq!(of(&RATED, "adapt: jellyfish"), by(AdaptName::Jellyfish));
    assert_eq!(of(&RATED, "adapt: fixed"), None);
    assert_eq!(of(&UNRATED, "drop: spillgate"), None);
    assert_eq!(of(&RATED[..1], "drop: spillgate"), None);
}

#[test]
fn requests_of_an_adapted_module_are_pulled_unless_something_else_is_named() {
    let of = |policy| {
        let pipeline = compiled(&RATED, policy);
        let pulls = [1, 0].map(|m| pipeline.is_pulled(ModuleId(m)));
        let names = pipeline.dispatch_names();
        let pipeline = pipeline.served_by(ServedBy::one_process(Decider::Brokers));
        (pulls, names, pipeline.is_pulled(ModuleId(1)))
    };
    let pulled = "earliest-start, pull at detect".to_owned();
    assert_eq!(of("drop: spillgate"), ([true, false], pulled, false));
    let sent = |policy, name: &str| assert_eq!(of(policy), ([false; 2], name.to_owned(), false));
    sent("adapt: fixed", "earliest-start");
    sent("adapt: jellyfish", "earliest-start");
    sent("dispatch: earliest-start", "earliest-start");
    // It binds batches ahead.
    sent("drop: pard, adapt: spillgate", "least-outstanding");
}

#[test]
fn streams_that_are_bound_to_workers_are_not_pulled() {
    let pulled = |policy| compiled(&RATED, policy).is_pulled(ModuleId(1));
    assert!(pulled("dispatch: pull, adapt: spillgate"));
    assert!(!pulled("dispatch: pull, adapt: jellyfish"));
}

#[test]
fn a_fixed_variant_serves_in_place_of_the_most_accurate() {
    let served = |policy| compiled(&RATED, policy).modules[1].served();
    assert_eq!(served("adapt: fixed"), 1);
    assert_eq!(served("adapt: { name: fixed, variant: 0 }"), 0);
    assert_eq!(served("adapt: { name: fixed, variant: 1 }"), 1);
}
