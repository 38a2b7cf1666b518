//! How models share devices: placements by name, and the memory that devices have for weights. What a placement does is its recipe
//! (`controller/policy/src/placement/recipe/`).

/// Placements by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementName {
    /// `spillgate`, ours.
    #[default]
    Spillgate,
    /// `clockwork`, as published.
    Clockwork,
    /// `clockwork-fixed`: the faults of the text repaired.
    ClockworkFixed,
    /// `lru`: models are loaded on demand.
    Lru,
}

impl PlacementName {
    /// All, ours first.
    pub const ALL: [PlacementName; 4] = [
        PlacementName::Spillgate,
        PlacementName::Clockwork,
        PlacementName::ClockworkFixed,
        PlacementName::Lru,
    ];

    /// Its name on the command line, in files and in reports.
    pub fn name(self) -> &'static str {
        match self {
            PlacementName::Spillgate => "spillgate",
            PlacementName::Clockwork => "clockwork",
            PlacementName::ClockworkFixed => "clockwork-fixed",
            PlacementName::Lru => "lru",
        }
    }

    /// The placement of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// The placement of the devices of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Its name.
    pub placement: PlacementName,
    /// Models get fair shares of device time.
    pub is_fair: bool,
}

/// Least memory of a device for weights.
const MEMORY_MIN: u64 = 16 << 20;

/// Bytes of memory, like `256MiB` or `1GiB`.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn parse_memory(text: &str) -> Result<u64, String> {
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
        Some(bytes) if (MEMORY_MIN..=1 << 50).contains(&bytes) => Ok(bytes),
        _ => Err("give at least 16MiB and at most 1048576GiB".to_owned()),
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
