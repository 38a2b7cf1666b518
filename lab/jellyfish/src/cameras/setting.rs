//! What a run is given.

use std::fmt;
use std::time::Duration;

use rand::Rng;
use spillgate_camera::bandwidth::BandwidthTrace;
use spillgate_controller_policy::adaptation::Variant;
use spillgate_pipeline::time::Timestamp;

use crate::adaptation::{AdaptiveVariant, Method};

/// Of every link: two machines in one room (§6).
pub(super) const ROUND_TRIP: Duration = Duration::from_micros(500);
/// Until a host acknowledges a frame (§7.2: 1 to 3 ms).
pub(super) const HOST: Duration = Duration::from_millis(2);
/// Until a captured frame is a compressed one.
pub(super) const ENCODING: Duration = Duration::from_millis(1);
/// Between the start of two cameras, in seconds (§7.2).
const STARTS_S: [f64; 2] = [1.0, 10.0];
/// From the start of the last camera until frames count.
const SETTLES: Duration = Duration::from_secs(5);
/// Loading the smallest variant takes this long (§7.7: 150 to 200 ms).
const LOADING_LEAST: Duration = Duration::from_millis(150);
/// And the largest one so much longer.
const LOADING_RANGE: Duration = Duration::from_millis(50);
/// Profiles are 99th percentiles (§7.1): by so many standard deviations they lie above the mean.
pub(super) const OF_P99: f64 = 2.326;

/// The variants of the model, from the smallest to the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct Zoo {
    variants: Vec<AdaptiveVariant>,
    sizes: Vec<u32>,
}

impl Zoo {
    /// Variants with the side of their square inputs, in pixels.
    ///
    /// # Errors
    /// When there are none, a variant lacks times or larger ones are not larger.
    pub fn new(variants: Vec<AdaptiveVariant>, sizes: Vec<u32>) -> Result<Self, BadZoo> {
        if variants.is_empty() || variants.len() != sizes.len() {
            return Err(BadZoo::Count {
                variants: variants.len(),
                sizes: sizes.len(),
            });
        }
        let rises = |i: usize| {
            let (small, large) = (&variants[i], &variants[i + 1]);
            sizes[i] < sizes[i + 1] && small.frame_bits <= large.frame_bits
        };
        if let Some(i) = (0..variants.len() - 1).find(|i| !rises(*i)) {
            return Err(BadZoo::Order(i + 1));
        }
        let lacks = |v: &AdaptiveVariant| v.variant.execution.is_empty() || v.frame_bits <= 0.0;
        match variants.iter().position(lacks) {
            Some(i) => Err(BadZoo::Empty(i)),
            None => Ok(Zoo { variants, sizes }),
        }
    }

    /// The first `n` only.
    pub fn smallest(&self, n: usize) -> Self {
        let n = n.clamp(1, self.variants.len());
        Zoo {
            variants: self.variants[..n].to_vec(),
            sizes: self.sizes[..n].to_vec(),
        }
    }

    /// The variants, by id.
    pub fn variants(&self) -> &[AdaptiveVariant] {
        &self.variants
    }

    /// Sides of their inputs.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// Number of variants.
    pub(super) fn len(&self) -> usize {
        self.variants.len()
    }

    /// Its variant in the middle: the paper's B_M has 352 pixels, the eighth of 16.
    pub fn middle(&self) -> usize {
        (self.len() - 1) / 2
    }

    /// Times of its batches, from 1 on.
    pub(super) fn execution(&self, variant: usize) -> &[Duration] {
        let Variant { execution, .. } = &self.variants[variant].variant;
        execution
    }

    /// Bits of a frame of its size.
    pub(super) fn frame_bits(&self, variant: usize) -> f64 {
        self.variants[variant].frame_bits
    }

    /// How long a worker loads it.
    pub(super) fn loading(&self, variant: usize) -> Duration {
        let part = variant as f64 / (self.len() - 1).max(1) as f64;
        LOADING_LEAST + LOADING_RANGE.mul_f64(part)
    }
}

/// Why a list of variants is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadZoo {
    /// There is not one size for each variant.
    Count {
        /// How many variants there are.
        variants: usize,
        /// How many sizes.
        sizes: usize,
    },
    /// The variant of that ordinal is not larger than the one before.
    Order(usize),
    /// That variant has no times, or frames without bits.
    Empty(usize),
}

impl fmt::Display for BadZoo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadZoo::Count { variants, sizes } => {
                write!(
                    f,
                    "{variants} variants and {sizes} sizes; give a size for each, and one at least"
                )
            }
            BadZoo::Order(i) => {
                write!(
                    f,
                    "variant {i} is not larger than {}; order them by size",
                    i - 1
                )
            }
            BadZoo::Empty(i) => write!(f, "variant {i} has no times, or frames without bits"),
        }
    }
}

impl std::error::Error for BadZoo {}

/// What a camera asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CameraKind {
    /// Frames a second.
    pub rate: f64,
    /// From capturing a frame to its result.
    pub slo: Duration,
}

/// Who chooses variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The scheduler, by this method.
    Adapted(Method),
    /// All workers run the variant of this ordinal, and take frames from one queue (§7.3).
    Fixed(usize),
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopSetting {
    /// The variants.
    pub zoo: Zoo,
    /// The trace that every link repeats, each from a place of its own.
    pub rates: BandwidthTrace,
    /// The cameras, in order of their start.
    pub cameras: Vec<CameraKind>,
    /// Number of workers.
    pub n_workers: usize,
    /// Variants that a worker holds, with the one that it runs; at least 1.
    pub n_cached: usize,
    /// What the scheduler takes from every budget, to be on the safe side.
    pub margin: Duration,
    /// Most of a worker's throughput that the scheduler gives to cameras, as a part of it.
    pub load_max: f64,
    /// Standard deviation of execution times, as a part of the profiled one, which is the 99th percentile.
    pub noise: f64,
    /// How long is counted, from when all cameras have run for a while.
    pub counted: Duration,
    /// Of every random choice. Equal seeds have the same cameras, whoever serves them.
    pub seed: u64,
}

/// Where a camera begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) at: Timestamp,
    /// Its place in the trace at time 0.
    pub(super) offset: Duration,
}

impl LoopSetting {
    /// Draws where the cameras begin.
    pub(super) fn starts(&self, rng: &mut impl Rng) -> Vec<Start> {
        let mut at = Timestamp::ZERO;
        let start = |_| {
            at = at + Duration::from_secs_f64(rng.random_range(STARTS_S[0]..STARTS_S[1]));
            let offset = self.rates.period().mul_f64(rng.random());
            Start { at, offset }
        };
        (0..self.cameras.len()).map(start).collect()
    }

    /// From when to when frames count.
    pub(super) fn window(&self, starts: &[Start]) -> (Timestamp, Timestamp) {
        let last = starts.last().map_or(Timestamp::ZERO, |start| start.at);
        let begins = last + SETTLES;
        (begins, begins + self.counted)
    }

    /// A run of two workers that hold five variants each, as in §7.2.
    pub fn new(zoo: Zoo, rates: BandwidthTrace, cameras: Vec<CameraKind>) -> Self {
        LoopSetting {
            zoo,
            rates,
            cameras,
            n_workers: 2,
            n_cached: 5,
            margin: Duration::ZERO,
            load_max: 1.0,
            noise: 0.01,
            counted: Duration::from_secs(140),
            seed: 1,
        }
    }
}
