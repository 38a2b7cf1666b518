//! Cameras: clients of the gateways whose frames go over links of their own.
//!
//! What a camera decides is [`CameraPolicy`]'s, as in `spillgate stream`; how far it is believed is [`Uplink`]'s, as at the server; what it is
//! asked for is the gateway's. Here is what happens between them. A frame is encoded, held back or sent, acknowledged when it is there, and
//! answered half a round trip after it ended. A frame is in time if its camera has the result within its SLO from the capture.
//!
//! What the server sends waits for nothing. A camera stays at its gateway: while that is down, its frames are lost.
//!
//! [`CameraPolicy`]: spillgate_camera::CameraPolicy
//! [`Uplink`]: spillgate_controller_policy::uplink::Uplink

mod camera;
mod figures;
mod setting;

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_camera::{CameraReport, ClockAnswer};
use spillgate_controller_policy::gateway::Event as GatewayEvent;
use spillgate_controller_policy::ledger::Offer;
use spillgate_controller_policy::variant_selector::{Asked, FrameSize, StreamKey};
use spillgate_pipeline::id::{GatewayId, ModuleId, RequestId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::request::{Outcome, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Address;

use self::camera::{Camera, Frame};
pub use self::figures::{CameraFigures, FramesReport};
use self::figures::{FrameEnd, FramesTally};
pub use self::setting::{FrameBits, SimCamera};
use super::World;
use super::agenda::Occurrence;
use super::gateways::stream_of;
use super::noted::Kind;
use crate::accuracies::Accuracies;

/// What happens next to a camera.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    Capture,
    /// A frame is encoded.
    Leaves(Frame),
    /// Its gateway has a frame.
    Arrives(Frame),
    /// It knows that a frame is there, since that time of the server's clock.
    Acknowledged {
        number: u64,
        came: Timestamp,
    },
    /// A report is due.
    Report,
    /// Its gateway hears a report.
    Reported(CameraReport),
    /// It hears the answer.
    Answered(ClockAnswer),
    /// It hears which size is asked for.
    Asked(Asked),
    /// It hears what became of a frame that arrived.
    Ended {
        number: u64,
        captured: Timestamp,
        end: FrameEnd,
    },
}

impl Due {
    /// What it is for the hash of the run.
    fn noted(&self) -> u64 {
        match self {
            Due::Capture => 0,
            Due::Leaves(frame) => 1 | frame.number << 4,
            Due::Arrives(frame) => 2 | frame.number << 4,
            Due::Acknowledged { number, .. } => 3 | number << 4,
            Due::Report => 4,
            Due::Reported(_) => 5,
            Due::Answered(_) => 6,
            Due::Asked(asked) => 7 | u64::from(asked.side) << 4,
            Due::Ended { number, .. } => 8 | number << 4,
        }
    }
}

/// The cameras of a run.
pub(super) struct Cameras {
    cameras: Vec<Camera>,
    by_key: IndexMap<StreamKey, usize, FxBuildHasher>,
    /// Frames that a gateway accepted and has not ended, with their cameras.
    accepted: IndexMap<RequestId, (usize, Frame), FxBuildHasher>,
    /// Frames that are to be captured next, one a camera, and those that have not ended.
    n_open: usize,
    tallies: Vec<FramesTally>,
    accuracies: Accuracies,
}

impl Cameras {
    /// Nothing was captured yet.
    pub(super) fn new(all: &[SimCamera], n_gateways: usize, accuracies: Accuracies) -> Self {
        let owner = |i: usize| GatewayId((i % n_gateways) as u16);
        let cameras: Vec<Camera> = (all.iter().cloned().enumerate())
            .map(|(i, of)| Camera::new(of, owner(i)))
            .collect();
        let keys = cameras.iter().map(|camera| stream_of(&camera.party()));
        Cameras {
            by_key: keys.zip(0..).collect(),
            accepted: IndexMap::default(),
            n_open: cameras.len(),
            tallies: all.iter().map(|of| FramesTally::named(&of.name)).collect(),
            cameras,
            accuracies,
        }
    }

    /// Whether all frames were captured and have ended.
    pub(super) fn are_done(&self) -> bool {
        self.n_open == 0
    }

    /// What became of the frames, over that time.
    pub(super) fn report(self, reported: Duration) -> Option<FramesReport> {
        figures::report(self.tallies, self.accuracies.are_stated(), reported)
    }
}

impl World {
    /// Streams are opened.
    pub(super) fn start_cameras(&mut self) {
        for i in 0..self.cameras.cameras.len() {
            let starts = self.cameras.cameras[i].of.starts;
            self.camera_due(starts, i, Due::Report);
            self.camera_due(starts, i, Due::Capture);
        }
    }

    fn camera_due(&mut self, at: Timestamp, camera: usize, due: Due) {
        self.agenda.at(at, Occurrence::Camera { camera, due });
    }

    /// The end of what is captured and reported.
    fn cameras_end(&self) -> Timestamp {
        Timestamp::ZERO + self.config.duration
    }

    /// Something is due at a camera, or at its gateway.
    pub(super) fn on_camera(&mut self, i: usize, due: Due) -> Result<(), Violation> {
        self.note(Kind::Camera, (i as u64) << 44 | due.noted());
        let now = self.now;
        let camera = &mut self.cameras.cameras[i];
        let clock = camera.clock(now);
        match due {
            Due::Capture => {
                let frame = camera.capture(now);
                let leaves = now + camera.of.encoding;
                let next = now + Duration::from_secs_f64(1.0 / camera.of.rate);
                self.camera_due(leaves, i, Due::Leaves(frame));
                if next < self.cameras_end() {
                    self.cameras.n_open += 1;
                    self.camera_due(next, i, Due::Capture);
                }
            }
            Due::Leaves(mut frame) => {
                let Some(sent) = camera.send(now, &mut frame) else {
                    self.frame_over(i, frame.captured, FrameEnd::Unsent);
                    return Ok(());
                };
                if self.is_counted(frame.captured) {
                    self.cameras.tallies[i].sent(frame.side);
                }
                self.camera_due(sent.arrives, i, Due::Arrives(frame));
            }
            Due::Arrives(frame) => return self.arrived(i, frame),
            Due::Acknowledged { number, came } => {
                if let Some(policy) = &mut camera.policy {
                    policy.received(clock, number, came);
                }
            }
            Due::Report => {
                if let Some((report, sent, next)) = camera.report(now) {
                    self.camera_due(sent.arrives, i, Due::Reported(report));
                    if next < self.cameras_end() {
                        self.camera_due(next, i, Due::Report);
                    }
                }
            }
            Due::Reported(report) => return self.reported(i, &report),
            Due::Answered(answer) => {
                if let Some(policy) = &mut camera.policy {
                    policy.answered(clock, &answer);
                }
            }
            Due::Asked(asked) => {
                if let Some(policy) = &mut camera.policy {
                    policy.asked(clock, asked.side);
                }
            }
            Due::Ended {
                number,
                captured,
                end,
            } => {
                if let Some(policy) = &mut camera.policy {
                    policy.came(number);
                }
                self.frame_over(i, captured, end);
            }
        }
        Ok(())
    }

    /// Whether a frame that was captured then comes after the warm-up.
    fn is_counted(&self, captured: Timestamp) -> bool {
        captured >= Timestamp::ZERO + self.config.warm_up
    }

    fn frame_over(&mut self, i: usize, captured: Timestamp, end: FrameEnd) {
        self.cameras.n_open -= 1;
        if self.is_counted(captured) {
            self.cameras.tallies[i].ended(end);
        }
    }

    /// A camera hears that a frame of it ended, half a round trip later.
    fn tell_end(&mut self, i: usize, frame: &Frame, end: FrameEnd) {
        let heard = self.now + self.cameras.cameras[i].way();
        let ended = Due::Ended {
            number: frame.number,
            captured: frame.captured,
            end,
        };
        self.camera_due(heard, i, ended);
    }

    /// The gateway of a camera has a frame.
    fn arrived(&mut self, i: usize, frame: Frame) -> Result<(), Violation> {
        let camera = &mut self.cameras.cameras[i];
        let (owner, party) = (camera.owner, camera.party());
        let acknowledged = self.now + camera.acknowledged_in();
        let is_full = camera.n_open >= self.config.pipeline.limits.in_flight_per_stream;
        let is_counted = self.is_counted(frame.captured);
        if is_counted {
            self.tally.offered(self.now, Application::default());
        }
        if self.gateways[owner.idx()].life.is_down {
            return self.frame_refused(i, &frame, "unreachable");
        }
        let here = self.clock(Address::Gateway(owner)).read(self.now);
        let number = frame.number;
        self.camera_due(acknowledged, i, Due::Acknowledged { number, came: here });
        if is_full {
            return self.frame_refused(i, &frame, "stream_full");
        }
        let camera = &self.cameras.cameras[i];
        let bytes = camera.bytes(&frame);
        let slo = self.config.pipeline.slo;
        let believed = (camera.known).sent_at((here, frame.took), frame.says, bytes, slo);
        let timeout = Some(camera.timeout());
        let size = FrameSize {
            side: frame.side,
            // Only a camera that adapts says what its pictures were before.
            source: match camera.policy {
                Some(_) => camera.of.side,
                None => frame.side,
            },
            bytes: bytes as u32,
        };
        let id = self.next_beside(owner);
        let offer = Offer {
            sent_at: believed.unwrap_or(here),
            frame: size,
            ..self.offer(id, timeout, Application::default(), party)
        };
        match self.admit(id, &offer) {
            Err(refusal) => self.frame_refused(i, &frame, refusal.label()),
            Ok(_) => {
                self.cameras.cameras[i].n_open += 1;
                self.cameras.accepted.insert(id, (i, frame));
                self.checker.accepted(id)?;
                let filled = self.filled(ModuleId::SOURCE);
                self.drive_gateway(owner, GatewayEvent::Read(id, Ok(filled)))
            }
        }
    }

    fn frame_refused(
        &mut self,
        i: usize,
        frame: &Frame,
        reason: &'static str,
    ) -> Result<(), Violation> {
        if self.is_counted(frame.captured) {
            self.tally.refused(reason);
        }
        self.tell_end(i, frame, FrameEnd::Refused);
        Ok(())
    }

    /// The gateway of a camera hears its report.
    fn reported(&mut self, i: usize, report: &CameraReport) -> Result<(), Violation> {
        let camera = &self.cameras.cameras[i];
        let owner = camera.owner;
        if self.gateways[owner.idx()].life.is_down {
            return Ok(());
        }
        let here = self.clock(Address::Gateway(owner)).read(self.now);
        let answered = self.now + camera.acknowledged_in();
        let Some((answer, heard)) = self.cameras.cameras[i].reported(here, report) else {
            return Ok(());
        };
        self.camera_due(answered, i, Due::Answered(answer));
        let key = stream_of(&self.cameras.cameras[i].party());
        match heard {
            Some(link) => self.drive_gateway(owner, GatewayEvent::Uplink(key, link)),
            None => Ok(()),
        }
    }

    /// A gateway asks a camera for frames of a size.
    pub(super) fn ask_camera(&mut self, key: StreamKey, asked: Asked) {
        if let Some(&i) = self.cameras.by_key.get(&key) {
            let heard = self.now + self.cameras.cameras[i].way();
            self.camera_due(heard, i, Due::Asked(asked));
        }
    }

    /// A frame of a camera ended at its gateway. Returns whether it was one, and if so whether it counts.
    pub(super) fn frame_ended(&mut self, request: &Request, outcome: Outcome) -> Option<bool> {
        let (i, frame) = self.cameras.accepted.swap_remove(&request.id)?;
        let camera = &mut self.cameras.cameras[i];
        camera.n_open -= 1;
        let latency = (self.now + camera.way()).since(frame.captured);
        let accuracies = &self.cameras.accuracies;
        let variant = accuracies.variant_of(request);
        let end = match outcome {
            Outcome::Completed | Outcome::Late => FrameEnd::Answered {
                latency,
                in_time: latency <= camera.of.slo,
                variant,
                seen: accuracies.seen(frame.side, variant),
                accuracy: accuracies.of_frame(frame.side, variant),
            },
            Outcome::Dropped(_) | Outcome::Failed { .. } => FrameEnd::Dropped,
        };
        self.tell_end(i, &frame, end);
        Some(self.is_counted(frame.captured))
    }
}
