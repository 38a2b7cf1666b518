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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adapt {
    /// The module. It is the first one with several variants.
    pub module: ModuleId,
    /// How: never `fixed`.
    pub name: AdaptName,
    /// Numbers of `spillgate`.
    pub constants: Constants,
}

impl Adapt {
    /// The variants of that module, chosen as the name says.
    pub fn new(module: ModuleId, name: AdaptName) -> Self {
        Adapt {
            module,
            name,
            constants: Constants::USUAL,
        }
    }
}

/// Numbers of [`AdaptName::Spillgate`]. The laboratory hands in others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Of the devices' time, at most this part is planned: arrivals are uneven.
    pub part_max: f64,
    /// The least part.
    pub part_min: f64,
    /// Losses of a period that are too many, as a part of its requests.
    pub loss: f64,
    /// In a period in which more than [`Constants::loss`] of the requests were lost, the part falls by so many times what is beyond
    /// that: losses are weighed against the accuracy that less of the devices' time costs.
    pub fall: f64,
    /// It falls by no more than this part of it in a period.
    pub fall_max: f64,
    /// What the part gains in a period without such losses.
    pub rise: f64,
    /// The same close to where losses last began: to try again each few periods whether they would begin there costs more than it
    /// gains.
    pub rise_near: f64,
    /// From this part on, of the one at which they began.
    pub near: f64,
    /// How much of its highest rate a stream keeps from period to period: half of it in 17 s.
    pub peak_kept: f64,
    /// How much the newest period counts in a stream's rate.
    pub rate_weight: f64,
    /// The present variants stay until others would have gained this part of a period's accuracy, counted over the periods since the
    /// last change: a stream is not sent to and fro for nothing, and a small gain that lasts is not left.
    pub worth_a_switch: f64,
}

impl Constants {
    /// Those of files and flags.
    pub const USUAL: Constants = Constants {
        part_max: 0.97,
        part_min: 0.3,
        loss: 0.005,
        fall: 1.0,
        fall_max: 0.15,
        rise: 0.015,
        rise_near: 0.005,
        near: 0.99,
        peak_kept: 0.98,
        rate_weight: 0.5,
        worth_a_switch: 0.02,
    };
}
