//! Placements of the laboratory, each in a file of its own. To add one: its file, a line below, and its name in
//! `PlacementPolicy::LABORATORY` (`pipeline/src/placement.rs`).

mod clockwork_fixed;

use spillgate_pipeline::placement::PlacementPolicy;

/// Clockwork with the faults of its text repaired.
pub const CLOCKWORK_FIXED: PlacementPolicy = PlacementPolicy::new(&clockwork_fixed::RECIPE);

/// All that there are, those that files name among them.
pub const ALL: [PlacementPolicy; PlacementPolicy::OFFERED.len() + 1] = [
    PlacementPolicy::SPILLGATE,
    PlacementPolicy::CLOCKWORK,
    CLOCKWORK_FIXED,
    PlacementPolicy::LRU,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_there_once() {
        for policy in PlacementPolicy::OFFERED
            .into_iter()
            .chain([CLOCKWORK_FIXED])
        {
            let named = ALL.iter().filter(|p| p.name() == policy.name());
            assert_eq!(named.count(), 1, "{policy:?}");
        }
    }

    #[test]
    fn the_product_says_of_these_names_where_they_are() {
        let own = [CLOCKWORK_FIXED.name()];
        assert_eq!(own, PlacementPolicy::LABORATORY);
        assert_eq!(PlacementPolicy::by_name(own[0]), None);
    }
}
