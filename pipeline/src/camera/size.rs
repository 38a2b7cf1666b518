//! The size in which frames are sent: the one that the server asks for, or a smaller one while the link does not bear that.
//!
//! A smaller size is taken at once. A larger one waits until the link has borne it with room to spare for [`HOLD`], so that sizes do not go to
//! and fro.

use std::time::Duration;

use crate::time::Timestamp;

/// The part of the bandwidth that frames may take: it is an estimate, and the bits of frames differ.
const PART: f64 = 0.8;
/// The same for a larger size than the present one.
const PART_LARGER: f64 = 0.65;
/// What waits on the link beyond a frame is to be gone within this time.
const DRAIN_S: f64 = 1.0;
/// So long a larger size must have fitted.
const HOLD: Duration = Duration::from_secs(1);
/// The next smaller size has at most this part of the longer side: about 0.7 of the bits.
const STEP: f64 = 0.85;
/// Below the size that is asked for, sides are multiples of this one, as those of most networks' inputs are.
const SIDE_UNIT: u32 = 32;
/// The least longer side: in smaller pictures nothing can be found.
const SIDE_MIN: u32 = 64;
/// The newest frame's weight in the bits of a pixel.
const BITS_WEIGHT: f64 = 0.2;

/// The link at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkNow {
    /// Bits a second, where they are known.
    pub(super) bandwidth: Option<f64>,
    /// Bits on their way.
    pub(super) bits_out: f64,
}

/// Chooses the sizes of one stream's frames.
#[derive(Clone, Debug)]
pub(super) struct SizeChooser {
    frames_per_second: f64,
    /// What the server asks for; `None`: frames as they are.
    told: Option<u32>,
    /// The source's frames.
    source: (u32, u32),
    bits_per_pixel: Option<f64>,
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
            bits_per_pixel: None,
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
        let newest = bytes as f64 * 8.0 / pixels;
        let mean = self.bits_per_pixel.get_or_insert(newest);
        *mean += BITS_WEIGHT * (newest - *mean);
    }

    /// The longer side that frames should have from now on; `None`: as they are.
    pub(super) fn choose(&mut self, now: Timestamp, link: LinkNow) -> Option<u32> {
        let longer = self.source.0.max(self.source.1);
        if longer == 0 {
            return self.told;
        }
        let top = self.told.map_or(longer, |told| told.min(longer));
        let present = self.borne.map_or(top, |borne| borne.min(top));
        let largest = |part| sides(top).find(|side| self.is_borne(*side, link, part));
        let chosen = match self.is_borne(present, link, PART) {
            false => {
                let least = || sides(top).last().unwrap_or(top);
                let smaller = largest(PART).unwrap_or_else(least).min(present);
                self.more_since = None;
                smaller
            }
            true => match largest(PART_LARGER).filter(|side| *side > present) {
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

    /// Whether the link keeps up with frames of this longer side that take that part of it.
    fn is_borne(&self, side: u32, link: LinkNow, part: f64) -> bool {
        let (Some(bandwidth), Some(bits_per_pixel)) = (link.bandwidth, self.bits_per_pixel) else {
            return true;
        };
        let (width, height) = self.source;
        let share = f64::from(side) / f64::from(width.max(height));
        let bits = bits_per_pixel * f64::from(width) * f64::from(height) * share * share;
        let behind = (link.bits_out - bits).max(0.0) / DRAIN_S;
        bits * self.frames_per_second + behind <= part * bandwidth
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
