//! Another revision, another image, another number.

use serde_json::{Value, json};
use spillgate_operator::decide::Decision;
use spillgate_operator::processes::{ControllerStatus, ModuleSays, PipelineSays, Scaling};
use spillgate_protocol::publication::{ProcessReport, RevisionReport, RolloutReport};

use crate::cluster::{Cluster, IMAGE, two_stage, with};

fn other_slo(slo: &str) -> Value {
    with(two_stage(), "pipeline.slo", json!(slo))
}

/// What a controller says: the generation and revision that is published, and what a gateway does with it.
fn report(generation: u64, revision: u64, state: &str, why: &str) -> RolloutReport {
    RolloutReport {
        pipeline: "two_stage".into(),
        generation,
        revision,
        why: why.into(),
        processes: vec![ProcessReport {
            process: "gateway-0".into(),
            is_gateway: true,
            revisions: vec![RevisionReport {
                id: revision,
                share: 10_000,
                state: state.into(),
                why: "".into(),
            }],
        }],
    }
}

fn offers(decision: &Decision) -> Vec<&str> {
    decision
        .offers
        .iter()
        .map(|of| of.pipeline.as_str())
        .collect()
}

/// A cluster whose controllers have published another objective.
fn published() -> Cluster {
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("traffic", other_slo("300ms"));
    let decision = cluster.pass();
    assert_eq!(offers(&decision).len(), 1);
    assert!(offers(&decision)[0].contains("300ms"));
    cluster
        .observed
        .offered
        .insert("traffic".to_owned(), Ok(report(1, 77, "starting", "")));
    cluster.observed.rollouts = Some(vec![report(1, 77, "watching", "")]);
    let decision = cluster.pass();
    assert_eq!((offers(&decision).len(), decision.rolls), (0, true));
    cluster
}

#[test]
fn another_definition_is_published_and_pods_stay() {
    let before = Cluster::serving("traffic", two_stage()).templates();
    let mut cluster = published();
    assert!(
        cluster.read("traffic").contains("300ms"),
        "those that start read the new one"
    );
    assert_eq!(cluster.said("traffic", "Progressing"), "True Progressing");
    let waits = "the new revision: gateway-0 watching with 100% of the streams";
    assert_eq!(cluster.sentence("traffic", "Progressing"), waits);
    cluster.observed.rollouts = Some(vec![report(1, 77, "stable", "")]);
    let decision = cluster.pass();
    assert!(!decision.rolls);
    cluster.pass();
    assert_eq!(cluster.said("traffic", "Progressing"), "False Settled");
    assert_eq!(cluster.templates(), before);
}

#[test]
fn one_that_is_taken_back_stays_out_until_the_resource_says_something_else() {
    let mut cluster = published();
    cluster.observed.rollouts = Some(vec![report(2, 55, "stable", "12 of 12 requests failed")]);
    cluster.pass();
    assert!(
        cluster.read("traffic").contains("200ms"),
        "what was served is served"
    );
    for _ in 0..3 {
        assert_eq!(offers(&cluster.pass()).len(), 0);
    }
    assert_eq!(cluster.said("traffic", "Degraded"), "True TakenBack");
    let said = "the last change was taken back, and what was served before is served on: 12 of 12 requests failed; change the resource";
    assert_eq!(cluster.sentence("traffic", "Degraded"), said);
    assert_eq!(cluster.said("traffic", "Ready"), "True Serves");
    // The old objective is what is served: nothing is to be done, and nothing is wrong any more.
    cluster.apply("traffic", two_stage());
    assert_eq!(offers(&cluster.pass()).len(), 0);
    assert_eq!(cluster.said("traffic", "Degraded"), "False AsExpected");
    cluster.apply("traffic", other_slo("250ms"));
    assert_eq!(offers(&cluster.pass()).len(), 1);
}

