//! Why a packet cannot be read.

use std::fmt;

/// A field of a packet that no process of this version writes: what was there, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {was}; {right}")]
pub struct WireError {
    field: Field,
    was: String,
    right: String,
}

/// A field of a message of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    message: &'static str,
    name: &'static str,
}

/// The field of that name in that message, both as in the .proto file.
pub(super) const fn field(message: &'static str, name: &'static str) -> Field {
    Field { message, name }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.message, self.name)
    }
}

impl Field {
    /// It has this value.
    pub(super) fn is(self, value: impl fmt::Display, right: impl Into<String>) -> WireError {
        self.wrong(format!("is {value}"), right)
    }

    /// It has that many entries.
    pub(super) fn has(self, n: usize, right: impl Into<String>) -> WireError {
        self.wrong(format!("has {n} entries"), right)
    }

    /// It is absent.
    pub(super) fn missing(self) -> WireError {
        self.wrong(
            "is missing".to_owned(),
            format!("each {} has it", self.message),
        )
    }

    /// Anything else.
    pub(super) fn wrong(self, was: String, right: impl Into<String>) -> WireError {
        WireError {
            field: self,
            was,
            right: right.into(),
        }
    }
}
