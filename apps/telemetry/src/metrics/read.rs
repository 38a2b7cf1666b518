//! Writes numbers that are read at each scrape: name, help and value of each.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

type Reading<T> = (&'static str, &'static str, T);

pub(super) fn gauges<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    readings: [Reading<i64>; N],
) -> Result<(), fmt::Error> {
    for (name, help, value) in readings {
        let gauge = ConstGauge::new(value);
        let encoder = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(encoder)?;
    }
    Ok(())
}

pub(super) fn counters<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    readings: [Reading<u64>; N],
) -> Result<(), fmt::Error> {
    for (name, help, value) in readings {
        let counter = ConstCounter::new(value);
        // The encoder adds the suffix.
        let name = name.trim_end_matches("_total");
        let encoder = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(encoder)?;
    }
    Ok(())
}
