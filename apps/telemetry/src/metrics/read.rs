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
    let gauge = |(name, help, value)| (name, help, ConstGauge::new(value));
    write(encoder, readings.map(gauge))
}

pub(super) fn counters<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    readings: [Reading<u64>; N],
) -> Result<(), fmt::Error> {
    // The encoder adds the suffix.
    let counter = |(name, help, value): Reading<u64>| {
        let name = name.trim_end_matches("_total");
        (name, help, ConstCounter::new(value))
    };
    write(encoder, readings.map(counter))
}

fn write<M: EncodeMetric, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    readings: [Reading<M>; N],
) -> Result<(), fmt::Error> {
    for (name, help, metric) in readings {
        let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
        metric.encode(encoder)?;
    }
    Ok(())
}
