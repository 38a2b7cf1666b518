//! What the crate promises to others.

mod compile;
mod distribution;
mod profiles;
