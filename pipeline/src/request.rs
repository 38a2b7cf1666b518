//! A request as policies see it, and the ways in which it can end. One enum of reasons serves
//! metrics, gRPC, traces and reports.

use std::fmt;
use std::time::Duration;

use crate::action::Load;
use crate::id::{
    BatchId, ClientId, Incarnation, MemberId, ModuleId, RequestId, VariantId, WorkerId,
};
use crate::schedule::Application;
use crate::time::{Budget, Timestamp, format_duration};

/// What every policy knows of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// When the client sent it (t_s of PARD).
    pub sent_at: Timestamp,
    /// `sent_at` plus the pipeline's SLO, or earlier when the client asked for less.
    pub deadline: Timestamp,
    /// Its application: requests of one application have one law of execution times.
    pub application: Application,
    /// The client that sent it: clients share memory and the time of decoders.
    pub client: ClientId,
    /// Expected time to decode its picture in microseconds; zero where there is none.
    pub decoding_us: u32,
    /// Under overload requests of a higher rank are served first, where the drop policy goes by it
    /// ([`Recipe::ranks`](crate::policy::recipe::Recipe::ranks)): the entry says which requests are within their client's
    /// share, and of a higher class.
    pub rank: u8,
    /// Which model of the family it is for, of the module that it goes to or is at. 0 at a module without a family.
    pub member: MemberId,
    /// Which variant of the model it is for, of the module that it goes to or is at.
    pub variant: VariantId,
    /// The largest batch that its worker forms from now on, where the request's stream is bound to that worker
    /// ([`AdaptName::Jellyfish`](crate::policy::AdaptName::Jellyfish)); 0: as the module's planner says.
    pub batch_most: u16,
    /// Its client has no SLO: it is served in the idle time of devices, and given up after [`BACKGROUND_LONGEST`] or when the time
    /// that its client gives it is over.
    pub background: bool,
}

/// A request without an SLO is given up so long after it was sent: nothing that was accepted waits for ever.
pub const BACKGROUND_LONGEST: Duration = Duration::from_secs(600);

/// Which of a module's models serves a request: a member of its family, and a variant. A batch holds requests of one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelChoice {
    /// The member of the family.
    pub member: MemberId,
    /// The variant.
    pub variant: VariantId,
}

impl Request {
    /// The request of an ordinary client for the first model of each module: whatever has a say in more names that field.
    pub fn new(id: RequestId, sent_at: Timestamp, deadline: Timestamp) -> Self {
        Request {
            id,
            sent_at,
            deadline,
            application: Application::default(),
            client: ClientId::default(),
            decoding_us: 0,
            rank: 0,
            member: MemberId::default(),
            variant: VariantId::default(),
            batch_most: 0,
            background: false,
        }
    }

    /// The model that serves it at the module that it goes to or is at.
    pub fn model(&self) -> ModelChoice {
        ModelChoice {
            member: self.member,
            variant: self.variant,
        }
    }

    /// Expected time to decode its picture; zero where there is none.
    pub fn decoding(&self) -> Duration {
        Duration::from_micros(u64::from(self.decoding_us))
    }
}

/// How a request ended. Each accepted request gets exactly one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// All its modules finished before its deadline.
    Completed,
    /// All its modules finished, after its deadline.
    Late,
    /// A policy, a full queue or its client ended it before it was done.
    Dropped(Drop),
    /// A module could not compute it.
    Failed {
        /// The module that failed.
        module: ModuleId,
    },
}

impl Outcome {
    /// Whether it failed because of what its client sent or did: see [`DropReason::is_clients_doing`]. A request that
    /// fails at the source has a frame that cannot be decoded.
    pub fn is_clients_doing(&self) -> bool {
        match self {
            Outcome::Completed | Outcome::Late => false,
            Outcome::Dropped(drop) => drop.reason.is_clients_doing(),
            Outcome::Failed { module } => *module == ModuleId::SOURCE,
        }
    }

    /// Label in metrics and reports.
    pub fn label(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Late => "late",
            Outcome::Dropped(_) => "dropped",
            Outcome::Failed { .. } => "failed",
        }
    }
}

/// Where and why a request was dropped, with the numbers behind the decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drop {
    /// The module at which it was dropped.
    pub module: ModuleId,
    /// Why.
    pub reason: DropReason,
    /// When.
    pub at: Timestamp,
    /// The time left until its deadline at that moment.
    pub budget: Budget,
    /// The time it was expected still to need, where the policy made an estimate.
    pub estimate: Option<Estimate>,
}

impl Drop {
    /// What happened and the numbers behind it, in words; the module is for the caller to name.
    pub fn explain(&self) -> String {
        let what = match self.reason {
            DropReason::Expired => "its deadline passed while it waited",
            DropReason::Predicted => "expected to miss its deadline",
            DropReason::QueueFull => "the queue was full",
            DropReason::Cancelled => "its client cancelled it or went away",
            DropReason::Superseded => "a newer frame of its stream took its place",
            DropReason::Draining => "the server was shutting down",
            DropReason::NoWorker => "no worker of the module was alive",
            DropReason::Overload => "more came than the pipeline can serve",
            DropReason::Decoding => "its client's share of the time for decoding was spent",
            DropReason::Memory => "the memory that it needs was not free (--memory)",
        };
        let mut text = format!("{what}; {}", left(self.budget));
        if let Some(estimate) = self.estimate {
            text.push_str(&format!(
                ", {} still needed ({} wait, {} execution, {} downstream)",
                format_duration(estimate.total()),
                format_duration(estimate.wait),
                format_duration(estimate.execution),
                format_duration(estimate.downstream),
            ));
        }
        text
    }
}

