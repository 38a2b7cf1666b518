//! Metrics of the files with certificates, read at each scrape.

use std::fmt;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::CERTIFICATE_EXPIRY;
use super::labels::FileLabels;

/// A file with certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateReading {
    /// Its path, as it was given.
    pub file: String,
    /// Seconds since 1970 until the first of its certificates expires.
    pub expires_at: u64,
}

/// Reads the files.
pub type ReadCertificates = Box<dyn Fn() -> Vec<CertificateReading> + Send + Sync>;

#[derive(Default)]
pub(super) struct CertificateCollector {
    pub(super) source: RwLock<Option<ReadCertificates>>,
}

impl fmt::Debug for CertificateCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateCollector")
    }
}

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let readings = self.source.read().as_ref().map(|read| read());
        let help = "When the first certificate of a file expires, in seconds since 1970";
        let mut metric =
            encoder.encode_descriptor(CERTIFICATE_EXPIRY, help, None, MetricType::Gauge)?;
        for CertificateReading { file, expires_at } in readings.into_iter().flatten() {
            let value = ConstGauge::new(i64::try_from(expires_at).unwrap_or(i64::MAX));
            value.encode(metric.encode_family(&FileLabels { file })?)?;
        }
        Ok(())
    }
}