#[test]
fn one_that_the_controller_refuses_is_taken_back() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("traffic", other_slo("300ms"));
    cluster.pass();
    let refused = Err("another source needs other processes".to_owned());
    cluster
        .observed
        .offered
        .insert("traffic".to_owned(), refused);
    cluster.pass();
    assert!(cluster.read("traffic").contains("200ms"));
    assert_eq!(cluster.said("traffic", "Degraded"), "True TakenBack");
}

#[test]
fn an_answer_that_was_lost_is_asked_for_again() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("traffic", other_slo("300ms"));
    for _ in 0..3 {
        assert_eq!(offers(&cluster.pass()).len(), 1);
    }
    // All that knew of it ended together.
    let mut cluster = published();
    cluster.observed.rollouts = Some(vec![report(0, 55, "stable", "")]);
    assert_eq!(offers(&cluster.pass()).len(), 1);
}

#[test]
fn going_back_during_a_rollout_is_a_rollout() {
    let mut cluster = published();
    cluster.apply("traffic", two_stage());
    let decision = cluster.pass();
    assert!(offers(&decision)[0].contains("200ms"));
    cluster
        .observed
        .offered
        .insert("traffic".to_owned(), Ok(report(2, 55, "starting", "")));
    cluster.observed.rollouts = Some(vec![report(2, 55, "stable", "")]);
    assert!(!cluster.pass().rolls);
    cluster.pass();
    assert_eq!(cluster.said("traffic", "Progressing"), "False Settled");
}

#[test]
fn before_anything_was_ready_another_definition_replaces_pods() {
    let mut cluster = Cluster::new();
    cluster.apply("traffic", two_stage());
    cluster.pass();
    let before = cluster.templates();
    cluster.apply("traffic", other_slo("300ms"));
    assert_eq!(offers(&cluster.pass()).len(), 0);
    let after = cluster.templates();
    assert!(before.keys().eq(after.keys()));
    assert!(
        before
            .iter()
            .all(|(name, template)| after[name] != *template)
    );
}

#[test]
fn a_module_more_has_workers_before_it_is_published_and_one_less_after() {
    let mut three = two_stage();
    three["pipeline"]["modules"]["c"] = json!({
        "op": "noop", "inputs": { "payload": "$b.payload" }, "device": "emulated", "batch": { "max": 1 },
    });
    three["pipeline"]["outputs"]["payload"] = json!("$c.payload");
    three["modules"]["c"] = json!({});
    three["profiles"]["emulated"]["c"] =
        json!({ "-": { "alpha": "0ms", "beta": "20ms", "max": 1 } });
    three["profiles"]["entries"] = json!(3);
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("traffic", three);
    assert_eq!(
        offers(&cluster.pass()).len(),
        0,
        "the workers of c are not ready"
    );
    let waits = "the new revision: workers of c are not ready; traffic-worker-c is created";
    assert_eq!(cluster.sentence("traffic", "Progressing"), waits);
    cluster.ready("traffic-worker-c");
    assert_eq!(offers(&cluster.pass()).len(), 1);
    cluster
        .observed
        .offered
        .insert("traffic".to_owned(), Ok(report(1, 77, "starting", "")));
    cluster.observed.rollouts = Some(vec![report(1, 77, "stable", "")]);
    cluster.pass();

    cluster.apply("traffic", two_stage());
    assert_eq!(offers(&cluster.pass()).len(), 1);
    cluster
        .observed
        .offered
        .insert("traffic".to_owned(), Ok(report(2, 55, "starting", "")));
    cluster.observed.rollouts = Some(vec![report(2, 55, "watching", "")]);
    cluster.pass();
    assert!(
        cluster
            .observed
            .deployments
            .contains_key("traffic-worker-c"),
        "it may be taken back"
    );
    cluster.observed.rollouts = Some(vec![report(2, 55, "stable", "")]);
    cluster.pass();
    assert!(
        !cluster
            .observed
            .deployments
            .contains_key("traffic-worker-c")
    );
}

