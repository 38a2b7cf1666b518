//! One look at a set: reads what there is, has it decided what there should be, and does that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, LogParams, Patch, PatchParams};
use kube::runtime::events::{Event, Recorder, Reporter};
use kube::runtime::reflector::Store;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use spillgate_protocol::publication::{Definition, Operate, RolloutReport};
use tracing::{info, warn};

use super::Watched;
use super::api::{There, Writer};
use super::ask::{Operator, get};
use crate::conditions::events;
use crate::crd::Pipeline;
use crate::decide::{Decision, Knows, Observed, decide};
use crate::definition::Compiled;
use crate::names;
use crate::processes::{Samples, counts};
use crate::render::Kind;

/// How often gateways are asked what came of requests.
const SAMPLE: Duration = Duration::from_secs(5);
/// Most bytes of a Job's log that are read.
const LOG_BYTES_MAX: i64 = 1 << 20;

/// Whether there is more to look after.
pub(super) enum Goes {
    On,
    /// The set has no resources any more: its objects go with them.
    Ends,
}

/// Looks after one set.
pub(super) struct Passes {
    client: Client,
    watched: Arc<Watched>,
    knows: Arc<Knows>,
    compiled: Compiled,
    namespace: String,
    set: String,
    writer: Writer,
    recorder: Recorder,
    operator: Option<Operator>,
    began: Instant,
    sampled: Option<Instant>,
    samples: Samples,
    refusals: Vec<String>,
    offered: BTreeMap<String, Result<RolloutReport, String>>,
    rolls: bool,
}

impl Passes {
    pub(super) fn new(
        client: Client,
        watched: Arc<Watched>,
        knows: Arc<Knows>,
        (namespace, set): (String, String),
    ) -> Self {
        let reporter = Reporter {
            controller: names::OPERATOR.to_owned(),
            instance: None,
        };
        Passes {
            writer: Writer::new(client.clone(), namespace.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            client,
            watched,
            knows,
            compiled: Compiled::default(),
            namespace,
            set,
            operator: None,
            began: Instant::now(),
            sampled: None,
            samples: Samples::default(),
            refusals: Vec::new(),
            offered: BTreeMap::new(),
            rolls: true,
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.set)
    }

    /// Looks once.
    pub(super) async fn pass(&mut self) -> anyhow::Result<Goes> {
        let mut observed = self.observe().await?;
        if observed.resources.is_empty() {
            return Ok(Goes::Ends);
        }
        observed.offered = std::mem::take(&mut self.offered);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let decision = decide(now, &observed, &self.knows, &mut self.compiled)?;
        if self.operator.is_none() {
            self.operator = Some(Operator::new(&self.set)?);
        }
        if let Some(operator) = &mut self.operator {
            operator.shows(&decision.certificates)?;
        }
        self.refusals = self.write(&decision, &observed).await;
        self.offer(&decision).await;
        self.rolls = decision.rolls;
        self.say(&decision, &observed).await?;
        Ok(Goes::On)
    }

    fn of_set<K>(&self, store: &Store<K>) -> BTreeMap<String, K>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        let is_of_set = |of: &Arc<K>| {
            of.namespace().as_deref() == Some(&self.namespace)
                && of.labels().get(names::SET) == Some(&self.set)
        };
        let all = store.state().into_iter().filter(is_of_set);
        all.map(|of| (of.name_any(), (*of).clone())).collect()
    }

    async fn observe(&mut self) -> anyhow::Result<Observed> {
        let resources = self.watched.pipelines.state().into_iter().filter(|of| {
            of.namespace().as_deref() == Some(&self.namespace)
                && of.spec.set == self.set
                && of.metadata.deletion_timestamp.is_none()
        });
        let resources = resources.map(|of| (of.name_any(), (*of).clone()));
        let mut observed = Observed {
            namespace: self.namespace.clone(),
            set: self.set.clone(),
            resources: resources.collect(),
            deployments: self.of_set(&self.watched.deployments),
            jobs: self.of_set(&self.watched.jobs),
            pods: self.of_set(&self.watched.pods).into_values().collect(),
            refusals: self.refusals.clone(),
            ..Observed::default()
        };
        let data = |of: ConfigMap| of.data.unwrap_or_default();
        let maps = self.of_set(&self.watched.config_maps).into_iter();
        observed.config_maps = maps.map(|(name, of)| (name, data(of))).collect();
        if observed.resources.is_empty() {
            return Ok(observed);
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets
            .get_opt(&names::link_secret(&self.set, "authority"))
            .await?;
        let text = secret.and_then(|of| of.data?.remove("certificates.json"));
        observed.certificates = text.and_then(|of| String::from_utf8(of.0).ok());
        self.texts(&mut observed).await?;
        self.logs(&mut observed).await;
        self.ask(&mut observed).await;
        Ok(observed)
    }

    /// The texts that `configMapRef`s name.
    async fn texts(&self, observed: &mut Observed) -> anyhow::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        for (name, resource) in &observed.resources {
            if let Some(of) = &resource.spec.config_map_ref {
                let map = maps.get_opt(&of.name).await?;
                if let Some(text) = map.and_then(|map| map.data?.remove(&of.key)) {
                    observed.texts.insert(name.clone(), text);
                }
            }
        }
        Ok(())
    }

