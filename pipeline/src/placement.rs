//! How models share devices: placements, and the memory that devices have for weights. A placement is a recipe. Each that files name has a
//! file of its own below `placement/`; to add one: its file, a line below, and a line in docs/devices.md. Whoever wants another recipe
//! hands it in, as the laboratory does (`lab/recipes`).

mod clockwork;
mod lru;
pub mod recipe;
mod spillgate;

use std::fmt;

use recipe::Recipe;

/// A placement: the handle of its recipe.
#[derive(Clone, Copy, PartialEq)]
pub struct PlacementPolicy(&'static Recipe);

impl PlacementPolicy {
    /// Ours.
    pub const SPILLGATE: PlacementPolicy = PlacementPolicy::new(&spillgate::RECIPE);
    /// Clockwork as published.
    pub const CLOCKWORK: PlacementPolicy = PlacementPolicy::new(&clockwork::RECIPE);
    /// Models are loaded on demand.
    pub const LRU: PlacementPolicy = PlacementPolicy::new(&lru::RECIPE);

    /// Those that files and the command line name, ours first.
    pub const OFFERED: [PlacementPolicy; 3] = [
        PlacementPolicy::SPILLGATE,
        PlacementPolicy::CLOCKWORK,
        PlacementPolicy::LRU,
    ];

    /// Names of the laboratory's placements, for those who write one.
    pub const LABORATORY: [&str; 1] = ["clockwork-fixed"];

    /// The placement of that recipe.
    pub const fn new(recipe: &'static Recipe) -> Self {
        PlacementPolicy(recipe)
    }

    /// How it decides.
    pub const fn recipe(self) -> &'static Recipe {
        self.0
    }

    /// Its name on the command line, in files and in reports.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// The one of that name among those that are offered.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::OFFERED.into_iter().find(|p| p.name() == name)
    }
}

impl Default for PlacementPolicy {
    fn default() -> Self {
        PlacementPolicy::SPILLGATE
    }
}

impl fmt::Debug for PlacementPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What decides about the models of devices with memory for some of them, as `placement:` names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decider {
    /// A placement decides about models and batches.
    Placement(PlacementPolicy),
    /// `brokers`: each device forms batches by the drop policy and the batch schedulers of the pipeline, and reads the model of the next batch.
    /// The models that are asked for least give way.
    Brokers,
}

/// What serves a pipeline, as far as the policies in force depend on that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServedBy {
    /// Decides about models; `None`: devices keep all that they have read.
    pub decider: Option<Decider>,
    /// Gateways of its set; `None`: one process holds all roles.
    pub gateways: Option<usize>,
}

impl ServedBy {
    /// Gateways that come and go: there may be several at any time.
    pub const ANY_GATEWAYS: usize = 2;

    /// One process whose models that decides about.
    pub fn one_process(decider: impl Into<Option<Decider>>) -> Self {
        ServedBy {
            decider: decider.into(),
            gateways: None,
        }
    }
}

impl Default for Decider {
    fn default() -> Self {
        Decider::Placement(PlacementPolicy::default())
    }
}

impl Decider {
    /// Those that files and the command line name, ours first.
    pub const OFFERED: [Decider; 4] = [
        Decider::Placement(PlacementPolicy::SPILLGATE),
        Decider::Brokers,
        Decider::Placement(PlacementPolicy::CLOCKWORK),
        Decider::Placement(PlacementPolicy::LRU),
    ];

    /// Its name on the command line, in files and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Decider::Placement(placement) => placement.name(),
            Decider::Brokers => "brokers",
        }
    }

    /// The one of that name among those that are offered.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::OFFERED.into_iter().find(|p| p.name() == name)
    }

    /// The placement, if it is one.
    pub fn placement(self) -> Option<PlacementPolicy> {
        match self {
            Decider::Placement(placement) => Some(placement),
            Decider::Brokers => None,
        }
    }
}

/// What decides about the devices of a topology.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharing {
    /// What `placement:` names.
    pub decider: Decider,
    /// Models get fair shares of device time.
    pub is_fair: bool,
}

/// Least memory that anything runs with: a few frames and connections, a page of weights.
const MEMORY_MIN: u64 = 16 << 20;
/// Most bytes of anything.
const BYTES_MAX: u64 = 1 << 50;

/// Memory, like `256MiB` or `1GiB`.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes >= MEMORY_MIN => Ok(bytes),
        _ => Err("give at least 16MiB and at most 1048576GiB".to_owned()),
    }
}

/// Bytes, one at least, like `64KiB` or `256MiB`.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" | "MB" | "M" => 20,
        "GiB" | "GB" | "G" => 30,
        _ => {
            return Err(format!(
                "the unit \"{unit}\" is unknown; give MiB or GiB, like 256MiB"
            ));
        }
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "give a number and a unit, like 256MiB")?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if (1..=BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err("give at least 1B and at most 1048576GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_unit_and_a_range() {
        assert_eq!(parse_memory("256MiB"), Ok(256 << 20));
        assert_eq!(parse_memory("2 GiB"), Ok(2 << 30));
        assert_eq!(parse_memory("33554432"), Ok(32 << 20));
        for wrong in [
            "",
            "MiB",
            "1KiB",
            "15MiB",
            "256Mi",
            "-1MiB",
            "99999999999999999999",
            "99999999999GiB",
        ] {
            assert!(parse_memory(wrong).is_err(), "{wrong}");
        }
    }
}
