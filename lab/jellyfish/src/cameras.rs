//! Jellyfish's evaluation in virtual time: cameras with links of their own, workers that each run one variant of a model, and
//! between them a way to choose variants.
//!
//! Source: the paper (`jellyfish.txt`): the loop of §3.1, clients of §3.2, loading of §4.4, settings of §7. What the text leaves out
//! follows the authors' code: a worker tolerates 3 ms, and waits for a fuller batch while its tightest frame keeps 10 ms.
//!
//! A [`Contender`] either adapts, and then is [`Adaptation`] as it serves, or is the paper's baseline: one variant on all workers, and one
//! queue for all, earliest deadline first.
//!
//! Cameras of the contender [`Method::Spillgate`] decide by the code of our client: sizes, reports and frames that they do not send are
//! [`CameraPolicy`]'s. Those of the others decide as the authors' do.
//!
//! [`serve`] has the same cameras, links and workers, and what serves between them ([`spillgate_sim::world`]).
//!
//! Deviations: decisions and messages inside the server take no time. A worker takes the frame with the earliest deadline first; the
//! authors take the oldest, which is the same where objectives are equal. A client without a worker sends its smallest frames,
//! which are dropped, so that its link stays known. While a variant is loaded the one before serves on.
//!
//! Invariants: every frame ends once; equal settings give equal reports.
//!
//! [`Adaptation`]: crate::adaptation::Adaptation
//! [`Method::Spillgate`]: crate::adaptation::Method::Spillgate
//! [`CameraPolicy`]: spillgate_camera::CameraPolicy

mod authors;
mod cache;
mod camera;
mod edf;
mod mind;
mod proxy;
mod report;
mod run;
mod served;
mod setting;
#[cfg(test)]
mod tests;
mod worker;

pub use proxy::F1_POINTS;
pub use report::CamerasReport;
pub use run::run;
pub use served::{Way, serve};
pub use setting::{BadZoo, CameraKind, Contender, LoopSetting, Zoo};
