//! Decisions of two roles. A [`gateway`] admits requests ([`ledger`], behind the [`gate`]), joins their branches,
//! chooses their workers ([`dispatcher`]) and ends each of them. The controller of a [`module`] guides brokers and
//! gateways ([`planner`]) and follows the load with workers ([`scaling`]). Beside these roles there are the rights of
//! tokens ([`access`]) and clients ([`clients`]), the variant and worker of each client ([`adaptation`]), the models that a frame asks for
//! ([`families`]), the reasons of refusals ([`refusal`]), the choice of connections that are kept ([`connection_admission`]), which messages of a client's streams are
//! taken in ([`intake`]), how a revision takes the place of another ([`rollout`]), and [`plan`]s of batch sizes
//! and workers. All are plain state machines: no I/O, no clock.

pub mod access;
pub mod adaptation;
pub mod bounds;
pub mod clients;
pub mod connection_admission;
mod costs;
pub mod dispatcher;
mod estimate;
pub mod families;
pub mod gate;
pub mod gateway;
mod history;
pub mod intake;
pub mod ledger;
mod limits;
pub mod module;
pub mod plan;
pub mod planner;
pub mod refusal;
pub mod rollout;
pub mod scaling;
pub mod shares;
mod stage;
mod sweep;
pub mod uplink;
pub mod variant_selector;

pub use gateway::Gateway;
pub use ledger::Ledger;
pub use module::ModuleController;
pub use plan::Planned;
pub use planner::{ModuleState, StatePlanner};
pub use refusal::Refusal;
pub use rollout::Rollout;
pub use shares::Shares;
