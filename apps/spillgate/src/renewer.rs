//! Puts another revision of the definition in the place of what a server serves: drives the [`Rollout`] of its pipelines, which decides.
//! They share their devices, so they are one rollout.

mod driver;

use std::sync::Arc;

use spillgate_controller::api::Api;
use spillgate_controller_policy::rollout::{RevisionId, RevisionState, Rollout, Share};
use spillgate_telemetry::Telemetry;
use tokio::sync::{mpsc, oneshot};
use tonic_health::server::HealthReporter;

use crate::deployment::Revision;
use crate::process_context::ProcessContext;
use crate::serving::Serving;
use driver::{Driver, Offer, Told};

/// Most events that wait for the driver: an offer, and what each live revision reports.
pub(crate) const EVENTS_MAX: usize = 16;

/// Why another revision is not served.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// Frames could become larger than connections take.
    #[error(
        "limits.frame_bytes of {pipeline} is {bytes}, and connections take {limit} at most since the start; restart to raise it"
    )]
    FrameBytes {
        /// The pipeline.
        pipeline: String,
        /// What it asks for.
        bytes: usize,
        /// What connections take.
        limit: usize,
    },
    /// It was taken back; why.
    #[error("{0}")]
    TakenBack(String),
    /// The server ends.
    #[error("the server ends")]
    Ends,
}

/// What an offer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// It was served already.
    Same,
    /// It was started, and takes this share of the streams.
    Serves(Share),
    /// It was served before, and serves again.
    Undone,
}

/// Replaces what a server serves.
#[derive(Clone)]
pub struct Renewer {
    telemetry: Arc<Telemetry>,
    serving: Serving,
    /// Largest frame that connections take.
    frame_bytes: usize,
    tell: mpsc::Sender<Told>,
}

impl Renewer {
    /// Watches over what `serving` serves, in the background, until that is closed.
    pub(crate) fn start(
        context: &ProcessContext,
        telemetry: &Arc<Telemetry>,
        (serving, api): (&Serving, &Arc<Api>),
        health: &HealthReporter,
        frame_bytes: usize,
        revision: Revision,
    ) -> Self {
        let (tell, told) = mpsc::channel(EVENTS_MAX);
        let rollout = Rollout::new(context.rollout, context.clock.now(), revision.id);
        serving.show(rollout.view());
        let driver = Driver::new(
            context.clone(),
            telemetry.clone(),
            (serving.clone(), api.clone()),
            health.clone(),
            (rollout, revision),
            tell.clone(),
        );
        tokio::spawn(driver.run(told));
        Renewer {
            telemetry: telemetry.clone(),
            serving: serving.clone(),
            frame_bytes,
            tell,
        }
    }

    /// Whether all requests go to this revision, and nothing else is under way.
    pub(crate) fn serves(&self, id: RevisionId) -> bool {
        let views = self.serving.views();
        let mut all = views.iter();
        all.any(|view| {
            let serves = [RevisionState::Stable, RevisionState::Watching];
            view.id == id && serves.contains(&view.state)
        })
    }

    /// Offers a revision. Returns once it takes requests; its rollout goes on in the background. To be called in a runtime, on a
    /// thread that may block.
    ///
    /// # Errors
    /// When it cannot be served. Then what was served serves on, or again.
    pub fn renew(&self, revision: Revision) -> Result<Renewed, RenewError> {
        for pipeline in revision.deployments.iter().map(|d| &d.pipeline) {
            let bytes = pipeline.limits.frame_bytes;
            if bytes > self.frame_bytes {
                return Err(RenewError::FrameBytes {
                    pipeline: pipeline.name.clone(),
                    bytes,
                    limit: self.frame_bytes,
                });
            }
            self.telemetry.register_pipeline(pipeline);
        }
        let (answer, answered) = oneshot::channel();
        let offer = Told::Offered(Offer { revision, answer });
        let sent = self.tell.blocking_send(offer);
        sent.map_err(|_| RenewError::Ends)?;
        answered.blocking_recv().unwrap_or(Err(RenewError::Ends))
    }
}
