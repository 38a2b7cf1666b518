//! Virtual time for a placement: the policy of [`spillgate_worker_policy::weights::placement`], the queues of actions of
//! [`spillgate_worker_policy::actions`], and around them devices with emulated hardware. A device executes one batch at a time. It reads
//! weights over a link beside that, one model at a time. Inputs and outputs are copied on streams of their own.
//!
//! What is served is a [`Scenario`]: models, devices, and requests one by one.

pub(crate) mod device;
mod divided;
mod hardware;
mod noise;
mod report;
mod run;
pub(crate) mod scenario;
#[cfg(test)]
mod tests;

pub use divided::run_divided;
pub use report::{Figures, Logged, REQUESTS_MIN};
pub use run::{End, Outcome, run};
pub use scenario::{
    ARRIVAL_COLUMNS, Arrival, ClosedLoop, NO_SLO, Scenario, ScenarioError, ScenarioModel, System,
    parse_arrivals,
};
