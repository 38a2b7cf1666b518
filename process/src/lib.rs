//! What every process of a server stands on: its [`clock`], its [`account`] of bytes, the [`value`]s of a request ([`job`]), and how it
//! reads [files](mod@file). No backend: what takes no part in running models needs none.

pub mod account;
pub mod bounds;
pub mod clock;
pub mod file;
pub mod job;
pub mod value;
