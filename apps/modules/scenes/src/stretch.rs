//! Which frames of a street to train or to measure on.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Frames from one to the next: about two seconds.
const APART: u64 = 61;
/// Frames from which the first is drawn. Equal frames of all streets would have objects at equal places.
const STARTS: u64 = 5000;

/// A few frames of a street, some seconds apart, and how full it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// How full the street is: anything but empty.
    pub density: f32,
    /// A draw of 0 to 9, for what else varies from street to street in training.
    pub chance: u32,
    start: u64,
}

impl Stretch {
    /// Number of its frames. One street has one light and one traffic, so more of it would say little more.
    pub const FRAMES: u64 = 4;

    /// Draws one.
    pub fn draw(rng: &mut ChaCha8Rng) -> Self {
        Stretch {
            density: rng.random_range(0.15..1.0),
            chance: rng.random_range(0..10),
            start: rng.random_range(0..STARTS),
        }
    }

    /// The numbers of its frames.
    pub fn frames(&self) -> impl Iterator<Item = u64> + use<> {
        let start = self.start;
        (0..Self::FRAMES).map(move |k| start + k * APART)
    }
}
