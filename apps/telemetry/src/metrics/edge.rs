//! Metrics of the gateway's edge, read at each scrape.

use std::fmt;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use spillgate_controller::edge::EdgeView;

use super::{
    CONNECTIONS, CONNECTIONS_CLOSED, CONNECTIONS_MAX, CONNECTIONS_TURNED_AWAY, MEMORY_BUDGET,
    MEMORY_HELD, read,
};

/// Reads the edge.
pub type ReadEdge = Box<dyn Fn() -> EdgeView + Send + Sync>;

#[derive(Default)]
pub(super) struct EdgeCollector {
    pub(super) source: RwLock<Option<ReadEdge>>,
}

impl fmt::Debug for EdgeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EdgeCollector")
    }
}

impl Collector for EdgeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(view) = self.source.read().as_ref().map(|read| read()) else {
            return Ok(());
        };
        let gauges = [
            (
                CONNECTIONS,
                "Connections that are open",
                view.connections as i64,
            ),
            (
                CONNECTIONS_MAX,
                "Most connections",
                view.connections_max as i64,
            ),
            (
                MEMORY_HELD,
                "Bytes that are held for clients",
                view.held as i64,
            ),
            (
                MEMORY_BUDGET,
                "Bytes that may be held for clients",
                view.budget as i64,
            ),
        ];
        read::gauges(&mut encoder, gauges)?;
        let counters = [
            (
                CONNECTIONS_TURNED_AWAY,
                "Connections for which there was no place or memory",
                view.turned_away,
            ),
            (
                CONNECTIONS_CLOSED,
                "Connections closed for a newcomer, or idle, silent, or with unread answers",
                view.closed,
            ),
        ];
        read::counters(&mut encoder, counters)
    }
}