fn wants(a: u32, b: u32) -> ControllerStatus {
    let module = |name: &str, wanted| ModuleSays {
        name: name.to_owned(),
        scaling: Some(Scaling {
            wanted,
            is_fixed: false,
            reason: format!("{wanted} are wanted"),
        }),
    };
    ControllerStatus {
        pipelines: vec![PipelineSays {
            name: "two_stage".to_owned(),
            modules: vec![module("a", a), module("b", b)],
        }],
    }
}

#[test]
fn as_many_workers_run_as_controllers_want_within_the_bounds() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    let mut runs = |said: Option<ControllerStatus>| {
        cluster.observed.controller = said;
        cluster.pass();
        (
            cluster.replicas("traffic-worker-a"),
            cluster.replicas("traffic-worker-b"),
        )
    };
    assert_eq!(runs(Some(wants(3, 2))), (Some(3), Some(1)));
    assert_eq!(runs(Some(wants(9, 1))), (Some(4), Some(1)));
    assert_eq!(
        runs(None),
        (Some(4), Some(1)),
        "while the controller is away"
    );
    assert_eq!(runs(Some(wants(1, 1))), (Some(1), Some(1)));
    // Other bounds are no other revision.
    cluster.apply(
        "traffic",
        with(
            two_stage(),
            "modules.a.replicas",
            json!({ "min": 2, "max": 2 }),
        ),
    );
    assert_eq!(offers(&cluster.pass()).len(), 0);
    assert_eq!(cluster.replicas("traffic-worker-a"), Some(2));
}

#[test]
fn an_external_autoscaler_has_the_number_to_itself() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply(
        "traffic",
        with(two_stage(), "modules.a.autoscaler", json!("external")),
    );
    cluster.observed.controller = Some(wants(3, 1));
    cluster.pass();
    assert_eq!(cluster.replicas("traffic-worker-a"), None);
}

#[test]
fn another_image_goes_to_workers_then_to_the_controller_then_to_gateways() {
    const WORKERS: [&str; 2] = ["traffic-worker-a", "traffic-worker-b"];
    const CONTROLLER: &str = "spillgate-default-controller";
    const GATEWAY: &str = "spillgate-default-gateway";
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("traffic", with(two_stage(), "image", json!("spillgate:2")));
    cluster.pass();
    WORKERS.iter().for_each(|worker| cluster.moves(worker));
    let images = |cluster: &Cluster| {
        [WORKERS[0], WORKERS[1], CONTROLLER, GATEWAY].map(|name| cluster.image(name))
    };
    cluster.pass();
    assert_eq!(
        images(&cluster),
        ["spillgate:2", "spillgate:2", IMAGE, IMAGE]
    );
    cluster.ready(WORKERS[0]);
    cluster.pass();
    assert_eq!(images(&cluster)[2], IMAGE, "one worker is of the old image");
    cluster.ready(WORKERS[1]);
    cluster.pass();
    assert_eq!(images(&cluster)[2..], ["spillgate:2", IMAGE]);
    cluster.moves(CONTROLLER);
    cluster.pass();
    assert_eq!(images(&cluster)[3], IMAGE);
    cluster.ready(CONTROLLER);
    cluster.pass();
    assert_eq!(images(&cluster), ["spillgate:2"; 4]);
}

#[test]
fn an_image_with_which_pods_do_not_get_ready_is_taken_back() {
    let worker = "traffic-worker-a";
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("traffic", with(two_stage(), "image", json!("spillgate:2")));
    cluster.pass();
    cluster.moves(worker);
    cluster.pass();
    assert_eq!(cluster.image(worker), "spillgate:2");
    cluster.is_late(worker);
    for _ in 0..3 {
        cluster.pass();
        cluster.all_ready();
        assert_eq!(cluster.image(worker), IMAGE);
        assert_eq!(cluster.said("traffic", "Degraded"), "True TakenBack");
    }
    let said = "the image spillgate:2 was taken back, and spillgate:1 is served on: pods with it did not get ready in time; state another image";
    assert_eq!(cluster.sentence("traffic", "Degraded"), said);
    cluster.apply("traffic", with(two_stage(), "image", json!("spillgate:3")));
    cluster.pass();
    assert_eq!(cluster.image(worker), "spillgate:3");
    assert_eq!(cluster.said("traffic", "Degraded"), "False AsExpected");
}

