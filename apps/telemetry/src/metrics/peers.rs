//! Metrics of the other processes of a topology, read at each scrape.

use std::fmt;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::labels::PeerLabels;
use super::{PEER_CLOCK_ERROR, PEER_MET, PEER_RECEIVED, PEER_SENT, PEER_SUSPECTED, PEER_WAITING};

/// Another process of the topology.
#[derive(Clone, Debug, Default)]
pub struct PeerReading {
    /// Its name.
    pub peer: String,
    /// There is a session with it.
    pub is_met: bool,
    /// It is silent.
    pub is_suspected: bool,
    /// The difference of the clocks is known within so many seconds.
    pub clock_error: f64,
    /// Bytes that wait to be written to it.
    pub waiting: usize,
    /// Bytes that were written to it since it was met.
    pub sent: u64,
    /// Bytes that came from it since then.
    pub received: u64,
}

/// Reads the peers.
pub type ReadPeers = Box<dyn Fn() -> Vec<PeerReading> + Send + Sync>;

#[derive(Default)]
pub(super) struct PeerCollector {
    pub(super) source: RwLock<Option<ReadPeers>>,
}

impl fmt::Debug for PeerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerCollector")
    }
}

/// Name, help, and value of a reading.
type Part = (&'static str, &'static str, fn(&PeerReading) -> f64);

const PARTS: [Part; 4] = [
    (
        PEER_MET,
        "1 while there is a session with a process of the topology",
        |r| f64::from(u8::from(r.is_met)),
    ),
    (PEER_SUSPECTED, "1 while a process is silent", |r| {
        f64::from(u8::from(r.is_suspected))
    }),
    (
        PEER_CLOCK_ERROR,
        "The difference of a process's clock and this one is known within this",
        |r| r.clock_error,
    ),
    (
        PEER_WAITING,
        "Bytes that wait to be written to a process",
        |r| r.waiting as f64,
    ),
];

/// Name, help, and value of a reading that only rises while a session lasts.
type Count = (&'static str, &'static str, fn(&PeerReading) -> u64);

const COUNTS: [Count; 2] = [
    (
        PEER_SENT,
        "Bytes that were written to a process since it was met",
        |r| r.sent,
    ),
    (
        PEER_RECEIVED,
        "Bytes that came from a process since it was met",
        |r| r.received,
    ),
];

impl Collector for PeerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let readings = self.source.read().as_ref().map(|read| read());
        for (name, help, value) in PARTS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for reading in readings.iter().flatten() {
                let labels = PeerLabels {
                    peer: reading.peer.clone(),
                };
                metric
                    .encode_family(&labels)?
                    .encode_gauge(&value(reading))?;
            }
        }
        for (name, help, value) in COUNTS {
            // The encoder adds the suffix.
            let name = name.trim_end_matches("_total");
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for reading in readings.iter().flatten() {
                let labels = PeerLabels {
                    peer: reading.peer.clone(),
                };
                let value = value(reading);
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
            }
        }
        Ok(())
    }
}
