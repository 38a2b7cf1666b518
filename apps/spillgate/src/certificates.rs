//! The certificates of a process while it runs: a metric of each file, and once a day a warning of those that end soon or have ended.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillgate_controller::edge::Tls;
use spillgate_link::tls::LinkTls;
use spillgate_telemetry::Telemetry;
use spillgate_telemetry::metrics::CertificateReading;
use spillgate_tls::Dated;
use tokio_util::sync::CancellationToken;

use crate::process_role::ProcessRole;

/// How often a certificate is warned of again. The first warning is that of the start.
pub(crate) const WARNED_EVERY: Duration = Duration::from_secs(86_400);

/// Those of the ports of a process.
#[derive(Clone)]
pub(crate) struct Certificates {
    clients: Option<Arc<Tls>>,
    peers: Option<Arc<LinkTls>>,
}

impl Certificates {
    pub(crate) fn of(clients: Option<Arc<Tls>>, role: Option<&ProcessRole>) -> Self {
        Certificates {
            clients,
            peers: role.and_then(|role| role.tls.clone()),
        }
    }

    fn dated(&self) -> impl Iterator<Item = Dated> {
        let clients = self.clients.iter().flat_map(|tls| tls.dated());
        clients.chain(self.peers.iter().flat_map(|tls| tls.dated()))
    }

    fn readings(&self) -> Vec<CertificateReading> {
        let reading = |dated: Dated| {
            Some(CertificateReading {
                file: dated.path().display().to_string(),
                expires_at: dated.expires_at()?,
            })
        };
        self.dated().filter_map(reading).collect()
    }

    /// Shows them in the metrics, and warns until `stop`.
    pub(crate) fn watch(self, telemetry: &Telemetry, stop: CancellationToken) {
        let read = self.clone();
        telemetry.register_certificates(Box::new(move || read.readings()));
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(WARNED_EVERY) => {}
                    () = stop.cancelled() => return,
                }
                for warning in self.dated().filter_map(|d| d.warning(SystemTime::now())) {
                    tracing::warn!("{warning}");
                }
            }
        });
    }
}
