//! Who may reach the pods of a set.

use serde_json::json;

use super::{Kind, Object, Rendered};
use crate::names::{self, ADMIN_PORT, CLIENT_PORT, LINK_PORT, SCALER_PORT};

/// A namespace with this label may read metrics.
const METRICS: &str = "spillgate.dev/metrics";

impl Rendered<'_> {
    /// Clients reach gateways. Links are for pods of the set and the operator, which also reads what pods say of themselves.
    pub(super) fn network_policy(&self) -> Object {
        let name = names::network_policy(self.set);
        let port = |port: u16| json!([{ "protocol": "TCP", "port": port }]);
        let of_set = json!({ "podSelector": { "matchLabels": { names::SET: self.set } } });
        let operator = json!({
            "namespaceSelector": {},
            "podSelector": { "matchLabels": { "app.kubernetes.io/name": names::OPERATOR } },
        });
        let metrics = json!({ "namespaceSelector": { "matchLabels": { METRICS: "true" } } });
        let keda = json!({ "namespaceSelector": {}, "podSelector": { "matchLabels": { "app": "keda-operator" } } });
        let here = json!({ "podSelector": {} });
        self.common(
            Kind::NetworkPolicy,
            name,
            json!({ "spec": {
                "podSelector": { "matchLabels": { names::SET: self.set } },
                "policyTypes": ["Ingress"],
                "ingress": [
                    { "ports": port(CLIENT_PORT) },
                    { "ports": port(LINK_PORT), "from": [of_set, operator] },
                    { "ports": port(ADMIN_PORT), "from": [here, operator, metrics] },
                    { "ports": port(SCALER_PORT), "from": [keda] },
                ],
            }}),
        )
    }
}
