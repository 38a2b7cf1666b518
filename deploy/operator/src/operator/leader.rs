//! One operator of several leads: the one that holds the Lease.
//!
//! Clocks of machines differ, so an operator counts for itself how long the Lease has not changed, and takes it after its duration.

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use tokio::time::Instant;
use tracing::{info, warn};

const NAME: &str = "spillgate-operator";
/// A lease that is not renewed for so long is anybody's.
const DURATION: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(3);
/// A leader that could not renew for so long ends, before another one may lead.
const GIVE_UP: Duration = Duration::from_secs(10);

/// The Lease, as this operator sees it.
pub(super) struct Lead {
    leases: Api<Lease>,
    identity: String,
}

impl Lead {
    pub(super) fn new(client: &Client, namespace: &str, identity: &str) -> Self {
        Lead {
            leases: Api::namespaced(client.clone(), namespace),
            identity: identity.to_owned(),
        }
    }

    /// Waits until this operator leads.
    ///
    /// # Errors
    /// When Leases cannot be read.
    pub(super) async fn take(&self) -> anyhow::Result<()> {
        let mut seen: Option<(Option<String>, Instant)> = None;
        let mut said = false;
        loop {
            let lease = self.leases.get_opt(NAME).await.context(
                "the operator's Lease cannot be read; give it the right to leases of its own namespace",
            )?;
            let version = lease.as_ref().and_then(ResourceExt::resource_version);
            let held_by = lease.as_ref().and_then(holder);
            let is_free = match (&held_by, &seen) {
                (None, _) => true,
                (Some(holder), _) if *holder == self.identity => true,
                (Some(_), Some((before, since))) => {
                    *before == version && since.elapsed() > DURATION
                }
                (Some(_), None) => false,
            };
            if is_free {
                match self.write(lease, Some(&self.identity)).await {
                    Ok(()) => break,
                    Err(error) => warn!("the lease could not be taken: {error}"),
                }
            } else if seen.as_ref().is_none_or(|(before, _)| *before != version) {
                seen = Some((version, Instant::now()));
            }
            if let (Some(holder), false) = (held_by, said) {
                info!(holder, "another operator leads; waiting");
                said = true;
            }
            tokio::time::sleep(RENEW).await;
        }
        info!(identity = self.identity, "this operator leads");
        Ok(())
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// When this operator leads no more.
    pub(super) async fn keep(&self) -> anyhow::Result<()> {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(RENEW).await;
            match tokio::time::timeout(RENEW, self.renew()).await {
                Ok(Ok(())) => renewed = Instant::now(),
                Ok(Err(Renewal::Lost(holder))) => {
                    bail!("{holder} leads now; this operator ends, and waits for its turn anew")
                }
                Ok(Err(Renewal::Failed(error))) => warn!("the lease is not renewed: {error}"),
                Err(_) => warn!("the lease is not renewed: the API does not answer"),
            }
            if renewed.elapsed() > GIVE_UP {
                bail!(
                    "the lease could not be renewed for {} s; this operator ends",
                    GIVE_UP.as_secs()
                );
            }
        }
    }

    async fn renew(&self) -> Result<(), Renewal> {
        let lease = self.leases.get_opt(NAME).await.map_err(Renewal::Failed)?;
        match lease.as_ref().and_then(holder) {
            Some(holder) if holder != self.identity => Err(Renewal::Lost(holder)),
            _ => self
                .write(lease, Some(&self.identity))
                .await
                .map_err(Renewal::Failed),
        }
    }

    /// Leaves the lease to another one, if it is this operator's: that need not wait.
    ///
    /// # Errors
    /// When the lease cannot be written. It ends by itself then.
    pub(super) async fn give_up(&self) -> anyhow::Result<()> {
        let lease = self.leases.get_opt(NAME).await?;
        if lease.as_ref().and_then(holder).as_deref() == Some(self.identity.as_str()) {
            self.write(lease, None).await?;
        }
        info!("this operator ends");
        Ok(())
    }

    async fn write(&self, lease: Option<Lease>, by: Option<&str>) -> kube::Result<()> {
        let now = MicroTime(Timestamp::now());
        let before = lease
            .as_ref()
            .and_then(|of| of.spec.clone())
            .unwrap_or_default();
        let stays = before.holder_identity.as_deref() == by;
        let transitions = before.lease_transitions.unwrap_or(0);
        let spec = LeaseSpec {
            holder_identity: by.map(str::to_owned),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: if stays {
                before.acquire_time
            } else {
                Some(now.clone())
            },
            lease_transitions: Some(if stays { transitions } else { transitions + 1 }),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        let params = PostParams::default();
        match lease {
            // With the version that was read: another one that wrote meanwhile wins.
            Some(mut lease) => {
                lease.spec = Some(spec);
                self.leases.replace(NAME, &params, &lease).await.map(drop)
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(NAME.to_owned()),
                    ..ObjectMeta::default()
                };
                let lease = Lease {
                    metadata,
                    spec: Some(spec),
                };
                self.leases.create(&params, &lease).await.map(drop)
            }
        }
    }
}

/// Why a lease is not renewed.
enum Renewal {
    /// This one holds it.
    Lost(String),
    Failed(kube::Error),
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone()
}
