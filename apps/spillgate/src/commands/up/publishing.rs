//! Rollouts of pipelines that state something else after SIGHUP.

use std::net::SocketAddr;
use std::sync::Arc;

use spillgate_protocol::publication::{Definition, Operate};
use spillgate_telemetry::logging::complain;

use crate::commands::rollout::Set;

/// Publishes the definitions to the set with this controller, and says what comes of them.
pub(super) async fn publish(controller: SocketAddr, definitions: Vec<Arc<Definition>>) {
    let set = Set::plain(controller.to_string());
    let mut published = Vec::new();
    for definition in definitions {
        let how = "".into();
        match set.publish(Operate::Offer { definition, how }).await {
            Ok(of) => published.push(of),
            Err(error) => complain(&format!("SIGHUP: {error:#}; what was served is served on")),
        }
    }
    for of in published {
        if let Err(error) = set.follow(&of).await {
            complain(&format!("SIGHUP: {error:#}"));
        }
    }
}
