//! The cases, each with its promise.

mod around;
mod controllers;
mod gateways;
mod members;
mod rollouts;
mod scaling;
mod slow;
mod workers;

use tokio::runtime::Handle;

use crate::fault::Fault;
use crate::findings::Findings;

/// Something that is broken, and what is promised nevertheless.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) promise: &'static str,
    /// It is among those that CI runs.
    pub(super) is_quick: bool,
    pub(super) run: fn(&Handle) -> anyhow::Result<Findings>,
}

const CAN_FAIL: &str =
    "`worker-killed` breaks where there is no other worker: these tests can fail";
const SHELTERED: &str = "what the worker had is answered by another one in time, and none fails";
const BACK: &str = "throughput is that of the others within 1 s, and the full one within 2 s of the worker's return";
const GUIDED: &str = "it costs less than 1 point of goodput over the following 10 s";
const OWN_ONLY: &str = "it costs requests of that gateway only, which goes on when it is back";
const SERVES_ON: &str = "all requests are served, and the processes end in order";
const OTHERS: &str = "others are served, and memory is bounded";
const LITTLE: &str = "goodput is within 3 points of that of a set without the worker";
const GOES_ON: &str =
    "`stream --reconnect` loses what was due meanwhile, and goes on with the next frame";
const COME: &str = "no request fails, also while the controller begins anew";
const ROLLS: &str =
    "another revision takes its place, or is taken back, and no request is lost or fails";
const FOLLOWS: &str = "workers follow a load that trebles: less than 2% of each second's requests are not completed from 15 s on";
const ENDS: &str = "each request ends once";

const fn quick(
    name: &'static str,
    promise: &'static str,
    run: fn(&Handle) -> anyhow::Result<Findings>,
) -> Case {
    Case {
        name,
        promise,
        is_quick: true,
        run,
    }
}

const fn full(
    name: &'static str,
    promise: &'static str,
    run: fn(&Handle) -> anyhow::Result<Findings>,
) -> Case {
    Case {
        is_quick: false,
        ..quick(name, promise, run)
    }
}

/// All of them.
pub(super) const CASES: &[Case] = &[
    quick("canary", CAN_FAIL, workers::nowhere_to_go),
    quick("worker-killed", SHELTERED, |r| {
        workers::shelters(r, Fault::Killed)
    }),
    quick("worker-ended", SHELTERED, |r| {
        workers::shelters(r, Fault::Ended)
    }),
    full("worker-stopped", SHELTERED, |r| {
        workers::shelters(r, Fault::Stopped)
    }),
    full("worker-noticed", SHELTERED, workers::shelters_in_time),
    full("worker-deaf", SHELTERED, |r| {
        workers::shelters(r, Fault::Deaf)
    }),
    full("worker-mute", SHELTERED, |r| {
        workers::shelters(r, Fault::Mute)
    }),
    full("worker-apart", SHELTERED, |r| {
        workers::shelters(r, Fault::Apart)
    }),
    quick("capacity-killed", BACK, |r| {
        workers::comes_back(r, Fault::Killed)
    }),
    full("capacity-ended", BACK, |r| {
        workers::comes_back(r, Fault::Ended)
    }),
    quick("capacity-stopped", BACK, |r| {
        workers::comes_back(r, Fault::Stopped)
    }),
    full("capacity-deaf", BACK, |r| {
        workers::comes_back(r, Fault::Deaf)
    }),
    full("capacity-mute", BACK, |r| {
        workers::comes_back(r, Fault::Mute)
    }),
    full("capacity-apart", BACK, |r| {
        workers::comes_back(r, Fault::Apart)
    }),
    quick("members-few", COME, |r| members::come_and_go(r, 3)),
    full("members-come-and-go", COME, |r| members::come_and_go(r, 10)),
    full("rollouts", ROLLS, |r| rollouts::lose_nothing(r, false)),
    quick("rollouts-controller-killed", ROLLS, |r| {
        rollouts::lose_nothing(r, true)
    }),
    full("scale-up", FOLLOWS, |r| scaling::follows(r, false)),
    full("scale-up-controller-killed", FOLLOWS, |r| {
        scaling::follows(r, true)
    }),
    quick("controller-killed", GUIDED, |r| {
        controllers::guides(r, Fault::Killed)
    }),
    full("controller-ended", GUIDED, |r| {
        controllers::guides(r, Fault::Ended)
    }),
    full("controller-stopped", GUIDED, |r| {
        controllers::guides(r, Fault::Stopped)
    }),
    quick("controller-deaf", GUIDED, |r| {
        controllers::guides(r, Fault::Deaf)
    }),
    full("controller-mute", GUIDED, |r| {
        controllers::guides(r, Fault::Mute)
    }),
    full("controller-apart", GUIDED, |r| {
        controllers::guides(r, Fault::Apart)
    }),
    quick("gateway-killed", OWN_ONLY, |r| {
        gateways::alone(r, Fault::Killed)
    }),
    full("gateway-ended", OWN_ONLY, |r| {
        gateways::alone(r, Fault::Ended)
    }),
    full("gateway-stopped", OWN_ONLY, |r| {
        gateways::alone(r, Fault::Stopped)
    }),
    full("gateway-deaf", OWN_ONLY, |r| {
        gateways::alone(r, Fault::Deaf)
    }),
    full("gateway-mute", OWN_ONLY, |r| {
        gateways::alone(r, Fault::Mute)
    }),
    quick("gateway-apart", OWN_ONLY, |r| {
        gateways::alone(r, Fault::Apart)
    }),
    full("stream-reconnects", GOES_ON, gateways::stream),
    quick("log-full", SERVES_ON, around::full_log),
    full("log-unread", SERVES_ON, around::unread_log),
    quick("traces-hang", SERVES_ON, around::hanging_traces),
    quick("answers-unread", OTHERS, around::unread_answers),
    quick("worker-third", LITTLE, slow::third),
    full("worker-stalls", LITTLE, slow::stalls),
    full("worker-far", ENDS, |r| slow::far(r, "worker-0")),
    full("controller-far", ENDS, |r| slow::far(r, "controller")),
    full("gateway-far", ENDS, |r| slow::far(r, "gateway-0")),
];
