//! Bounds of the histograms, with the reasons for them.

/// Upper bounds in whole numbers, and their number per unit shown.
#[derive(Debug)]
pub(super) struct Buckets {
    pub(super) bounds: &'static [u64],
    pub(super) per_unit: f64,
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const NS_PER_SECOND: f64 = 1e9;

/// End-to-end latency: six bounds a decade (the E6 series) from 1 ms to 10 s, so that a percentile interpolated
/// inside a bucket is off by less than a quarter. SLOs of video pipelines lie in the middle of the range. Whether a
/// request was in time is counted exactly elsewhere.
pub(super) const LATENCIES: Buckets = Buckets {
    bounds: &[
        MS,
        1_500 * US,
        2_200 * US,
        3_300 * US,
        4_700 * US,
        6_800 * US,
        10 * MS,
        15 * MS,
        22 * MS,
        33 * MS,
        47 * MS,
        68 * MS,
        100 * MS,
        150 * MS,
        220 * MS,
        330 * MS,
        470 * MS,
        680 * MS,
        1_000 * MS,
        1_500 * MS,
        2_200 * MS,
        3_300 * MS,
        4_700 * MS,
        6_800 * MS,
        10_000 * MS,
    ],
    per_unit: NS_PER_SECOND,
};

/// Parts of a latency at one module: 1-2-5 from 0.1 ms to 5 s. They are coarser than the whole latency because there
/// are three histograms a module.
pub(super) const PARTS: Buckets = Buckets {
    bounds: &[
        100 * US,
        200 * US,
        500 * US,
        MS,
        2 * MS,
        5 * MS,
        10 * MS,
        20 * MS,
        50 * MS,
        100 * MS,
        200 * MS,
        500 * MS,
        1_000 * MS,
        2_000 * MS,
        5_000 * MS,
    ],
    per_unit: NS_PER_SECOND,
};

/// Errors of predicted durations: 1-2-5 from 10 us, Clockwork's typical error, to 1 s.
pub(super) const ERRORS: Buckets = Buckets {
    bounds: &[
        10 * US,
        20 * US,
        50 * US,
        100 * US,
        200 * US,
        500 * US,
        MS,
        2 * MS,
        5 * MS,
        10 * MS,
        20 * MS,
        50 * MS,
        100 * MS,
        200 * MS,
        500 * MS,
        1_000 * MS,
    ],
    per_unit: NS_PER_SECOND,
};

/// Batch sizes: each of the small ones, where one more request matters, then powers of two and steps between.
pub(super) const BATCH_SIZES: Buckets = Buckets {
    bounds: &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128],
    per_unit: 1.0,
};
