//! The size in which frames are sent: the one that the server asks for, or a smaller one while the link does not bear that.
//!
//! The link bears frames that are through before the next one comes, as the server counts when it asks for a size. It takes nothing off for
//! safety: bandwidths are of the last moments, and what waits on the link although it should not makes frames smaller for a while.
//!
//! A smaller size is taken at once. A larger one waits until the link has borne it for [`HOLD`], so that sizes do not go to and fro.

use std::time::Duration;

use super::BitDensity;
use spillgate_pipeline::time::Timestamp;

/// What waits on the link beyond a frame is to be gone within this time: it makes the frames behind it late.
const DRAIN_S: f64 = 0.1;
/// So long a larger size must have fitted.
const HOLD: Duration = Duration::from_millis(500);
/// The next smaller size has at most this part of the longer side: about 0.7 of the bits.
const STEP: f64 = 0.85;
/// Below the size that is asked for, sides are multiples of this one, as those of most networks' inputs are.
const SIDE_UNIT: u32 = 32;
/// The least longer side: in smaller pictures nothing can be found.
const SIDE_MIN: u32 = 64;
/// The newest frame's weight in the density.
const BITS_WEIGHT: f64 = 0.2;

/// The link at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UplinkNow {
    /// Bits a second, where they are known.
    pub(super) bandwidth: Option<f64>,
    /// Bits that it has yet to carry.
    pub(super) bits_waiting: f64,
}

/// Chooses the sizes of one stream's frames.
#[derive(Clone, Debug)]
pub(super) struct SizeChooser {
    frames_per_second: f64,
    /// What the server asks for; `None`: frames as they are.
    told: Option<u32>,
    /// The source's frames.
    source: (u32, u32),
    density: Option<BitDensity>,
    /// The size that the link bears, if that is smaller than what is told.
    borne: Option<u32>,
    /// Since when a larger one would be borne.
    more_since: Option<Timestamp>,
}

impl SizeChooser {
    pub(super) fn new(frames_per_second: f64) -> Self {
        SizeChooser {
            frames_per_second,
            told: None,
            source: (0, 0),
            density: None,
            borne: None,
            more_since: None,
        }
    }

    /// The server asks for frames of this longer side; 0: as they are.
    pub(super) fn told(&mut self, side: u32) {
        self.told = (side > 0).then(|| side.max(SIDE_MIN));
    }

    /// A frame of this size was made from one of the source's; it has so many bytes.
    pub(super) fn made(&mut self, source: (u32, u32), size: (u32, u32), bytes: usize) {
        let pixels = f64::from(size.0) * f64::from(size.1);
        if pixels < 1.0 {
            return;
        }
        self.source = source;
        let newest = BitDensity::of(bytes as f64 * 8.0, pixels);
        self.density
            .get_or_insert(newest)
            .follow(newest, BITS_WEIGHT);
    }

    /// The longer side that frames should have from now on; `None`: as they are.
    pub(super) fn choose(&mut self, now: Timestamp, link: UplinkNow) -> Option<u32> {
        let longer = self.source.0.max(self.source.1);
        if longer == 0 {
            return self.told;
        }
        let top = self.told.map_or(longer, |told| told.min(longer));
        let present = self.borne.map_or(top, |borne| borne.min(top));
        let largest = sides(top).find(|side| self.is_borne(*side, link));
        let chosen = match self.is_borne(present, link) {
            false => {
                let least = || sides(top).last().unwrap_or(top);
                self.more_since = None;
                largest.unwrap_or_else(least).min(present)
            }
            true => match largest.filter(|side| *side > present) {
                Some(larger) if self.waited(now) => {
                    self.more_since = None;
                    larger
                }
                Some(_) => present,
                None => {
                    self.more_since = None;
                    present
                }
            },
        };
        self.borne = (chosen < top).then_some(chosen);
        self.borne.or(self.told)
    }

    /// Whether a larger size has been borne for long enough by now.
    fn waited(&mut self, now: Timestamp) -> bool {
        let since = *self.more_since.get_or_insert(now);
        now.since(since) >= HOLD
    }

    /// Whether the link keeps up with frames of this longer side.
    fn is_borne(&self, side: u32, link: UplinkNow) -> bool {
        let (Some(bandwidth), Some(density)) = (link.bandwidth, self.density) else {
            return true;
        };
        let (width, height) = self.source;
        let share = f64::from(side) / f64::from(width.max(height));
        let pixels = f64::from(width) * f64::from(height) * share * share;
        let bits = density.bits(pixels);
        let behind = (link.bits_waiting - bits).max(0.0) / DRAIN_S;
        bits * self.frames_per_second + behind <= bandwidth
    }
}

/// The sizes that may be sent where `top` is the largest, falling.
fn sides(top: u32) -> impl Iterator<Item = u32> {
    let smaller = |side: &u32| {
        let next = (f64::from(*side) * STEP) as u32 / SIDE_UNIT * SIDE_UNIT;
        (next >= SIDE_MIN).then_some(next)
    };
    std::iter::successors(Some(top), smaller)
}

#[cfg(test)]
mod tests;
