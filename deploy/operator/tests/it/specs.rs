//! What resources say, right and wrong.

use expect_test::expect;
use serde_json::json;
use spillgate_operator::render::Kind;

use crate::cluster::{Cluster, two_stage, with, with_model};

#[test]
fn a_pipeline_becomes_these_objects() {
    let cluster = Cluster::serving("traffic", two_stage());
    expect![[r#"
        ConfigMap traffic-pipeline
        Secret spillgate-default-link-authority
        Secret spillgate-default-link-controller
        Secret spillgate-default-link-gateway
        Secret spillgate-default-link-worker
        Service spillgate-default-controller
        Service spillgate-default-gateway
        ServiceAccount spillgate-default
        NetworkPolicy spillgate-default
        PodDisruptionBudget spillgate-default-gateway
        PodDisruptionBudget traffic-worker-a
        PodDisruptionBudget traffic-worker-b
        Deployment spillgate-default-controller
        Deployment spillgate-default-gateway
        Deployment traffic-worker-a
        Deployment traffic-worker-b"#]]
    .assert_eq(&cluster.names().join("\n"));
}

#[test]
fn a_worker_is_such_a_deployment() {
    let cluster = Cluster::serving("traffic", two_stage());
    let key = (Kind::Deployment, "traffic-worker-a".to_owned());
    let text = serde_yaml::to_string(&cluster.objects[&key]).unwrap();
    expect![[r#"
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          labels:
            app.kubernetes.io/managed-by: spillgate-operator
            app.kubernetes.io/part-of: spillgate
            spillgate.dev/pipeline: traffic
            spillgate.dev/set: default
          name: traffic-worker-a
          namespace: video
          ownerReferences:
          - apiVersion: spillgate.dev/v1alpha1
            kind: Pipeline
            name: traffic
            uid: uid-of-traffic
        spec:
          progressDeadlineSeconds: 600
          replicas: 1
          revisionHistoryLimit: 3
          selector:
            matchLabels:
              spillgate.dev/module: a
              spillgate.dev/pipeline: traffic
              spillgate.dev/role: worker
              spillgate.dev/set: default
          strategy:
            rollingUpdate:
              maxSurge: 1
              maxUnavailable: 0
            type: RollingUpdate
          template:
            metadata:
              annotations:
                spillgate.dev/began: 78d8c57a
              labels:
                app.kubernetes.io/managed-by: spillgate-operator
                app.kubernetes.io/part-of: spillgate
                spillgate.dev/module: a
                spillgate.dev/pipeline: traffic
                spillgate.dev/role: worker
                spillgate.dev/set: default
            spec:
              automountServiceAccountToken: false
              containers:
              - args:
                - worker
                - /srv/pipelines/traffic/pipeline.yaml
                - --modules
                - a?
                - --link-listen
                - '[::]:7720'
                - --controllers
                - spillgate-default-controller.video:7720
                env:
                - name: POD_NAME
                  valueFrom:
                    fieldRef:
                      fieldPath: metadata.name
                - name: SPILLGATE_SET
                  value: default
                - name: SPILLGATE_ADMIN
                  value: '[::]:7701'
                - name: SPILLGATE_LINK_CA
                  value: /etc/spillgate/link/ca.crt
                - name: SPILLGATE_LINK_CERT
                  value: /etc/spillgate/link/tls.crt
                - name: SPILLGATE_LINK_KEY
                  value: /etc/spillgate/link/tls.key
                - name: SPILLGATE_NAME
                  value: $(POD_NAME)
                image: spillgate:1
                imagePullPolicy: IfNotPresent
                livenessProbe:
                  failureThreshold: 6
                  httpGet:
                    path: /livez
                    port: admin
                  periodSeconds: 10
                  timeoutSeconds: 5
                name: worker
                ports:
                - containerPort: 7701
                  name: admin
                  protocol: TCP
                - containerPort: 7720
                  name: link
                  protocol: TCP
                readinessProbe:
                  failureThreshold: 2
                  httpGet:
                    path: /readyz
                    port: admin
                  periodSeconds: 2
                  timeoutSeconds: 2
                securityContext:
                  allowPrivilegeEscalation: false
                  capabilities:
                    drop:
                    - ALL
                  readOnlyRootFilesystem: true
                startupProbe:
                  failureThreshold: 60
                  httpGet:
                    path: /livez
                    port: admin
                  periodSeconds: 1
                terminationMessagePolicy: FallbackToLogsOnError
                volumeMounts:
                - mountPath: /tmp
                  name: tmp
                  readOnly: false
                - mountPath: /etc/spillgate/link
                  name: link
                  readOnly: true
                - mountPath: /srv/pipelines/traffic/pipeline.yaml
                  name: pipeline-traffic
                  readOnly: true
                  subPath: pipeline.yaml
                - mountPath: /srv/pipelines/traffic/pipeline.profile.yaml
                  name: pipeline-traffic
                  readOnly: true
                  subPath: pipeline.profile.yaml
              enableServiceLinks: false
              securityContext:
                runAsNonRoot: true
                seccompProfile:
                  type: RuntimeDefault
              serviceAccountName: spillgate-default
              terminationGracePeriodSeconds: 16
              topologySpreadConstraints:
              - labelSelector:
                  matchLabels:
                    spillgate.dev/module: a
                    spillgate.dev/pipeline: traffic
                    spillgate.dev/role: worker
                    spillgate.dev/set: default
                matchLabelKeys:
                - pod-template-hash
                maxSkew: 1
                topologyKey: kubernetes.io/hostname
                whenUnsatisfiable: ScheduleAnyway
              volumes:
              - emptyDir:
                  sizeLimit: 64Mi
                name: tmp
              - name: link
                secret:
                  secretName: spillgate-default-link-worker
              - configMap:
                  name: traffic-pipeline
                name: pipeline-traffic
    "#]]
    .assert_eq(&text);
}

#[test]
fn pods_of_all_roles_have_no_rights() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("light", with_model());
    cluster.pass();
    let jobs = cluster.observed.jobs.len();
    let templates = cluster.templates();
    assert_eq!((templates.len(), jobs), (4, 1));
    let jobs = cluster
        .objects
        .iter()
        .filter(|((kind, _), _)| *kind == Kind::Job);
    let jobs = jobs.map(|((_, name), job)| (name.clone(), job["spec"]["template"].clone()));
    for (name, template) in templates.into_iter().chain(jobs) {
        // By it the operator finds its pods.
        let labels = &template["metadata"]["labels"];
        assert_eq!(labels["spillgate.dev/set"], json!("default"), "{name}");
        let pod = &template["spec"];
        let security = &pod["securityContext"];
        assert_eq!(security["runAsNonRoot"], json!(true), "{name}");
        assert_eq!(
            security["seccompProfile"],
            json!({ "type": "RuntimeDefault" }),
            "{name}"
        );
        assert!(
            security.get("runAsUser").is_none(),
            "{name}: any uid will do"
        );
        assert_eq!(pod["automountServiceAccountToken"], json!(false), "{name}");
        let containers = pod["containers"].as_array().unwrap();
        for container in containers {
            let expected = json!({
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "readOnlyRootFilesystem": true,
            });
            assert_eq!(container["securityContext"], expected, "{name}");
        }
    }
}

/// What is wrong, as the condition says it; and that nothing changes.
fn wrong(path: &str, value: serde_json::Value) -> String {
    let mut cluster = Cluster::serving("traffic", two_stage());
    let before = cluster.objects.clone();
    cluster.apply("traffic", with(two_stage(), path, value));
    cluster.pass();
    assert_eq!(cluster.objects, before, "nothing that runs changes");
    assert_eq!(cluster.said("traffic", "Ready"), "True Serves");
    assert_eq!(cluster.said("traffic", "Degraded"), "True SpecInvalid");
    cluster.sentence("traffic", "Degraded")
}

#[test]
fn a_spec_that_is_wrong_changes_nothing_and_is_named_with_the_cure() {
    let all = [
        wrong("pipeline.modules.a.batch.max", json!(0)),
        wrong("pipeline.modules.b.inputs.payload", json!("$c.payload")),
        wrong("pipeline.slo", json!("200")),
        wrong("modules", json!({ "a": {} })),
        wrong("modules.c", json!({})),
        wrong("modules.b", json!({ "with": "c" })),
        wrong("modules.b", json!({ "with": "b" })),
        wrong("modules.b", json!({ "with": "other/a" })),
        wrong("modules.a.device", json!("tpu")),
        wrong("profiles.emulated.a", json!({ "-": 3 })),
        wrong("modules.source", json!({})),
        wrong("pipeline.modules.a.op", json!("x".repeat(1 << 16))),
        wrong("profiles.emulated.a", json!("x".repeat(1 << 16))),
    ];
    expect![[r#"
        spec.pipeline.modules.a.batch.max: 0 is out of range; use 1 to 1024
        spec.pipeline.modules.b.inputs.payload: no module named "c"; did you mean "a"?
        spec.pipeline.slo: "200" has no unit; write 200ms or 200s
        spec.modules.b is missing: nobody runs the module b; write b: {} for one worker, or b: { with: MODULE } for the processes of another module
        spec.modules.c: the pipeline has no module of this name; did you mean a?
        spec.modules.b.with: there is no module c in pipeline traffic
        spec.modules.b.with: the modules refer to each other; one of them needs processes of its own: write replicas there
        spec.modules.b.with: there is no pipeline other in the set whose definition is right; write MODULE, or PIPELINE/MODULE
        spec.pipeline.modules.a.device: "tpu" is no device; use auto, cpu, cpu:N, cuda, cuda:N, emulated or emulated:N
        spec.profiles.emulated.a.-: expected a list of points, or { alpha: 5ms, beta: 2ms, max: 32 }, found a number
        spec.modules.source: the source of this pipeline is no picture, and nothing of it is decoded; take source out
        spec.pipeline: these are 65831 bytes, and at most 65536 reach the processes of a set; split the pipeline
        spec.profiles: these are 65624 bytes, and at most 65536 reach the processes of a set; split the pipeline"#]].assert_eq(&all.join("\n"));
}

#[test]
fn models_on_emulated_devices_need_times() {
    let mut cluster = Cluster::new();
    let spec = with(
        with_model(),
        "pipeline.modules.light.device",
        json!("emulated"),
    );
    cluster.apply("light", spec);
    cluster.pass();
    assert_eq!(cluster.observed.jobs.len(), 0);
    expect![[r#"spec.profiles.emulated.light is missing: an emulated device takes the times that it is given; write light: { "models/road.pt": { alpha: 5ms, beta: 10ms, max: 8 } }"#]].assert_eq(&cluster.sentence("light", "Degraded"));
}

#[test]
fn names_that_are_too_long_are_refused() {
    let name = "a-name-of-thirty-characters-01";
    let module = "another_name_of_a_module";
    let mut spec = two_stage();
    let b = spec["pipeline"]["modules"]["b"].clone();
    spec["pipeline"]["modules"][module] = b;
    spec["modules"][module] = json!({});
    let mut cluster = Cluster::new();
    cluster.apply(name, spec);
    cluster.pass();
    expect!["spec.modules.another_name_of_a_module: its Deployment would be called a-name-of-thirty-characters-01-worker-another-name-of-a-module-3a84aa18, which is longer than 46 characters; shorten the names of the pipeline or of the module"].assert_eq(&cluster.sentence(name, "Degraded"));
}

#[test]
fn a_pipeline_may_lie_in_a_config_map() {
    let mut spec = two_stage();
    spec.as_object_mut().unwrap().remove("pipeline");
    spec["configMapRef"] = json!({ "name": "files", "key": "two.yaml" });
    let mut cluster = Cluster::new();
    cluster.apply("traffic", spec.clone());
    cluster.pass();
    let missing = cluster.sentence("traffic", "Degraded");
    let text = include_str!("../../../../apps/pipelines/two_stage.yaml");
    let broken = text.replace("$a.payload", "$a.nothing");
    cluster.observed.texts.insert("traffic".to_owned(), broken);
    cluster.pass();
    let broken = cluster.sentence("traffic", "Degraded");
    expect![[r#"
        spec.configMapRef: there is no ConfigMap files with the key two.yaml in this namespace; create it: kubectl create configmap files --from-file=two.yaml=FILE
        ConfigMap files, two.yaml:9: modules.b.inputs.payload: a has no output named "nothing"; the only output is payload"#]].assert_eq(&format!("{missing}\n{broken}"));
    cluster
        .observed
        .texts
        .insert("traffic".to_owned(), text.to_owned());
    for _ in 0..3 {
        cluster.pass();
        cluster.all_ready();
    }
    cluster.pass();
    assert_eq!(cluster.said("traffic", "Ready"), "True Serves");
    // The same pipeline within the resource is the same text.
    let inline = Cluster::serving("traffic", two_stage());
    assert_eq!(cluster.read("traffic"), inline.read("traffic"));
}

#[test]
fn what_is_not_measured_is_measured_by_a_job() {
    let mut cluster = Cluster::new();
    cluster.apply("light", with_model());
    cluster.pass();
    assert_eq!(cluster.templates().len(), 0, "nobody serves before");
    let job = cluster.observed.jobs.keys().next().unwrap().clone();
    assert!(job.starts_with("light-profile-cpu-"), "{job}");
    expect!["Job JOB measures how long batches take on cpu"].assert_eq(
        &cluster
            .sentence("light", "Progressing")
            .replace(&job, "JOB"),
    );

    let pod = json!({
        "metadata": { "name": "light-profile-cpu-1", "labels": { "batch.kubernetes.io/job-name": job } },
        "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu." }] },
    });
    cluster
        .observed
        .pods
        .push(serde_json::from_value(pod).unwrap());
    cluster.pass();
    assert_eq!(cluster.said("light", "Degraded"), "True NoNode");
    expect!["Job JOB: no node takes pod light-profile-cpu-1: 0/1 nodes are available: 1 Insufficient cpu.; add a node with room, or ask for less in resources"].assert_eq(&cluster.sentence("light", "Degraded").replace(&job, "JOB"));
    cluster.observed.pods.clear();

    cluster
        .observed
        .job_logs
        .insert(job.clone(), "cpu light: 12 ms".to_owned());
    cluster.pass();
    expect!["Job JOB does not say what it measured: there is no file of profiles in its log; see kubectl logs job/JOB"].assert_eq(&cluster.sentence("light", "Degraded").replace(&job, "JOB"));

    let profiles =
        "entries: 1\ncpu:\n  light:\n    models/road.pt: { alpha: 5ms, beta: 10ms, max: 8 }\n";
    let log = format!("warning: something\ncpu light: 12 ms\n---\n{profiles}");
    cluster.observed.job_logs.insert(job.clone(), log);
    cluster.pass();
    assert_eq!(cluster.said("light", "Degraded"), "False AsExpected");
    assert_eq!(cluster.templates().len(), 3);
    assert_eq!(cluster.observed.jobs.len(), 0, "the Job is done with");
    // What was measured stays, whatever happens to the log.
    cluster.observed.job_logs.clear();
    let before = cluster.objects.clone();
    cluster.pass();
    assert_eq!(cluster.objects, before);
    // Another model is measured anew; meanwhile the old one serves.
    let other = with(
        with_model(),
        "pipeline.modules.light.model",
        json!("models/other.pt"),
    );
    cluster.apply("light", other);
    cluster.pass();
    let again = cluster.observed.jobs.keys().next().unwrap().clone();
    assert_ne!(again, job);
    assert!(cluster.read("light").contains("models/road.pt"));
}
