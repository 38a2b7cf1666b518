//! Metrics of the values that processes exchange, read at each scrape.

use std::fmt;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{
    VALUES_GIVEN_BACK, VALUES_HELD, VALUES_KEPT, VALUES_KEPT_REQUESTS, VALUES_KNOWN_REQUESTS,
    VALUES_LIMIT, VALUES_REFERENCES, VALUES_REFUSED, read,
};

/// What a process holds of the values of others, and what others keep for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValuesReading {
    /// Bytes of values that are kept for gateways.
    pub kept_bytes: u64,
    /// Requests of gateways for which values are kept.
    pub kept_requests: usize,
    /// Requests of this gateway for which other processes keep values.
    pub known_requests: usize,
    /// Bytes on the account.
    pub held: u64,
    /// Bytes that may be on it.
    pub budget: u64,
    /// Values that were not sent, since the process had them.
    pub references: u64,
    /// Messages that were given back, since a value was kept no more.
    pub given_back: u64,
    /// Requests that found no room.
    pub refused: u64,
}

impl ValuesReading {
    /// That of several pipelines, which have one account.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        ValuesReading {
            kept_bytes: self.kept_bytes + other.kept_bytes,
            kept_requests: self.kept_requests + other.kept_requests,
            known_requests: self.known_requests + other.known_requests,
            held: other.held,
            budget: other.budget,
            references: self.references + other.references,
            given_back: self.given_back + other.given_back,
            refused: self.refused + other.refused,
        }
    }
}

/// Reads them.
pub type ReadValues = Box<dyn Fn() -> ValuesReading + Send + Sync>;

#[derive(Default)]
pub(super) struct ValuesCollector {
    pub(super) source: RwLock<Option<ReadValues>>,
}

impl fmt::Debug for ValuesCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValuesCollector")
    }
}

impl Collector for ValuesCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(reading) = self.source.read().as_ref().map(|read| read()) else {
            return Ok(());
        };
        let gauges = [
            (
                VALUES_KEPT,
                "Bytes of values that are kept for gateways of other processes",
                reading.kept_bytes as i64,
            ),
            (
                VALUES_KEPT_REQUESTS,
                "Requests of other processes for which values are kept",
                reading.kept_requests as i64,
            ),
            (
                VALUES_KNOWN_REQUESTS,
                "Requests for which other processes keep values",
                reading.known_requests as i64,
            ),
            (
                VALUES_HELD,
                "Bytes that the process holds on its account",
                reading.held as i64,
            ),
            (
                VALUES_LIMIT,
                "Bytes that it may hold (--memory)",
                reading.budget.min(i64::MAX as u64) as i64,
            ),
        ];
        read::gauges(&mut encoder, gauges)?;
        let counters = [
            (
                VALUES_REFERENCES,
                "Values that were not sent, since the process had them",
                reading.references,
            ),
            (
                VALUES_GIVEN_BACK,
                "Messages given back to gateways, since a value was kept no more",
                reading.given_back,
            ),
            (
                VALUES_REFUSED,
                "Requests of gateways for which there was no room (--memory)",
                reading.refused,
            ),
        ];
        read::counters(&mut encoder, counters)
    }
}
