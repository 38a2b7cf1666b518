//! The variants that a worker holds, and the one that it loads (§4.4). It loads one at a time: first the one that it is told to run,
//! then neighbours.

use spillgate_pipeline::id::VariantId;

#[derive(Clone, Debug)]
pub(super) struct Cache {
    capacity: usize,
    held: Vec<VariantId>,
    /// What runs.
    active: Option<VariantId>,
    /// What is to run.
    target: Option<VariantId>,
    near: Vec<VariantId>,
    loading: Option<VariantId>,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Cache {
            capacity: capacity.max(1),
            held: Vec::new(),
            active: None,
            target: None,
            near: Vec::new(),
            loading: None,
        }
    }

    pub(super) fn active(&self) -> Option<VariantId> {
        self.active
    }

    /// Is told to run a variant. Whether it was there; `None` if it was to run anyhow, or is the first, which is there from the
    /// start.
    pub(super) fn switch(&mut self, variant: VariantId) -> Option<bool> {
        if self.target == Some(variant) {
            return None;
        }
        let is_first = self.target.is_none();
        self.target = Some(variant);
        if is_first {
            self.held.push(variant);
        }
        let is_held = self.held.contains(&variant);
        if is_held {
            self.active = Some(variant);
        }
        (!is_first).then_some(is_held)
    }

    /// Is told which neighbours to hold, the nearest first.
    pub(super) fn prefetch(&mut self, near: Vec<VariantId>) {
        self.near = near;
        self.evict();
    }

    /// Begins to load, unless it does or has all.
    pub(super) fn begin(&mut self) -> Option<VariantId> {
        if self.loading.is_some() {
            return None;
        }
        let wanted = self.target.iter().chain(&self.near);
        // With the one to run, so many neighbours fit.
        let mut wanted = wanted.take(self.capacity);
        self.loading = wanted.find(|v| !self.held.contains(v)).copied();
        self.loading
    }

    /// What it loads is there.
    pub(super) fn loaded(&mut self) {
        let Some(variant) = self.loading.take() else {
            return;
        };
        self.held.push(variant);
        if self.target == Some(variant) {
            self.active = Some(variant);
        }
        self.evict();
    }

    /// Gives up what is least wanted, but never what runs.
    fn evict(&mut self) {
        while self.held.len() > self.capacity {
            let rank = |v: &VariantId| {
                let near = self.near.iter().position(|n| n == v);
                let is_used = self.active == Some(*v) || self.target == Some(*v);
                (!is_used, near.unwrap_or(usize::MAX))
            };
            let unused = (0..self.held.len()).filter(|i| rank(&self.held[*i]).0);
            // Of equal ones, the one that is there the longest.
            let Some(least) = unused.rev().max_by_key(|i| rank(&self.held[*i])) else {
                return;
            };
            self.held.remove(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(ids: &[u16]) -> Vec<VariantId> {
        ids.iter().copied().map(VariantId).collect()
    }

    fn load_all(cache: &mut Cache) -> Vec<VariantId> {
        let mut loads = Vec::new();
        while let Some(variant) = cache.begin() {
            loads.push(variant);
            cache.loaded();
        }
        loads
    }

    #[test]
    fn neighbours_are_loaded_and_hit() {
        let mut cache = Cache::new(3);
        assert_eq!(cache.switch(VariantId(5)), None, "the first is there");
        cache.prefetch(v(&[4, 6]));
        assert_eq!(load_all(&mut cache), v(&[4, 6]));
        assert_eq!(cache.switch(VariantId(6)), Some(true));
        assert_eq!(cache.active(), Some(VariantId(6)));
        cache.prefetch(v(&[5, 7]));
        assert_eq!(load_all(&mut cache), v(&[7]));
        assert_eq!(cache.held, v(&[5, 6, 7]));
    }

    #[test]
    fn what_runs_serves_on_until_another_is_loaded() {
        let mut cache = Cache::new(1);
        cache.switch(VariantId(5));
        assert_eq!(cache.switch(VariantId(9)), Some(false));
        assert_eq!(cache.begin(), Some(VariantId(9)));
        assert_eq!(cache.begin(), None, "one at a time");
        assert_eq!(cache.active(), Some(VariantId(5)));
        cache.loaded();
        assert_eq!(cache.active(), Some(VariantId(9)));
        assert_eq!(cache.held, v(&[9]));
    }

    #[test]
    fn a_target_that_changes_while_it_loads_is_left_aside() {
        let mut cache = Cache::new(1);
        cache.switch(VariantId(5));
        cache.switch(VariantId(9));
        cache.begin();
        assert_eq!(cache.switch(VariantId(5)), Some(true));
        cache.loaded();
        assert_eq!(cache.active(), Some(VariantId(5)));
        assert_eq!(cache.held, v(&[5]));
    }
}
