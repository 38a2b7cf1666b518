//! What each gateway reported of its demand, and which part of all requests it accepts.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{GatewayId, Incarnation};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Demand;

use spillgate_pipeline::window::Window;

/// Parts follow the requests of this span.
const SPAN: Duration = Duration::from_secs(2);
/// Least part of a gateway, of an equal one: the first requests of a gateway that was idle must pass.
const PART_MIN: f64 = 0.25;

struct OfOne {
    life: Incarnation,
    last: Box<Demand>,
    offered: Window,
    /// When it reported first since it was lost last.
    since: Option<Timestamp>,
}

/// The reports, by gateway. What a gateway that is gone has counted stays: maybe only its connection is gone.
#[derive(Default)]
pub(super) struct Reported(IndexMap<GatewayId, OfOne, FxBuildHasher>);

impl Reported {
    /// Takes in a report. Returns what it adds to the reports of that gateway's life before it.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        gateway: GatewayId,
        life: Incarnation,
        demand: &Demand,
    ) -> Demand {
        let new = || OfOne {
            life,
            last: Box::default(),
            offered: Window::new(SPAN, now),
            since: None,
        };
        let one = self.0.entry(gateway).or_insert_with(new);
        if one.life != life {
            *one = new();
        }
        one.since.get_or_insert(now);
        let more = demand.since(&mut one.last);
        one.offered.add(now, 0.0, more.offered, 0.0);
        more
    }

    /// A gateway is gone.
    pub(super) fn lose(&mut self, gateway: GatewayId) {
        // It accepts nothing meanwhile.
        if let Some(one) = self.0.get_mut(&gateway) {
            one.offered = Window::new(SPAN, Timestamp::ZERO);
            one.since = None;
        }
    }

    /// The part of all requests that a gateway accepts, of `n_gateways` that are there: 1 for the only one. A gateway that has
    /// just begun has an equal part at least: what its clients will send is not known yet.
    pub(super) fn part(&mut self, now: Timestamp, gateway: GatewayId, n_gateways: usize) -> f64 {
        if n_gateways <= 1 {
            return 1.0;
        }
        let equal = 1.0 / n_gateways as f64;
        let all: u64 = self.0.values_mut().map(|one| one.offered.count(now)).sum();
        let own = self.0.get_mut(&gateway);
        let since = own.as_ref().and_then(|one| one.since);
        let least = match since {
            Some(since) if now.since(since) >= SPAN => PART_MIN * equal,
            _ => equal,
        };
        let own = own.map_or(0, |one| one.offered.count(now));
        match all {
            0 => equal,
            _ => (own as f64 / all as f64).max(least),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(offered: u64) -> Demand {
        Demand {
            offered,
            ..Demand::default()
        }
    }

    #[test]
    fn parts_follow_what_is_offered() {
        let at = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
        let [a, b, idle] = [0, 1, 2].map(GatewayId);
        let life = Incarnation(1);
        let mut reported = Reported::default();
        assert_eq!(reported.part(at(0), a, 1), 1.0);
        assert_eq!(reported.part(at(0), a, 3), 1.0 / 3.0, "nothing is known");
        for ms in (0..3000).step_by(100) {
            reported.take(at(ms), a, life, &demand(3 * ms));
            reported.take(at(ms), b, life, &demand(ms));
        }
        assert!((reported.part(at(2900), a, 3) - 0.75).abs() < 0.01);
        assert!((reported.part(at(2900), b, 3) - 0.25).abs() < 0.01);
        assert_eq!(
            reported.part(at(2900), idle, 3),
            1.0 / 3.0,
            "it has just begun"
        );
        reported.take(at(0), idle, life, &demand(0));
        assert_eq!(reported.part(at(2900), idle, 3), PART_MIN / 3.0);
        reported.lose(a);
        assert!((reported.part(at(2950), b, 2) - 1.0).abs() < 0.01);
    }
}
