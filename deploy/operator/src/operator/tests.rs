//! The driver before an API server of a few lines, which keeps objects and counts what is written.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::runtime::{reflector, watcher};
use kube::{Client, Resource};
use serde_json::{Value, json};

use super::Watched;
use super::api::{There, Writer};
use super::leader::Lead;
use super::pass::{Goes, Passes};
use crate::authority::Lifetimes;
use crate::crd::Pipeline;
use crate::decide::Knows;
use crate::render::{Kind, Object, Settings};

/// Objects by path, and what was written: method and path.
#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    written: Vec<String>,
    /// Paths that are refused, with what is said.
    refuses: BTreeMap<String, (u16, String)>,
    version: u64,
}

/// The API server. Clones are the same.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "video")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let sent: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let path = parts.uri.path().to_owned();
        let mut state = self.0.lock().expect("nobody panicked");
        if let (Some((code, said)), true) = (state.refuses.get(&path), parts.method != Method::GET)
        {
            return failure(*code, said);
        }
        if parts.method != Method::GET {
            state.written.push(format!("{} {path}", parts.method));
        }
        let there = state.objects.get(&path).cloned();
        match parts.method {
            Method::GET => match there {
                Some(object) => answer(&object),
                None => failure(404, "not found"),
            },
            Method::DELETE => match state.objects.remove(&path) {
                Some(object) => answer(&object),
                None => failure(404, "not found"),
            },
            Method::PUT => {
                let version = |of: &Value| of["metadata"]["resourceVersion"].clone();
                match there {
                    Some(there) if version(&there) != version(&sent) => {
                        failure(409, "the object has been modified")
                    }
                    _ => answer(&state.keep(&path, sent)),
                }
            }
            Method::POST => {
                let name = sent["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                answer(&state.keep(&format!("{path}/{name}"), sent))
            }
            _ => match path.strip_suffix("/status") {
                Some(path) => {
                    let mut object = state.objects.get(path).cloned().unwrap_or_default();
                    object["status"] = sent["status"].clone();
                    answer(&state.keep(path, object))
                }
                None => answer(&state.keep(&path, sent)),
            },
        }
    }

    fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("nobody panicked").written)
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().expect("nobody panicked"))
    }
}

impl State {
    fn keep(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["generation"] = json!(1);
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

fn answer(object: &Value) -> Response<Body> {
    Response::new(Body::from(object.to_string().into_bytes()))
}

fn failure(code: u16, said: &str) -> Response<Body> {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        403 => "Forbidden",
        _ => "",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": said, "reason": reason, "metadata": {},
    });
    let mut response = answer(&status);
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    response
}

fn config_map(name: &str, text: &str) -> Object {
    Object {
        kind: Kind::ConfigMap,
        name: name.to_owned(),
        value: json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "video", "labels": { crate::names::MANAGED_BY: crate::names::OPERATOR } },
            "data": { "text": text },
        }),
    }
}

const MAP: &str = "/api/v1/namespaces/video/configmaps/a";

#[tokio::test]
async fn objects_are_applied_when_they_change_or_are_gone() {
    let server = Server::default();
    let mut writer = Writer::new(server.client(), "video".to_owned());
    let yes = There::Yes(None);
    writer
        .apply(&config_map("a", "1"), There::No)
        .await
        .unwrap();
    assert_eq!(server.written(), [format!("PATCH {MAP}")]);
    writer.apply(&config_map("a", "1"), yes).await.unwrap();
    assert_eq!(server.written().len(), 0);
    writer.apply(&config_map("a", "2"), yes).await.unwrap();
    writer
        .apply(&config_map("a", "2"), There::No)
        .await
        .unwrap();
    writer
        .apply(&config_map("a", "2"), There::Yes(Some(7)))
        .await
        .unwrap();
    assert_eq!(
        server.written().len(),
        3,
        "changed, gone, and changed by somebody else"
    );
    writer.delete(Kind::ConfigMap, "a").await.unwrap();
    writer.delete(Kind::ConfigMap, "a").await.unwrap();
    assert_eq!(server.with(|state| state.objects.len()), 0);
}

#[tokio::test]
async fn what_is_somebody_elses_is_left_alone() {
    let server = Server::default();
    let theirs = json!({ "metadata": { "name": "a" }, "data": { "text": "theirs" } });
    server.with(|state| state.keep(MAP, theirs));
    let mut writer = Writer::new(server.client(), "video".to_owned());
    let why = writer
        .apply(&config_map("a", "1"), There::No)
        .await
        .unwrap_err();
    let said = "ConfigMap a is there already, and is not the operator's: delete it, or give the pipeline another name";
    assert_eq!(why, said);
    assert_eq!(server.written().len(), 0);
}

