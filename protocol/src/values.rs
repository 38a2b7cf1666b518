//! Values between processes: what is small travels with each message; what is large goes to a process once. A process keeps the
//! large values of a request that it may need again, until the gateway says that the request has ended. [`Uses`] says which those
//! are, [`KeptValues`] is what a process keeps, and [`KnownValues`] what a gateway knows of it.
//!
//! What a gateway knows may be more than what is kept: a process gives values up when it needs the room. It sends the requests
//! back then, and the gateway sends them again with their values. So a reference is a hint that saves bytes, and no request
//! depends on it.

mod kept;
mod known;
#[cfg(test)]
mod tests;
mod uses;

pub use kept::{KeptLimits, KeptValues};
pub use known::{KnownValues, Peer};
pub use uses::Uses;

/// A value of fewer bytes travels with each message: it is cheaper to send than to remember.
pub const LARGE_BYTES: u64 = 16 << 10;

/// Some outputs of a module, by ordinal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports(u64);

impl Ports {
    /// One bit an output, from the lowest on.
    pub const fn from_bits(bits: u64) -> Self {
        Ports(bits)
    }

    /// One bit an output, from the lowest on.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The same, with this output.
    #[must_use]
    pub fn with(self, port: u16) -> Self {
        Ports(self.0 | 1_u64.checked_shl(port.into()).unwrap_or(0))
    }

    /// Whether that output is among them.
    pub fn has(self, port: u16) -> bool {
        self.0 & 1_u64.checked_shl(port.into()).unwrap_or(0) != 0
    }
}
