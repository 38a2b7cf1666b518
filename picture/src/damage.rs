//! What may be wrong with a picture that decodes all the same.

/// What a decoder noticed. The picture is served: parts of it may not be as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Compressed data end before what they stand for.
    Missing,
    /// Markers that parts of the data begin with are missing, doubled or wrong.
    Markers,
    /// There are data that belong to nothing.
    Extra,
    /// Data that mean nothing.
    Broken,
}

impl Damage {
    /// All of them.
    pub const ALL: [Damage; 4] = [
        Damage::Missing,
        Damage::Markers,
        Damage::Extra,
        Damage::Broken,
    ];

    /// For the client that sent the picture.
    pub fn explain(self) -> &'static str {
        match self {
            Damage::Missing => "data of the picture are missing: a part of it is not as it was",
            Damage::Markers => {
                "restart markers of the picture are missing or wrong: a part of it may not be as it was"
            }
            Damage::Extra => {
                "the picture has data that belong to nothing: a part of it may not be as it was"
            }
            Damage::Broken => "data of the picture are damaged: a part of it is not as it was",
        }
    }

    /// Its number between processes, from 1.
    pub fn number(self) -> u32 {
        self as u32 + 1
    }

    /// The one of that number; `None` for 0 and numbers of later versions.
    pub fn of_number(number: u32) -> Option<Damage> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        Damage::ALL.get(place).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_damage() {
        for damage in Damage::ALL {
            assert_eq!(Damage::of_number(damage.number()), Some(damage));
        }
        assert_eq!(Damage::of_number(0), None);
        assert_eq!(Damage::of_number(5), None);
    }
}
