//! `static`: the waiting requests in order of arrival, up to the planned size.

use super::arrival;
use super::strategy::{Chosen, Strategy, View};

#[derive(Debug)]
pub(crate) struct Planned {
    size: u32,
}

impl Planned {
    pub(crate) fn new(size: u32) -> Self {
        Planned { size }
    }
}

impl Strategy for Planned {
    fn choose(&mut self, view: View<'_>) -> Option<Chosen> {
        arrival::first(view.book, view.set, self.size)
    }
}
