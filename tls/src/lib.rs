//! TLS from files, for each port that speaks it: certificates and keys are read from PEM with errors that say which flag names the
//! file, and a handshake has limits. rustls with ring. What a port asks of its peers is for the port to say.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

mod dated;
mod error;

pub use dated::Dated;
pub use error::{TlsError, TlsProblem};

use spillgate_process::file;

/// Most time of a handshake. It takes two round trips and a signature; a slower peer holds a place that others may
/// want.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of a file: hundreds of certificates.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Most bytes that wait to be sent: two records.
pub const WAITING_BYTES_MAX: usize = 32 << 10;

/// A file of certificates or of a key, in PEM.
#[derive(Clone, Copy, Debug)]
pub struct PemFile<'a> {
    /// The flag that names it.
    pub flag: &'static str,
    /// The file.
    pub path: &'a Path,
}

impl PemFile<'_> {
    /// The error that this is wrong with the file.
    pub fn error(self, problem: impl Into<TlsProblem>) -> TlsError {
        TlsError {
            flag: self.flag,
            path: self.path.to_owned(),
            problem: problem.into(),
        }
    }

    fn read(self) -> Result<Vec<u8>, TlsError> {
        file::read(self.path, FILE_BYTES_MAX).map_err(|error| self.error(error))
    }

    /// Its certificates, at least one.
    ///
    /// # Errors
    /// When it cannot be read or has none.
    pub fn certificates(self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let text = self.read()?;
        let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|error| self.error(TlsProblem::Pem(error)))?;
        if all.is_empty() {
            let what = "certificate";
            return Err(self.error(TlsProblem::Nothing { what }));
        }
        Ok(all)
    }

    /// Its private key.
    ///
    /// # Errors
    /// When it cannot be read or has none.
    pub fn private_key(self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = self.read()?;
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            self.error(match error {
                pem::Error::NoItemsFound => TlsProblem::Nothing {
                    what: "private key",
                },
                error => TlsProblem::Pem(error),
            })
        })
    }

    /// Its certificates as authorities that are trusted.
    ///
    /// # Errors
    /// When it cannot be read, has none, or one is no authority.
    pub fn roots(self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let added = roots.add(certificate);
            added.map_err(|error| self.error(TlsProblem::Unusable(error)))?;
        }
        Ok(roots)
    }
}

/// Which of two files makes a certificate with its key unusable.
pub fn unusable(error: Error, cert: PemFile<'_>, key: PemFile<'_>) -> TlsError {
    match error {
        Error::InconsistentKeys(_) => key.error(TlsProblem::OtherKey {
            cert: cert.path.to_owned(),
        }),
        Error::General(_) => key.error(TlsProblem::Unusable(error)),
        _ => cert.error(TlsProblem::Unusable(error)),
    }
}

/// The DNS names of a certificate; none where it has none, or cannot be read.
pub fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let names = parsed.iter().flat_map(|parsed| parsed.valid_dns_names());
    names.map(str::to_owned).collect()
}

/// The encrypted connection that a peer opened, after the handshake.
///
/// # Errors
/// When the handshake fails, or takes more than [`HANDSHAKE_LIMIT`].
pub async fn accept<S>(config: Arc<ServerConfig>, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let handshake = TlsAcceptor::from(config).accept_with(stream, |session| {
        session.set_buffer_limit(Some(WAITING_BYTES_MAX));
    });
    match tokio::time::timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the handshake took too long",
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    pub(crate) fn certificate(
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificateDer<'static> {
        let names = ["worker.spillgate", "a_1.worker.spillgate"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let made = params.self_signed(&KeyPair::generate().unwrap());
        made.unwrap().der().clone()
    }

    #[test]
    fn all_dns_names_are_read() {
        let names = dns_names(&certificate(|_| {}));
        assert_eq!(names, ["worker.spillgate", "a_1.worker.spillgate"]);
        assert!(dns_names(&CertificateDer::from(vec![1, 2, 3])).is_empty());
    }
}
