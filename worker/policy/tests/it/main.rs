//! What the crate promises to others.

mod cold;
mod orloj;
