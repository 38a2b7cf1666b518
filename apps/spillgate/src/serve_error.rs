//! Why a process cannot serve.

use std::net::SocketAddr;

use crate::start_error::StartError;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port cannot be had.
    #[error("cannot listen on {address}: {cause}{}", hint(cause, flag))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The flag by which another one is chosen.
        flag: &'static str,
        /// Why.
        cause: std::io::Error,
    },
    /// Devices or models.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The reflection service.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

fn hint(cause: &std::io::Error, flag: &str) -> String {
    match cause.kind() {
        std::io::ErrorKind::AddrInUse => format!(
            "; another program listens there: stop it, or choose another address with {flag}"
        ),
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges".to_owned(),
        _ => String::new(),
    }
}
