//! Which revision a new request goes to.

use std::fmt;
use std::str::FromStr;

/// A revision of a definition, by the hash of all that it says. Written as the first eight hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevisionId(pub u64);

impl fmt::Display for RevisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 32)
    }
}

/// A part of the streams, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    /// All of them.
    pub const ALL: Share = Share(Self::PARTS);
    /// None of them.
    pub const NONE: Share = Share(0);
    const PARTS: u16 = 10_000;

    /// A part from 0 to 1.
    pub fn part(self) -> f64 {
        f64::from(self.0) / f64::from(Self::PARTS)
    }

    /// So many hundredths of a percent; `None` where that is more than all.
    pub fn of_parts(parts: u32) -> Option<Share> {
        let parts = u16::try_from(parts).ok()?;
        (parts <= Self::PARTS).then_some(Share(parts))
    }

    /// In hundredths of a percent.
    pub fn parts(self) -> u32 {
        u32::from(self.0)
    }

    /// What is left of all.
    #[must_use]
    pub fn rest(self) -> Share {
        Share(Self::PARTS - self.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 100.0)
    }
}

impl FromStr for Share {
    type Err = String;

    /// Reads a share like `5%` or `0.5%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|n| n.trim().parse().ok());
        match percent {
            Some(percent) if (0.01..=99.99).contains(&percent) => {
                let percent: f64 = percent;
                Ok(Share((percent * 100.0).round() as u16))
            }
            _ => Err("a share is from 0.01% to 99.99%".to_owned()),
        }
    }
}

/// The key of a stream by its name, or of anything else that is told apart by bytes.
pub fn key_of(name: &[u8]) -> u64 {
    // FNV-1a: the same in each process and version.
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Where new requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nowhere: one revision has ended, and the next one is not ready.
    Nobody,
    /// To this revision.
    One(RevisionId),
    /// A share of the streams to the new one, the others to the old one.
    Split {
        /// The old one.
        old: RevisionId,
        /// The new one.
        new: RevisionId,
        /// The new one's.
        share: Share,
    },
}

impl Admission {
    /// The revision that takes a request with that key. A key goes to the same one as long as the share stays; a larger share moves
    /// keys from the old one to the new one alone. Each new revision has other streams first.
    pub fn choose(self, key: u64) -> Option<RevisionId> {
        match self {
            Admission::Nobody => None,
            Admission::One(id) => Some(id),
            Admission::Split { old, new, share } => {
                let at = (u128::from(mixed(key ^ new.0)) * u128::from(Share::PARTS)) >> 64;
                Some(if at < u128::from(share.0) { new } else { old })
            }
        }
    }

    /// The share of a revision.
    pub fn share_of(self, id: RevisionId) -> Share {
        match self {
            Admission::One(of) if of == id => Share::ALL,
            Admission::Split { new, share, .. } if new == id => share,
            Admission::Split { old, share, .. } if old == id => share.rest(),
            _ => Share::NONE,
        }
    }
}

/// Spreads keys that are close to each other (the finalizer of splitmix64, Steele, Lea and Flood, OOPSLA 2014).
fn mixed(key: u64) -> u64 {
    let key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(share: &str) -> Admission {
        Admission::Split {
            old: RevisionId(1),
            new: RevisionId(2),
            share: share.parse().unwrap(),
        }
    }

    fn takes_new(share: &str) -> Vec<u64> {
        let keys = 0..20_000;
        let is_new = |key: &u64| split(share).choose(*key) == Some(RevisionId(2));
        keys.filter(is_new).collect()
    }

    #[test]
    fn a_share_is_kept_and_a_larger_one_moves_streams_to_the_new_revision_alone() {
        let mut before = Vec::new();
        for (share, part) in [
            ("0.5%", 0.005),
            ("5%", 0.05),
            ("33.3%", 0.333),
            ("99%", 0.99),
        ] {
            let taken = takes_new(share);
            let measured = taken.len() as f64 / 20_000.0;
            assert!((measured - part).abs() < 0.01, "{share}: {measured}");
            assert!(before.iter().all(|key| taken.contains(key)), "{share}");
            assert_eq!(taken, takes_new(share), "sticky");
            before = taken;
        }
    }

    #[test]
    fn another_revision_has_other_streams_first() {
        let other = |key: u64| {
            let (old, new) = (RevisionId(2), RevisionId(3));
            let share = "5%".parse().unwrap();
            Admission::Split { old, new, share }.choose(key) == Some(new)
        };
        let both = takes_new("5%").into_iter().filter(|key| other(*key));
        assert!(both.count() < 100);
    }

    #[test]
    fn shares_are_percentages() {
        for text in ["5%", "0.5%", "99.99%", "0.01%"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        for wrong in ["", "5", "0%", "100%", "-1%", "x%", "NaN%", "0.001%"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
        assert_eq!(split("5%").share_of(RevisionId(1)).to_string(), "95%");
        assert_eq!(split("5%").share_of(RevisionId(7)), Share::NONE);
    }

    #[test]
    fn ids_are_short() {
        assert_eq!(RevisionId(0x0123_4567_89ab_cdef).to_string(), "01234567");
    }
}
