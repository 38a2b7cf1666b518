//! Puts another revision of the definition in the place of what a process serves: drives the [`Rollout`] of a gateway, or what a process
//! without one decides by [`Following`]. The pipelines of a process that is alone are one rollout. In a set each is one.

mod decides;
mod driver;

use std::sync::Arc;

use spillgate_controller::api::Api;
use spillgate_controller_policy::rollout::following::Following;
use spillgate_controller_policy::rollout::{
    RevisionId, RevisionState, Rollout, RolloutConfig, Share,
};
use spillgate_protocol::session::rights::Kind;
use spillgate_telemetry::Telemetry;
use tokio::sync::{mpsc, oneshot};
use tonic_health::server::HealthReporter;

use crate::deployment::Revision;
use crate::process_context::ProcessContext;
use crate::serving::Serving;
use decides::Decides;
pub(crate) use driver::Face;
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

/// Replaces what a process serves of a group of pipelines.
#[derive(Clone)]
pub struct Renewer {
    telemetry: Arc<Telemetry>,
    serving: Serving,
    group: usize,
    /// Largest frame that connections take.
    frame_bytes: usize,
    tell: mpsc::Sender<Told>,
}

impl Renewer {
    /// Watches over what a gateway, or a process that is alone, serves of a group, in the background, until `serving` is closed.
    pub(crate) fn start(
        context: &ProcessContext,
        telemetry: &Arc<Telemetry>,
        (serving, group): (&Serving, usize),
        (api, health): (&Arc<Api>, &HealthReporter),
        frame_bytes: usize,
        revision: Revision,
    ) -> Self {
        let now = context.clock.now();
        let rollout = Rollout::new(context.rollout, now, revision.id);
        let face = Face {
            api: api.clone(),
            health: health.clone(),
        };
        let decides = Decides::Gateway(Box::new(rollout));
        let serves = (serving, group);
        Self::drive(
            context,
            telemetry,
            serves,
            (decides, Some(face)),
            frame_bytes,
            revision,
        )
    }

    /// The same of a process without a gateway.
    pub(crate) fn follow(
        context: &ProcessContext,
        telemetry: &Arc<Telemetry>,
        serves: (&Serving, usize),
        revision: Revision,
    ) -> Self {
        let has_devices = revision.roles.iter().any(|role| role.is(Kind::Worker));
        let following = Following::new(context.clock.now(), revision.id);
        let decides = Decides::Inner(following, has_devices);
        // It takes frames from gateways alone.
        Self::drive(
            context,
            telemetry,
            serves,
            (decides, None),
            usize::MAX,
            revision,
        )
    }

    fn drive(
        context: &ProcessContext,
        telemetry: &Arc<Telemetry>,
        (serving, group): (&Serving, usize),
        (decides, face): (Decides, Option<Face>),
        frame_bytes: usize,
        revision: Revision,
    ) -> Self {
        let (tell, told) = mpsc::channel(EVENTS_MAX);
        serving.show(group, decides.view(), 0);
        let driver = Driver::new(
            context.clone(),
            telemetry.clone(),
            (serving.clone(), group),
            face,
            (decides, revision),
            tell.clone(),
        );
        tokio::spawn(driver.run(told));
        Renewer {
            telemetry: telemetry.clone(),
            serving: serving.clone(),
            group,
            frame_bytes,
            tell,
        }
    }

    /// Whether all requests go to this revision, and nothing else is under way.
    pub(crate) fn serves(&self, id: RevisionId) -> bool {
        let views = self.serving.views(self.group);
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
        self.check(&revision)?;
        let (answer, answered) = oneshot::channel();
        let offer = Told::Offered(Offer {
            revision,
            generation: 0,
            config: None,
            answer: Some(answer),
        });
        let sent = self.tell.blocking_send(offer);
        sent.map_err(|_| RenewError::Ends)?;
        answered.blocking_recv().unwrap_or(Err(RenewError::Ends))
    }

    /// Offers the revision of a publication, or says why it cannot be served here.
    pub(crate) async fn publish(
        &self,
        (generation, id): (u64, RevisionId),
        read: Result<Revision, String>,
        config: Option<RolloutConfig>,
    ) {
        let read = read.and_then(|revision| {
            self.check(&revision).map_err(|error| error.to_string())?;
            Ok(revision)
        });
        let told = match read {
            Ok(revision) => Told::Offered(Offer {
                revision,
                generation,
                config,
                answer: None,
            }),
            Err(why) => Told::Unread(generation, id, why),
        };
        // Where nobody listens any more the process ends.
        let _ = self.tell.send(told).await;
    }

    /// Whether connections take its frames.
    fn check(&self, revision: &Revision) -> Result<(), RenewError> {
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
        Ok(())
    }
}
