//! Boxes of a model that are none: with numbers that are not finite, without area, or of a class that there is not. They are left out, counted,
//! and told in the log.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many boxes of a model were left out.
pub(crate) struct BrokenBoxes {
    module: String,
    model: String,
    n: AtomicU64,
}

impl BrokenBoxes {
    pub(crate) fn new(module: &str, model: &str) -> Self {
        BrokenBoxes {
            module: module.to_owned(),
            model: model.to_owned(),
            n: AtomicU64::new(0),
        }
    }

    /// Counts further ones. The log has a line for the first, and for each time that their number has doubled.
    pub(crate) fn count(&self, n: usize) {
        if n == 0 {
            return;
        }
        let before = self.n.fetch_add(n as u64, Ordering::Relaxed);
        let all = before + n as u64;
        if before == 0 || all.ilog2() > before.ilog2() {
            tracing::warn!(
                module = self.module,
                model = self.model,
                "{all} boxes of the model were left out so far: they have no area, numbers that are not finite, or a class that there is not"
            );
        }
    }
}