#[tokio::test]
async fn what_the_api_refuses_is_said_with_the_cure() {
    let server = Server::default();
    let mut writer = Writer::new(server.client(), "video".to_owned());
    let mut said = Vec::new();
    for (code, why) in [
        (403, "is forbidden: exceeded quota: maps"),
        (403, "is forbidden: User may not"),
        (422, "is invalid"),
    ] {
        server.with(|state| state.refuses.insert(MAP.to_owned(), (code, why.to_owned())));
        said.push(
            writer
                .apply(&config_map("a", "1"), There::No)
                .await
                .unwrap_err(),
        );
    }
    let expected = [
        "ConfigMap a: is forbidden: exceeded quota: maps; ask for a larger quota, or delete what is not needed",
        "ConfigMap a: the operator has no right to write configmaps here (is forbidden: User may not); install its Role in this namespace: \
         helm upgrade, or kubectl apply -k deploy/kubernetes",
        "ConfigMap a: is invalid",
    ];
    assert_eq!(said, expected);
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/system/leases/spillgate-operator";

fn holder(server: &Server) -> Value {
    server.with(|state| state.objects[LEASE]["spec"]["holderIdentity"].clone())
}

#[tokio::test(start_paused = true)]
async fn one_operator_leads_and_another_one_follows_when_it_ends() {
    let server = Server::default();
    let one = Lead::new(&server.client(), "system", "one");
    let two = Lead::new(&server.client(), "system", "two");
    one.take().await.unwrap();
    assert_eq!(holder(&server), json!("one"));
    let waits = tokio::spawn(async move {
        two.take().await.unwrap();
        two
    });
    let keeps = tokio::time::timeout(std::time::Duration::from_secs(60), one.keep());
    assert!(keeps.await.is_err(), "it leads as long as it lives");
    assert!(!waits.is_finished());
    one.give_up().await.unwrap();
    let two = waits.await.unwrap();
    assert_eq!(holder(&server), json!("two"));
    // One that leads no more says so and ends, and leaves the lease alone.
    let lost = one.keep().await.unwrap_err().to_string();
    assert!(lost.starts_with("two leads now"), "{lost}");
    one.give_up().await.unwrap();
    assert_eq!(holder(&server), json!("two"));
    two.give_up().await.unwrap();
    assert_eq!(holder(&server), json!(null));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_another_one_leads() {
    let server = Server::default();
    let one = Lead::new(&server.client(), "system", "one");
    one.take().await.unwrap();
    server.with(|state| {
        state
            .refuses
            .insert(LEASE.to_owned(), (500, "down".to_owned()))
    });
    let why = one.keep().await.unwrap_err().to_string();
    assert_eq!(
        why,
        "the lease could not be renewed for 10 s; this operator ends"
    );
}

fn store<K>(objects: &[K]) -> reflector::Store<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (store, mut writer) = reflector::store();
    for object in objects {
        writer.apply_watcher_event(&watcher::Event::Apply(object.clone()));
    }
    store
}

#[tokio::test]
async fn a_pass_writes_what_there_should_be_once_and_says_so() {
    let spec = json!({
        "pipeline": {
            "slo": "200ms",
            "source": { "payload": "bytes" },
            "modules": { "a": { "op": "noop", "inputs": { "payload": "$source.payload" }, "device": "emulated" } },
            "outputs": { "payload": "$a.payload" },
        },
        "modules": { "a": {} },
    });
    let mut pipeline = Pipeline::new("one", serde_json::from_value(spec).unwrap());
    pipeline.metadata.namespace = Some("video".to_owned());
    pipeline.metadata.uid = Some("uid".to_owned());
    let server = Server::default();
    const ONE: &str = "/apis/spillgate.dev/v1alpha1/namespaces/video/pipelines/one";
    server.with(|state| state.keep(ONE, serde_json::to_value(&pipeline).unwrap()));
    let watched = Watched {
        pipelines: store(&[pipeline]),
        deployments: store(&[]),
        jobs: store(&[]),
        config_maps: store(&[]),
        pods: store(&[]),
    };
    let knows = Knows {
        settings: Settings {
            image: "spillgate:1".to_owned(),
            pull_policy: "Never".to_owned(),
            ready_within_s: 600,
        },
        catalog: spillgate_modules::library().catalog(),
        lifetimes: Lifetimes::default(),
    };
    let set = ("video".to_owned(), "default".to_owned());
    let mut passes = Passes::new(server.client(), Arc::new(watched), Arc::new(knows), set);
    assert!(matches!(passes.pass().await.unwrap(), Goes::On));
    let written = server.written();
    let last = |n: usize| written[written.len() - n].clone();
    assert_eq!(last(1), format!("PATCH {ONE}/status"));
    // The definition is there before the pods that read it, and certificates are.
    let at = |what: &str| {
        written
            .iter()
            .position(|of| of.contains(what))
            .unwrap_or_else(|| panic!("{what}: {written:?}"))
    };
    assert!(at("configmaps/one-pipeline") < at("deployments/one-worker-a"));
    assert!(at("secrets/spillgate-default-link-worker") < at("deployments/one-worker-a"));
    // The watch has not shown yet that Deployments are there, and Secrets are not watched.
    passes.pass().await.unwrap();
    let again = server.written();
    assert!(
        again
            .iter()
            .all(|of| !of.contains("secrets/") && !of.contains("services/")),
        "{again:?}"
    );
    let status = server.with(|state| state.objects[ONE].clone());
    assert_eq!(
        status["status"]["conditions"][0]["reason"],
        json!("NotReady")
    );
}
