//! What the links of all revisions of a process of a set have in common.

use std::net::SocketAddr;
use std::sync::Arc;

use spillgate_link::Complaints;
use spillgate_link::revisions::Revisions;
use spillgate_link::serve::{LinkPort, LinkPortConfig};
use spillgate_telemetry::Processes;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::process_role::ProcessRole;
use crate::publishing::Publishing;
use crate::renewer::Renewer;
use crate::serve_error::ServeError;
use crate::serving::Serving;

/// What the links of all revisions have in common.
pub struct SetLinks {
    /// Where others reach all of them.
    pub(crate) port: Arc<LinkPort>,
    /// What is wrong with other processes.
    pub(crate) complaints: Arc<Complaints>,
    /// In which process what runs.
    pub(crate) processes: Processes,
    /// What is published of the pipelines; `None` where a file names all processes.
    pub(crate) publishing: Option<Arc<Publishing>>,
}

impl SetLinks {
    /// Of a process that is reached by nobody yet.
    pub(crate) fn new(role: &ProcessRole, publishing: Option<Arc<Publishing>>) -> Arc<Self> {
        let complaints = Arc::new(Complaints::default());
        let port = LinkPort::new(LinkPortConfig {
            timing: role.timing,
            seed: role.incarnation.0,
            tls: role.tls.clone(),
            complaints: complaints.clone(),
            revisions: publishing.clone().map(|of| of as Arc<dyn Revisions>),
        });
        Arc::new(SetLinks {
            port,
            complaints,
            processes: Processes::new(&role.name),
            publishing,
        })
    }

    /// What is published, as sessions see it.
    pub(crate) fn revisions(&self) -> Option<Arc<dyn Revisions>> {
        let publishing = self.publishing.clone();
        publishing.map(|of| of as Arc<dyn Revisions>)
    }

    /// Listens for other processes, and dials those that this one dials, for all that is served; what is published is served from now
    /// on. Returns where it listens.
    ///
    /// # Errors
    /// When the port cannot be used.
    pub(crate) fn begin(
        &self,
        role: &ProcessRole,
        serving: &Serving,
        renewers: Vec<Renewer>,
        stop: &CancellationToken,
    ) -> Result<Option<SocketAddr>, ServeError> {
        let address = role.listen();
        if let (Some(listener), Some(address)) = (&role.listener, address) {
            let listener = listener.try_clone().and_then(TcpListener::from_std);
            let listener = listener.map_err(|cause| ServeError::Listen {
                address,
                flag: "--link-listen",
                cause,
            })?;
            let stop = stop.clone().cancelled_owned();
            tokio::spawn(self.port.clone().serve(listener, stop));
        }
        if let Some(publishing) = &self.publishing {
            publishing.begin(serving.clone(), renewers);
        }
        for embedded in serving.all_running() {
            embedded.join(role);
        }
        Ok(address)
    }
}
