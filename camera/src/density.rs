//! How many bits pictures of one camera have in other sizes.

/// Bits grow with this power of pixels: a smaller picture has more to tell with each. The frames of Jellyfish's profile have 0.83.
const POWER: f64 = 5.0 / 6.0;

/// What pictures of one camera have in common, whatever their size: bits over that power of pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BitDensity(f64);

impl BitDensity {
    /// Of a picture with so many bits and pixels, of which it has at least one.
    pub fn of(bits: f64, pixels: f64) -> Self {
        BitDensity(bits / pixels.powf(POWER))
    }

    /// Moves towards the newest picture's by that part of the difference.
    pub fn follow(&mut self, newest: BitDensity, weight: f64) {
        self.0 += weight * (newest.0 - self.0);
    }

    /// Bits of a picture with so many pixels.
    pub fn bits(self, pixels: f64) -> f64 {
        self.0 * pixels.powf(POWER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_half_the_side_has_a_third_of_the_bits() {
        let density = BitDensity::of(90_000.0, 640.0 * 360.0);
        assert!((density.bits(640.0 * 360.0) - 90_000.0).abs() < 1e-6);
        let half = density.bits(320.0 * 180.0);
        assert!((half - 90_000.0 * 0.25f64.powf(5.0 / 6.0)).abs() < 1e-6);
        assert!((28_000.0..29_000.0).contains(&half));
    }

    #[test]
    fn it_follows_the_newest_pictures() {
        let mut density = BitDensity::of(100.0, 1.0);
        density.follow(BitDensity::of(200.0, 1.0), 0.25);
        assert_eq!(density.bits(1.0), 125.0);
    }
}