fn left(budget: Budget) -> String {
    let span = format_duration(Duration::from_nanos(budget.as_ns().unsigned_abs()));
    if budget.as_ns() < 0 {
        format!("{span} too late")
    } else {
        format!("{span} left")
    }
}

/// The end-to-end estimate behind a drop: what the policy expected the request still to need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Until its batch would have started.
    pub wait: Duration,
    /// The execution of that batch.
    pub execution: Duration,
    /// All modules after this one (L_sub).
    pub downstream: Duration,
}

impl Estimate {
    /// The whole time still needed.
    pub fn total(&self) -> Duration {
        self.wait + self.execution + self.downstream
    }
}

/// Why a request was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// Its deadline passed while it waited.
    Expired,
    /// The policy expected it to miss its deadline.
    Predicted,
    /// The queue of the worker, or the gateway's limit of requests in flight, was full.
    QueueFull,
    /// The client cancelled it, or disconnected.
    Cancelled,
    /// A newer frame of the same stream took its place (latest-frame-wins).
    Superseded,
    /// The server was shutting down and could not finish it in the time given.
    Draining,
    /// No worker of the module is alive.
    NoWorker,
    /// More requests came than the pipeline can serve: admission control refused it.
    Overload,
    /// Its client's share of the time for decoding pictures was spent.
    Decoding,
    /// The account of bytes is full: the server may not hold the bytes that it needs.
    Memory,
}

impl DropReason {
    /// All reasons, in order.
    pub const ALL: [DropReason; 10] = [
        DropReason::Expired,
        DropReason::Predicted,
        DropReason::QueueFull,
        DropReason::Cancelled,
        DropReason::Superseded,
        DropReason::Draining,
        DropReason::NoWorker,
        DropReason::Overload,
        DropReason::Decoding,
        DropReason::Memory,
    ];

    /// Whether the client itself caused the drop, and not the load of the server. Then the request's place is given
    /// back if no device worked for it.
    pub fn is_clients_doing(self) -> bool {
        matches!(
            self,
            DropReason::Cancelled
                | DropReason::Superseded
                | DropReason::Decoding
                | DropReason::Memory
        )
    }

    /// Label in metrics and reports.
    pub fn label(self) -> &'static str {
        match self {
            DropReason::Expired => "expired",
            DropReason::Predicted => "predicted",
            DropReason::QueueFull => "queue_full",
            DropReason::Cancelled => "cancelled",
            DropReason::Superseded => "superseded",
            DropReason::Draining => "draining",
            DropReason::NoWorker => "no_worker",
            DropReason::Overload => "overload",
            DropReason::Decoding => "decoding",
            DropReason::Memory => "memory",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The way of a request through one module: the symbols of PARD §3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleTimes {
    /// The module.
    pub module: ModuleId,
    /// The worker that served it.
    pub worker: WorkerId,
    /// t_r: it reached the module's worker.
    pub arrived_at: Timestamp,
    /// t_b: the broker moved it into the forming batch.
    pub batched_at: Timestamp,
    /// t_e: its batch began to execute.
    pub started_at: Timestamp,
    /// Its batch ended.
    pub ended_at: Timestamp,
    /// The batch.
    pub batch: BatchId,
    /// Requests in that batch.
    pub batch_size: u32,
    /// The life in which the batch has its number: of the worker's process, or in one process of the definition that it serves.
    pub incarnation: Incarnation,
    /// When the weights of its model were read, where it waited for them.
    pub load: Option<Load>,
}

impl ModuleTimes {
    /// Q = t_b - t_r.
    pub fn queueing(&self) -> Duration {
        self.batched_at.since(self.arrived_at)
    }

    /// W = t_e - t_b.
    pub fn batch_wait(&self) -> Duration {
        self.started_at.since(self.batched_at)
    }

    /// D, the execution of its batch.
    pub fn execution(&self) -> Duration {
        self.ended_at.since(self.started_at)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_drop_explains_itself() {
        let ms = Duration::from_millis;
        let at = Timestamp::from_ns(90_000_000);
        let drop = |reason, deadline_ms: u64, estimate| Drop {
            module: ModuleId(2),
            reason,
            at,
            budget: Timestamp::from_ns(deadline_ms * 1_000_000).budget_at(at),
            estimate,
        };
        let estimate = Estimate {
            wait: ms(60),
            execution: ms(40),
            downstream: ms(80),
        };
        expect!["expected to miss its deadline; 95ms left, 180ms still needed (60ms wait, 40ms execution, 80ms downstream)"]
            .assert_eq(&drop(DropReason::Predicted, 185, Some(estimate)).explain());
        expect!["its deadline passed while it waited; 2ms too late"]
            .assert_eq(&drop(DropReason::Expired, 88, None).explain());
    }
}
