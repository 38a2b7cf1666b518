//! How the variant of a module is chosen that serves a request, by name. What each does is in
//! `controller/policy/src/variant_selector/`.

use crate::id::ModuleId;

/// Ways to choose variants, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdaptName {
    /// `fixed`: one variant serves all requests, the most accurate unless another one is named.
    Fixed,
    /// `greedy`: each client for itself.
    Greedy,
    /// `jellyfish`: the authors' mapping of clients to workers, each of which runs one variant in batches of up to one size.
    Jellyfish,
    /// `spillgate`, ours.
    Spillgate,
}

impl AdaptName {
    /// All of them.
    pub const ALL: [AdaptName; 4] = [
        AdaptName::Spillgate,
        AdaptName::Jellyfish,
        AdaptName::Greedy,
        AdaptName::Fixed,
    ];

    /// Its name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            AdaptName::Fixed => "fixed",
            AdaptName::Greedy => "greedy",
            AdaptName::Jellyfish => "jellyfish",
            AdaptName::Spillgate => "spillgate",
        }
    }
}

/// The module whose variants are chosen request by request, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapt {
    /// The module. It is the first one with several variants.
    pub module: ModuleId,
    /// How: never `fixed`.
    pub name: AdaptName,
}
