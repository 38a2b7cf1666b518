//! The weight cache of a device, as an account of pages (Clockwork §5.1: pages of 16 MiB, so that the free ones never lie in
//! pieces). It says which weights are there and how many pages are free. It holds no bytes.
//!
//! Invariant: the pages of all weights that are there and the free pages are always the size of the cache.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::WeightsId;

#[derive(Clone, Copy, Debug)]
struct Resident {
    pages: u32,
    is_ready: bool,
}

/// The account of the pages of one device.
#[derive(Clone, Debug)]
pub struct Pages {
    size: u32,
    free: u32,
    residents: IndexMap<WeightsId, Resident, FxBuildHasher>,
}

impl Pages {
    /// An empty cache of that many pages.
    pub fn new(size: u32) -> Self {
        Pages {
            size,
            free: size,
            residents: IndexMap::default(),
        }
    }

    /// Takes the pages of weights that are to be read. False, and nothing taken, when too few are free or they have pages
    /// already.
    pub fn take(&mut self, weights: WeightsId, pages: u32) -> bool {
        if pages > self.free || self.residents.contains_key(&weights) {
            return false;
        }
        self.free -= pages;
        let is_ready = false;
        self.residents.insert(weights, Resident { pages, is_ready });
        true
    }

    /// Weights are there.
    pub fn ready(&mut self, weights: WeightsId) {
        if let Some(resident) = self.residents.get_mut(&weights) {
            resident.is_ready = true;
        }
    }

    /// Gives back the pages of weights. False when they have none.
    pub fn release(&mut self, weights: WeightsId) -> bool {
        let resident = self.residents.swap_remove(&weights);
        self.free += resident.map_or(0, |r| r.pages);
        resident.is_some()
    }

    /// Whether weights are there.
    pub fn is_ready(&self, weights: WeightsId) -> bool {
        self.residents.get(&weights).is_some_and(|r| r.is_ready)
    }

    /// Pages that no weights have.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Pages of the cache.
    pub fn size(&self) -> u32 {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_are_neither_lost_nor_made(steps in prop::collection::vec((0u32..6, 1u32..5, 0u8..3), 0..60)) {
            let mut pages = Pages::new(9);
            let mut slow: Vec<(u32, u32)> = Vec::new();
            for (weights, n, kind) in steps {
                let id = WeightsId(weights);
                let held = slow.iter().position(|(m, _)| *m == weights);
                let used: u32 = slow.iter().map(|(_, n)| n).sum();
                match kind {
                    0 => {
                        let fits = held.is_none() && used + n <= 9;
                        prop_assert_eq!(pages.take(id, n), fits);
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
                prop_assert!(!pages.is_ready(id) || slow.iter().any(|(m, _)| *m == weights));
            }
        }
    }
}