    /// What Jobs wrote that have succeeded.
    async fn logs(&self, observed: &mut Observed) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        for (name, job) in &observed.jobs {
            if job.status.as_ref().and_then(|of| of.succeeded).unwrap_or(0) == 0 {
                continue;
            }
            let of_job = |pod: &&Pod| {
                pod.labels().get(names::JOB) == Some(name)
                    && pod.status.as_ref().and_then(|of| of.phase.as_deref()) == Some("Succeeded")
            };
            let Some(pod) = observed.pods.iter().find(of_job) else {
                continue;
            };
            let params = LogParams {
                limit_bytes: Some(LOG_BYTES_MAX),
                ..LogParams::default()
            };
            match pods.logs(&pod.name_any(), &params).await {
                Ok(log) => {
                    observed.job_logs.insert(name.clone(), log);
                }
                Err(error) => warn!(job = name, "its log cannot be read: {error}"),
            }
        }
    }

    /// What processes say.
    async fn ask(&mut self, observed: &mut Observed) {
        let ips = |role: &str| {
            let of_role = observed.pods.iter().filter(move |pod| {
                pod.labels().get(names::ROLE).map(String::as_str) == Some(role)
                    && pod.metadata.deletion_timestamp.is_none()
            });
            let ips = of_role.filter_map(|pod| {
                let ip = pod.status.as_ref()?.pod_ip.clone()?;
                Some((pod.name_any(), ip))
            });
            ips.collect::<BTreeMap<String, String>>()
        };
        let controller = ips("controller").into_values().next();
        if let Some(ip) = &controller {
            if let Ok(text) = get(ip, "/status").await {
                match serde_json::from_str(&text) {
                    Ok(status) => observed.controller = Some(status),
                    Err(error) => warn!(
                        set = self.name(),
                        "the controller's status cannot be read: {error}"
                    ),
                }
            }
            if let (true, Some(operator)) = (self.rolls, &self.operator)
                && let Ok(Ok(rollouts)) = operator.asks(ip, Operate::Query).await
            {
                observed.rollouts = Some(rollouts);
            }
        }
        if self.sampled.is_none_or(|at| at.elapsed() >= SAMPLE) {
            self.sampled = Some(Instant::now());
            let mut said = BTreeMap::new();
            for (pod, ip) in ips("gateway") {
                if let Ok(text) = get(&ip, "/metrics").await {
                    said.insert(pod, counts(&text));
                }
            }
            self.samples.heard(self.began.elapsed(), said);
        }
        observed.rates = self.samples.rates();
    }

    /// Writes and deletes objects; what was refused.
    async fn write(&mut self, decision: &Decision, observed: &Observed) -> Vec<String> {
        let mut refusals = Vec::new();
        for object in &decision.objects {
            let name = object.name.as_str();
            let there = match object.kind {
                Kind::Deployment => There::of(
                    observed
                        .deployments
                        .get(name)
                        .map(|of| of.metadata.generation),
                ),
                Kind::Job => There::of(observed.jobs.get(name).map(|of| of.metadata.generation)),
                // They have no generation.
                Kind::ConfigMap => There::of(observed.config_maps.get(name).map(|_| None)),
                _ => There::Unknown,
            };
            if let Err(why) = self.writer.apply(object, there).await {
                refusals.push(why);
            }
        }
        for (kind, name) in &decision.deletions {
            if let Err(why) = self.writer.delete(*kind, name).await {
                refusals.push(why);
            }
        }
        refusals
    }

    /// Has the controllers publish what is to be published.
    async fn offer(&mut self, decision: &Decision) {
        for offer in &decision.offers {
            let (Some(ip), Some(operator)) = (&offer.controller, &self.operator) else {
                continue;
            };
            let what = Operate::Offer {
                definition: Arc::new(Definition {
                    revision: 0,
                    pipeline: offer.pipeline.as_str().into(),
                    profiles: offer.profiles.as_str().into(),
                }),
                how: offer.how.as_str().into(),
            };
            match operator.asks(ip, what).await {
                Ok(Ok(mut reports)) => {
                    if let Some(report) = reports.pop() {
                        info!(resource = offer.resource, "another revision is published");
                        self.offered.insert(offer.resource.clone(), Ok(report));
                    }
                }
                Ok(Err(why)) => {
                    self.offered.insert(offer.resource.clone(), Err(why));
                }
                Err(why) => warn!(
                    resource = offer.resource,
                    "the controller cannot be reached: {why}"
                ),
            }
        }
    }

    /// Writes the status of resources that changed, and an event for each state that is new.
    async fn say(&self, decision: &Decision, observed: &Observed) -> anyhow::Result<()> {
        let api: Api<Pipeline> = Api::namespaced(self.client.clone(), &self.namespace);
        for (name, status) in &decision.statuses {
            let Some(resource) = observed.resources.get(name) else {
                continue;
            };
            if resource.status.as_ref() == Some(status) {
                continue;
            }
            let before = resource.status.clone().unwrap_or_default();
            for (type_, reason, note) in events(&before.conditions, &status.conditions) {
                let event = Event {
                    type_,
                    reason,
                    note: Some(note),
                    action: "Reconcile".to_owned(),
                    secondary: None,
                };
                if let Err(error) = self
                    .recorder
                    .publish(&event, &resource.object_ref(&()))
                    .await
                {
                    warn!(resource = name, "an event cannot be written: {error}");
                }
            }
            let patch = json!({
                "apiVersion": "spillgate.dev/v1alpha1",
                "kind": "Pipeline",
                "status": status,
            });
            let params = PatchParams::apply(names::OPERATOR).force();
            match api.patch_status(name, &params, &Patch::Apply(&patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }
}
