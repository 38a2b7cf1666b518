//! Servers that answer as a test says.

pub(crate) mod adaptive;
pub(crate) mod server;
