//! The memory for weights of a device, as an account of pages (Clockwork §5.1: pages of 16 MiB, so that the free ones never lie in pieces).
//! It says which weights are there and how many pages are free. It holds no bytes. A placement has one of each device, its device another.
//!
//! Invariant: the pages of all weights that are there or read and the free pages are always those of the device.

use spillgate_pipeline::id::WeightsId;

/// What has pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    Read,
    Ready,
}

/// The account of the pages of one device.
#[derive(Clone, Debug)]
pub struct Pages {
    size: u32,
    free: u32,
    /// By weights: the pages that they take, and what they are.
    weights: Vec<(u32, State)>,
}

impl Pages {
    /// A device with that many pages, none of them taken. `needs`: the pages that weights take, by id.
    pub fn new(size: u32, needs: impl IntoIterator<Item = u32>) -> Self {
        let away = |pages| (pages, State::Away);
        Pages {
            size,
            free: size,
            weights: needs.into_iter().map(away).collect(),
        }
    }

    /// The same with weights that are there from the start, as far as they fit.
    #[must_use]
    pub fn with(mut self, resident: &[WeightsId]) -> Self {
        for &weights in resident {
            if self.take(weights) {
                self.ready(weights);
            }
        }
        self
    }

    /// Takes the pages of weights that are to be read. False, and nothing taken, when too few are free or they have pages
    /// already.
    pub fn take(&mut self, weights: WeightsId) -> bool {
        let (pages, state) = &mut self.weights[weights.idx()];
        if *pages > self.free || *state != State::Away {
            return false;
        }
        self.free -= *pages;
        *state = State::Read;
        true
    }

    /// Weights that have pages are there.
    pub fn ready(&mut self, weights: WeightsId) {
        let (_, state) = &mut self.weights[weights.idx()];
        if *state == State::Read {
            *state = State::Ready;
        }
    }

    /// Gives back the pages of weights. False when they have none.
    pub fn release(&mut self, weights: WeightsId) -> bool {
        let (pages, state) = &mut self.weights[weights.idx()];
        if *state == State::Away {
            return false;
        }
        self.free += *pages;
        *state = State::Away;
        true
    }

    /// Whether weights are there.
    pub fn is_ready(&self, weights: WeightsId) -> bool {
        self.weights[weights.idx()].1 == State::Ready
    }

    /// Whether weights are there or read.
    pub fn is_held(&self, weights: WeightsId) -> bool {
        self.weights[weights.idx()].1 != State::Away
    }

    /// Pages that weights take.
    pub fn needs(&self, weights: WeightsId) -> u32 {
        self.weights[weights.idx()].0
    }

    /// Whether weights fit, were nothing else there.
    pub fn can_hold(&self, weights: WeightsId) -> bool {
        self.needs(weights) <= self.size
    }

    /// Pages that no weights have.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Pages that weights have, and those of the device.
    pub fn taken(&self) -> (u32, u32) {
        (self.size - self.free, self.size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_are_neither_lost_nor_made(
            needs in prop::collection::vec(1u32..5, 6),
            steps in prop::collection::vec((0u32..6, 0u8..3), 0..60),
        ) {
            let mut pages = Pages::new(9, needs.clone());
            let mut slow: Vec<(u32, u32)> = Vec::new();
            for (weights, kind) in steps {
                let (id, n) = (WeightsId(weights), needs[weights as usize]);
                let held = slow.iter().position(|(m, _)| *m == weights);
                let used: u32 = slow.iter().map(|(_, n)| n).sum();
                match kind {
                    0 => {
                        let fits = held.is_none() && used + n <= 9;
                        prop_assert_eq!(pages.take(id), fits);
                        if fits {
                            slow.push((weights, n));
                        }
                    }
                    1 => pages.ready(id),
                    _ => {
                        prop_assert_eq!(pages.release(id), held.is_some());
                        if let Some(i) = held {
                            slow.remove(i);
                        }
                    }
                }
                let used: u32 = slow.iter().map(|(_, n)| n).sum();
                prop_assert_eq!(pages.free(), 9 - used);
                let is_held = slow.iter().any(|(m, _)| *m == weights);
                prop_assert_eq!(pages.is_held(id), is_held);
                prop_assert!(!pages.is_ready(id) || is_held);
            }
        }
    }
}
