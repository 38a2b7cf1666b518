//! Tables of clients that are bounded: entries are looked at in turn whether they can be forgotten.

use std::hash::Hash;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Entries that are looked at for a place when all places are taken.
const FULL: usize = 8;

/// Where a table is looked at next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    at: usize,
}

impl Sweep {
    /// Looks at the next entry, or at several when there is no room for another one, and takes out the first that can be
    /// forgotten.
    pub(crate) fn next<K: Eq + Hash, V>(
        &mut self,
        table: &mut IndexMap<K, V, FxBuildHasher>,
        has_room: bool,
        can_be_forgotten: impl Fn(&V) -> bool,
    ) -> Option<V> {
        for _ in 0..if has_room { 1 } else { FULL } {
            self.at = (self.at + 1) % table.len().max(1);
            let (_, entry) = table.get_index(self.at)?;
            if can_be_forgotten(entry) {
                return table.swap_remove_index(self.at).map(|(_, gone)| gone);
            }
        }
        None
    }
}
