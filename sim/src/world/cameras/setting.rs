//! What a camera is given.

use std::sync::Arc;
use std::time::Duration;

use spillgate_camera::BitDensity;
use spillgate_pipeline::time::Timestamp;

use crate::network::EmulatedUplink;

/// A camera: a client with one stream, whose frames go over a link of its own.
#[derive(Clone, Debug)]
pub struct SimCamera {
    /// Its name. Cameras of different names are different clients.
    pub name: String,
    /// Frames a second.
    pub rate: f64,
    /// From capturing a frame to its result, at the camera. The pipeline's SLO bounds what the server gives.
    pub slo: Duration,
    /// Its link, on which nothing has been sent yet. Results take half of its round trip.
    pub link: EmulatedUplink,
    /// Longer side of what it captures, in pixels.
    pub side: u32,
    /// Bits of its frames.
    pub bits: FrameBits,
    /// From capturing a frame until it can be sent.
    pub encoding: Duration,
    /// When its stream is opened and it captures the first frame.
    pub starts: Timestamp,
    /// It takes part in adaptation, as the client does. One that does not sends all frames as they are, and the server does not know its link.
    pub adapts: bool,
}

/// Bits of a camera's frames by their longer side.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameBits(Arc<[(u32, f64)]>);

impl FrameBits {
    /// These sides have these bits. In between, bits grow with pixels as [`BitDensity`] says.
    ///
    /// # Panics
    /// Without sides, and where they do not rise from 1.
    pub fn new(points: impl Into<Arc<[(u32, f64)]>>) -> Self {
        let points = points.into();
        let rises = points.is_sorted_by(|a, b| a.0 < b.0);
        assert!(
            rises && points.first().is_some_and(|p| p.0 > 0),
            "sides rise"
        );
        FrameBits(points)
    }

    /// Bits of a frame of that longer side.
    pub fn of(&self, side: u32) -> f64 {
        let above = self.0.partition_point(|(known, _)| *known <= side);
        let (known, bits) = self.0[above.saturating_sub(1)];
        let pixels = |side: u32| f64::from(side) * f64::from(side);
        match known == side {
            true => bits,
            false => BitDensity::of(bits, pixels(known)).bits(pixels(side)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_sides_have_their_bits_and_others_what_the_density_says() {
        let bits = FrameBits::new([(128, 80e3), (608, 1_065e3)]);
        assert_eq!([128, 608].map(|side| bits.of(side)), [80e3, 1_065e3]);
        let half = 0.25f64.powf(5.0 / 6.0);
        assert!((bits.of(64) / 80e3 - half).abs() < 1e-9);
        assert!((bits.of(256) / 80e3 - 1.0 / half).abs() < 1e-9);
        assert!((bits.of(1216) / 1_065e3 - 1.0 / half).abs() < 1e-9);
    }
}
