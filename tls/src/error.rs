//! A file that cannot be used for TLS.

use std::path::PathBuf;

use spillgate_process::file::FileError;
use tokio_rustls::rustls::Error;
use tokio_rustls::rustls::pki_types::pem;
use tokio_rustls::rustls::server::VerifierBuilderError;

/// A file that cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {problem}", path.display())]
pub struct TlsError {
    /// The flag that names the file.
    pub flag: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: TlsProblem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsProblem {
    /// It cannot be read.
    #[error("{0}")]
    File(#[from] FileError),
    /// It does not contain what it should.
    #[error("no {what} in it; write it as PEM, from -----BEGIN to -----END")]
    Nothing {
        /// What it should hold.
        what: &'static str,
    },
    /// Text between BEGIN and END that is not PEM.
    #[error("it is no PEM: {0}")]
    Pem(pem::Error),
    /// The key does not belong to the certificate.
    #[error("it is not the key of the certificate in {}", cert.display())]
    OtherKey {
        /// The certificate.
        cert: PathBuf,
    },
    /// A certificate or key that TLS cannot use.
    #[error("it cannot be used: {0}")]
    Unusable(Error),
    /// Roots with which no certificate can be verified.
    #[error("no client could be verified by it: {0}")]
    Roots(#[from] VerifierBuilderError),
}
