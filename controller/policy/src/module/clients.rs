//! What the gateways reported of their clients. The controller of the source divides the pipeline's capacity among them.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::GatewayId;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{ClientReport, Portion};

use crate::shares::exchange;

/// Capacity is divided anew when each gateway that takes part has reported, or after this time.
const PERIOD: Duration = Duration::from_secs(1);
/// A gateway that reports nothing for so long is left out.
const LEFT_OUT_AFTER: Duration = Duration::from_secs(3);

/// The last report of each gateway.
#[derive(Default)]
pub(super) struct ClientReports {
    of: IndexMap<GatewayId, (Timestamp, ClientReport), FxBuildHasher>,
    divided_at: Timestamp,
}

impl ClientReports {
    /// Takes in a report. Returns the portion of each gateway when it is time to divide.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        gateway: GatewayId,
        report: ClientReport,
    ) -> Vec<(GatewayId, Portion)> {
        self.of.insert(gateway, (now, report));
        self.of.retain(|_, (at, _)| now.since(*at) < LEFT_OUT_AFTER);
        let all_new = self.of.values().all(|(at, _)| *at > self.divided_at);
        if !all_new && now.since(self.divided_at) < PERIOD {
            return Vec::new();
        }
        self.divided_at = now;
        let reports: Vec<ClientReport> = self.of.values().map(|(_, r)| r.clone()).collect();
        // Gateways hear of changes at different moments.
        let capacity = reports.iter().map(|r| r.capacity).fold(0.0, f64::max);
        let portions = exchange::merge(capacity, &reports);
        self.of.keys().copied().zip(portions).collect()
    }

    /// A gateway is gone.
    pub(super) fn lose(&mut self, gateway: GatewayId) {
        self.of.swap_remove(&gateway);
    }
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::clients::ClientKey;
    use spillgate_protocol::message::Offered;

    use super::*;

    fn report(clients: &[(u64, f64)]) -> ClientReport {
        let of = |&(client, rate): &(u64, f64)| Offered {
            client: ClientKey(client),
            class: 0,
            weight: 1.0,
            rate,
            asked: rate,
        };
        ClientReport::new(50.0, clients.iter().map(of).collect())
    }

    #[test]
    fn capacity_is_divided_when_all_have_reported_or_after_a_second() {
        let at = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
        let [a, b] = [0, 1].map(GatewayId);
        let mut reports = ClientReports::default();
        assert_eq!(reports.take(at(1000), a, report(&[(1, 500.0)])).len(), 1);
        assert!(reports.take(at(1500), b, report(&[(2, 10.0)])).is_empty());
        let portions = reports.take(at(2000), a, report(&[(1, 500.0)]));
        let rates: Vec<f64> = portions.iter().map(|(_, p)| p.rate).collect();
        assert_eq!(rates, [40.0, 10.0]);
        assert!(reports.take(at(2500), b, report(&[(2, 10.0)])).is_empty());
        assert_eq!(reports.take(at(3000), a, report(&[(1, 500.0)])).len(), 2);
        // The second one falls silent.
        let portions = reports.take(at(5600), a, report(&[(1, 500.0)]));
        assert_eq!((portions.len(), portions[0].1.rate), (1, 50.0));
    }
}
