//! The driver: watches resources, reads what there is of each set once a second, and does what [`crate::decide`] says.

mod api;
mod ask;
mod leader;
mod pass;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::crd::Pipeline;
use crate::decide::Knows;
use crate::names;

/// How often a set is looked at, where nothing changes.
const LOOK: Duration = Duration::from_secs(1);
/// Changes come in bunches: those of this time are looked at together.
const BUNCH: Duration = Duration::from_millis(100);

/// What the operator was started with.
pub struct Options {
    /// The only namespace that it looks after; all of them otherwise.
    pub namespace: Option<String>,
    /// Where its Lease is.
    pub lease_namespace: String,
    /// Its own name among operators.
    pub identity: String,
    /// What decisions are made with.
    pub knows: Knows,
}

/// The objects of all sets, as the API reported them last.
pub(crate) struct Watched {
    pub(crate) pipelines: Store<Pipeline>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) jobs: Store<Job>,
    pub(crate) config_maps: Store<ConfigMap>,
    pub(crate) pods: Store<Pod>,
}

/// The objects of a namespace, or all.
pub(crate) fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Runs until SIGTERM or SIGINT, or until it loses its lead.
///
/// # Errors
/// When the API cannot be reached at the start, or another operator leads now.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let client = Client::try_default().await?;
    let lead = leader::Lead::new(&client, &options.lease_namespace, &options.identity);
    tokio::select! {
        ended = leads(client, options, &lead) => ended,
        _ = terminate.recv() => lead.give_up().await,
        _ = interrupt.recv() => lead.give_up().await,
    }
}

/// Waits until it leads, and looks after sets while it does.
async fn leads(client: Client, options: Options, lead: &leader::Lead) -> anyhow::Result<()> {
    lead.take().await?;
    let changed = Arc::new(Notify::new());
    let namespace = options.namespace.as_deref();
    let ours =
        watcher::Config::default().labels(&format!("{}={}", names::MANAGED_BY, names::OPERATOR));
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    let watched = Arc::new(Watched {
        pipelines: watch(
            &client,
            namespace,
            watcher::Config::default(),
            &changed,
            &mut tasks,
        ),
        deployments: watch(&client, namespace, ours.clone(), &changed, &mut tasks),
        jobs: watch(&client, namespace, ours.clone(), &changed, &mut tasks),
        config_maps: watch(&client, namespace, ours.clone(), &changed, &mut tasks),
        pods: watch(&client, namespace, ours, &changed, &mut tasks),
    });
    watched.pipelines.wait_until_ready().await?;
    watched.deployments.wait_until_ready().await?;
    watched.jobs.wait_until_ready().await?;
    watched.config_maps.wait_until_ready().await?;
    watched.pods.wait_until_ready().await?;
    info!("all objects are known; looking after them");
    let work = look_after(client, watched, Arc::new(options.knows), changed);
    tokio::select! {
        () = work => Ok(()),
        lost = lead.keep() => lost,
    }
}

/// Keeps a store of all objects of a kind.
fn watch<K>(
    client: &Client,
    namespace: Option<&str>,
    config: watcher::Config,
    changed: &Arc<Notify>,
    tasks: &mut Vec<JoinHandle<()>>,
) -> Store<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let stream = watcher(api::<K>(client, namespace), config).default_backoff();
    let stream = reflector::reflector(writer, stream);
    let changed = changed.clone();
    tasks.push(tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            match event {
                Ok(_) => changed.notify_waiters(),
                Err(error) => warn!(kind = %K::kind(&()), "cannot watch: {error}"),
            }
        }
    }));
    store
}

/// A task for each set, as long as it has resources.
async fn look_after(
    client: Client,
    watched: Arc<Watched>,
    knows: Arc<Knows>,
    changed: Arc<Notify>,
) {
    let mut sets: BTreeMap<(String, String), JoinHandle<()>> = BTreeMap::new();
    loop {
        let heard = changed.notified();
        let resources = watched.pipelines.state();
        let there = resources
            .iter()
            .map(|of| (of.namespace().unwrap_or_default(), of.spec.set.clone()));
        for set in there {
            let task = || {
                let pass =
                    pass::Passes::new(client.clone(), watched.clone(), knows.clone(), set.clone());
                tokio::spawn(look_after_one(pass, changed.clone()))
            };
            let running = sets.entry(set.clone()).or_insert_with(task);
            if running.is_finished() {
                *running = task();
            }
        }
        let _ = tokio::time::timeout(LOOK, heard).await;
    }
}

/// Passes over a set, until it has no resources.
async fn look_after_one(mut passes: pass::Passes, changed: Arc<Notify>) {
    let mut n_failed = 0_u32;
    loop {
        let heard = changed.notified();
        match passes.pass().await {
            Ok(pass::Goes::On) => n_failed = 0,
            Ok(pass::Goes::Ends) => return,
            Err(error) => {
                n_failed += 1;
                warn!(set = passes.name(), "a pass failed: {error:#}");
            }
        }
        if n_failed > 0 {
            let pause = LOOK * 2_u32.pow(n_failed.min(5));
            tokio::time::sleep(pause).await;
        } else {
            let _ = tokio::time::timeout(LOOK, heard).await;
            tokio::time::sleep(BUNCH).await;
        }
    }
}
