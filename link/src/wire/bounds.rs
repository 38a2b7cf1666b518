//! The bounds of what a peer may send, and the numbers that are read within them.

use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use super::error::{Field, WireError};

/// The latest timestamp: 292 years after the epoch. The difference of two timestamps fits into an `i64`.
pub const TIMESTAMP_MAX: Timestamp = Timestamp::from_ns(i64::MAX as u64);
/// The longest span, about 30 years: no request, batch or estimate takes so long. Multiplied by any `u32`, or by
/// [`RATIO_MAX`], it is still a duration.
pub const SPAN_MAX: Duration = Duration::from_secs(1_000_000_000);
/// The largest ratio: a share, a probability, a pace, a mean size of batches.
pub const RATIO_MAX: f64 = 1e6;
/// Most dimensions of a tensor: as many as libtorch has.
pub const DIMENSIONS_MAX: usize = 64;
/// Most polygons of a mask.
pub const POLYGONS_MAX: usize = 1 << 16;
/// Most requests in a list: no pipeline has more in flight.
pub const REQUESTS_MAX: usize = spillgate_pipeline::spec::IN_FLIGHT_MAX as usize;
/// Most bytes of the reason for which a peer is refused.
pub const REASON_BYTES_MAX: usize = 1024;

impl Field {
    /// What must be there.
    pub(super) fn required<T>(self, value: Option<T>) -> Result<T, WireError> {
        value.ok_or_else(|| self.missing())
    }

    /// A number of 16 bits: a gateway, a module, a device.
    pub(super) fn u16(self, value: u32) -> Result<u16, WireError> {
        u16::try_from(value).map_err(|_| self.is(value, format!("it may be at most {}", u16::MAX)))
    }

    /// A number of 8 bits.
    pub(super) fn u8(self, value: u32) -> Result<u8, WireError> {
        u8::try_from(value).map_err(|_| self.is(value, format!("it may be at most {}", u8::MAX)))
    }

    /// A count up to `max`.
    pub(super) fn up_to(self, value: u32, max: u32) -> Result<u32, WireError> {
        if value > max {
            return Err(self.is(value, format!("it may be at most {max}")));
        }
        Ok(value)
    }

    /// The length of a list.
    pub(super) fn at_most(self, n: usize, max: usize) -> Result<(), WireError> {
        if n > max {
            return Err(self.has(n, format!("it may have at most {max}")));
        }
        Ok(())
    }

    /// The length of a text.
    pub(super) fn at_most_bytes(self, n: usize, max: usize) -> Result<(), WireError> {
        if n > max {
            let right = format!("it may have at most {max}");
            return Err(self.wrong(format!("has {n} bytes"), right));
        }
        Ok(())
    }

    /// A list of exactly that length.
    pub(super) fn exactly<T: Copy, const N: usize>(self, list: &[T]) -> Result<[T; N], WireError> {
        <[T; N]>::try_from(list).map_err(|_| self.has(list.len(), format!("it must have {N}")))
    }

    /// A point in time, up to [`TIMESTAMP_MAX`].
    pub(super) fn time(self, ns: u64) -> Result<Timestamp, WireError> {
        if ns > TIMESTAMP_MAX.as_ns() {
            return Err(self.is(
                format_args!("{ns} ns"),
                format!("it may be at most {} ns", TIMESTAMP_MAX.as_ns()),
            ));
        }
        Ok(Timestamp::from_ns(ns))
    }

    /// A span in nanoseconds, up to [`SPAN_MAX`].
    pub(super) fn span(self, ns: u64) -> Result<Duration, WireError> {
        let span = Duration::from_nanos(ns);
        if span > SPAN_MAX {
            return Err(self.is(
                format_args!("{ns} ns"),
                format!("it may be at most {} s", SPAN_MAX.as_secs()),
            ));
        }
        Ok(span)
    }

    /// Requests a second: finite, not negative.
    pub(super) fn rate(self, value: f64) -> Result<f64, WireError> {
        if value.is_finite() && value >= 0.0 {
            return Ok(value);
        }
        Err(self.is(
            format_args!("{value:?}"),
            "it must be a finite number, 0 or more",
        ))
    }

    /// A capacity: what takes no time has an infinite one.
    pub(super) fn capacity(self, value: f64) -> Result<f64, WireError> {
        if value >= 0.0 {
            return Ok(value);
        }
        Err(self.is(format_args!("{value:?}"), "it must be a number, 0 or more"))
    }

    /// More than 0, and finite.
    pub(super) fn positive(self, value: f64) -> Result<f64, WireError> {
        if value.is_finite() && value > 0.0 {
            return Ok(value);
        }
        Err(self.is(
            format_args!("{value:?}"),
            "it must be a finite number above 0",
        ))
    }

    /// A ratio: 0 to [`RATIO_MAX`].
    pub(super) fn ratio(self, value: f64) -> Result<f64, WireError> {
        if (0.0..=RATIO_MAX).contains(&value) {
            return Ok(value);
        }
        Err(self.is(
            format_args!("{value:?}"),
            format!("it must be from 0 to {RATIO_MAX}"),
        ))
    }

    /// Ratios, or samples in seconds, each 0 to `max`.
    pub(super) fn each(self, values: &[f32], max: f64) -> Result<(), WireError> {
        let is_wrong = |value: &&f32| !(0.0..=max).contains(&f64::from(**value));
        match values.iter().find(is_wrong) {
            Some(value) => Err(self.wrong(
                format!("has the entry {value:?}"),
                format!("each must be from 0 to {max}"),
            )),
            None => Ok(()),
        }
    }
}

/// Nanoseconds of a span; [`u64::MAX`] for those beyond, which no peer accepts.
pub(super) fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