#[test]
fn a_module_whose_workers_do_not_get_ready_is_taken_back() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("traffic", with_three());
    cluster.pass();
    cluster.pass();
    cluster.is_late("traffic-worker-c");
    cluster.pass();
    cluster.pass();
    assert_eq!(cluster.said("traffic", "Degraded"), "True TakenBack");
    assert!(
        !cluster
            .observed
            .deployments
            .contains_key("traffic-worker-c")
    );
    assert!(!cluster.read("traffic").contains("second"));
}

#[test]
fn workers_of_a_module_less_stay_when_that_is_taken_back() {
    let mut cluster = Cluster::serving("traffic", with_three());
    let before = cluster.templates();
    cluster.apply("traffic", two_stage());
    cluster.pass();
    cluster
        .observed
        .offered
        .insert("traffic".to_owned(), Ok(report(1, 55, "starting", "")));
    cluster.observed.rollouts = Some(vec![report(2, 44, "stable", "it could not start")]);
    for _ in 0..3 {
        let decision = cluster.pass();
        assert_eq!(decision.deletions, []);
    }
    assert_eq!(cluster.templates(), before);
    assert_eq!(cluster.said("traffic", "Degraded"), "True TakenBack");
}

#[test]
fn a_module_that_runs_with_another_is_there_before_and_after_the_revision_moves() {
    let modules = |cluster: &Cluster| {
        let template = &cluster.templates()["traffic-worker-a"];
        let args = template["spec"]["containers"][0]["args"]
            .as_array()
            .unwrap();
        let flag = args.iter().position(|arg| arg == "--modules").unwrap();
        args[flag + 1].as_str().unwrap().to_owned()
    };
    let mut three = with_three();
    three["modules"]["c"] = json!({ "with": "a" });
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("traffic", three);
    for _ in 0..2 {
        let decision = cluster.pass();
        assert_eq!(offers(&decision).len(), 0, "pods of a do not run c yet");
        assert_eq!(modules(&cluster), "a?,c?");
        cluster.moves("traffic-worker-a");
    }
    cluster.ready("traffic-worker-a");
    assert_eq!(offers(&cluster.pass()).len(), 1);
    let serves = |cluster: &mut Cluster, generation, revision, state: &str| {
        let said = report(generation, revision, state, "");
        cluster.observed.rollouts = Some(vec![said.clone()]);
        cluster
            .observed
            .offered
            .insert("traffic".to_owned(), Ok(said));
        cluster.pass();
        cluster.pass();
    };
    serves(&mut cluster, 1, 77, "stable");
    assert_eq!(modules(&cluster), "a?,c?");

    cluster.apply("traffic", two_stage());
    assert_eq!(offers(&cluster.pass()).len(), 1, "all that is needed runs");
    serves(&mut cluster, 2, 55, "watching");
    assert_eq!(modules(&cluster), "a?,c?", "it may be taken back");
    serves(&mut cluster, 2, 55, "stable");
    assert_eq!(modules(&cluster), "a?");
}

/// A third module beside the second one.
fn with_three() -> Value {
    let mut three = two_stage();
    three["pipeline"]["modules"]["c"] = three["pipeline"]["modules"]["b"].clone();
    three["profiles"]["emulated"]["c"] = three["profiles"]["emulated"]["b"].clone();
    three["profiles"]["entries"] = json!(3);
    three["pipeline"]["outputs"]["second"] = json!("$c.payload");
    three["modules"]["c"] = json!({});
    three
}
