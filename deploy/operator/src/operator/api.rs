//! Writing objects: server-side apply of what changed, and never of what belongs to somebody else.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};

use crate::names;
use crate::render::{Kind, Object};
use crate::short_hash;

/// Objects are applied again after this time: what somebody changed is as it should be again.
const AGAIN: Duration = Duration::from_secs(60);

/// What was applied last.
struct Applied {
    hash: String,
    at: Instant,
    generation: Option<i64>,
}

/// What is known of an object that there may be.
#[derive(Clone, Copy)]
pub(super) enum There {
    /// Such objects are not watched.
    Unknown,
    /// There is none.
    No,
    /// It is there, with this generation if such objects have one.
    Yes(Option<i64>),
}

impl There {
    pub(super) fn of(generation: Option<Option<i64>>) -> Self {
        generation.map_or(There::No, There::Yes)
    }
}

/// Writes the objects of a set.
pub(super) struct Writer {
    client: Client,
    namespace: String,
    applied: BTreeMap<(Kind, String), Applied>,
}

impl Writer {
    pub(super) fn new(client: Client, namespace: String) -> Self {
        Writer {
            client,
            namespace,
            applied: BTreeMap::new(),
        }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let (api_version, kind, plural) = kind.api();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Applies an object unless it was, and is as it was left.
    ///
    /// # Errors
    /// What the API says, with the object's name.
    pub(super) async fn apply(&mut self, object: &Object, there: There) -> Result<(), String> {
        let key = (object.kind, object.name.clone());
        let hash = short_hash(object.value.to_string().as_bytes());
        if let Some(applied) = self.applied.get(&key) {
            let is_as_left = match there {
                There::Unknown | There::Yes(None) => true,
                There::No => false,
                There::Yes(generation) => generation == applied.generation,
            };
            if applied.hash == hash && is_as_left && applied.at.elapsed() < AGAIN {
                return Ok(());
            }
        }
        // A Job's pods cannot change: it runs as it was made.
        if object.kind == Kind::Job && matches!(there, There::Yes(_)) {
            return Ok(());
        }
        let api = self.api(object.kind);
        let said = |error: kube::Error| refused(object, &error);
        let existing = api.get_opt(&object.name).await.map_err(said)?;
        let is_ours = |of: &DynamicObject| {
            of.labels().get(names::MANAGED_BY).map(String::as_str) == Some(names::OPERATOR)
        };
        if existing.is_some_and(|of| !is_ours(&of)) {
            let (_, kind, _) = object.kind.api();
            return Err(format!(
                "{kind} {} is there already, and is not the operator's: delete it, or give the pipeline another name",
                object.name
            ));
        }
        let params = PatchParams::apply(names::OPERATOR)
            .force()
            .validation_strict();
        let patched = api
            .patch(&object.name, &params, &Patch::Apply(&object.value))
            .await;
        let patched = patched.map_err(said)?;
        self.applied.insert(
            key,
            Applied {
                hash,
                at: Instant::now(),
                generation: patched.metadata.generation,
            },
        );
        Ok(())
    }

    /// Deletes an object, with its pods. One that is not there is deleted.
    ///
    /// # Errors
    /// What the API says.
    pub(super) async fn delete(&mut self, kind: Kind, name: &str) -> Result<(), String> {
        self.applied.remove(&(kind, name.to_owned()));
        let deleted = self
            .api(kind)
            .delete(name, &DeleteParams::background())
            .await;
        match deleted {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(format!(
                "{} {name} cannot be deleted: {error}",
                kind.api().1
            )),
        }
    }
}

/// What the API refused, with the cure.
fn refused(object: &Object, error: &kube::Error) -> String {
    let (_, kind, plural) = object.kind.api();
    let name = &object.name;
    match error {
        kube::Error::Api(status) if status.message.contains("exceeded quota") => format!(
            "{kind} {name}: {}; ask for a larger quota, or delete what is not needed",
            status.message
        ),
        kube::Error::Api(status) if status.code == 403 => format!(
            "{kind} {name}: the operator has no right to write {plural} here ({}); install its Role in this namespace: \
             helm upgrade, or kubectl apply -k deploy/kubernetes",
            status.message
        ),
        kube::Error::Api(status) => format!("{kind} {name}: {}", status.message),
        other => format!("{kind} {name}: {other}"),
    }
}
