//! What a change of an assignment costs.

use std::time::Duration;

use spillgate_controller_policy::adaptation::{Assignment, Instance, Setting};

/// What a change costs, as mean accuracy of all clients over one period. While a client's variant changes, or its worker loads another
/// one, its requests are lost for `switch_time`; clients that are new lose nothing.
pub(super) fn switch_cost(
    instance: &Instance,
    new: &Assignment,
    told: &[Option<Setting>],
    held: &[Option<Setting>],
    lost: Lost,
) -> f64 {
    let mut cost = 0.0;
    let mut rates = 0.0;
    for (client, demand) in instance.clients().iter().enumerate() {
        rates += demand.rate;
        let (Some(before), Some(worker)) = (told[client], new.clients[client]) else {
            continue;
        };
        let Some(setting) = new.workers[worker] else {
            continue;
        };
        let is_switched = before.variant != setting.variant
            || held[worker].is_none_or(|h| h.variant != setting.variant);
        if is_switched {
            let accuracy = instance.variants()[setting.variant.0 as usize].accuracy;
            cost += demand.rate * accuracy.abs();
        }
    }
    let part = lost.switch_time.as_secs_f64() / lost.period.as_secs_f64();
    if rates > 0.0 {
        cost / rates * part
    } else {
        0.0
    }
}

/// How long a switched client's requests are lost, and in which period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub(super) switch_time: Duration,
    pub(super) period: Duration,
}
