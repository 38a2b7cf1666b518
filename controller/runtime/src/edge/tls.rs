//! TLS of the serving port: rustls with ring, HTTP/2 by ALPN. The files are read at the start and on reload. Open
//! connections keep the certificates that they began with.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use spillgate_backend::file::{self, FileError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Most time of a handshake. It takes two round trips and a signature; a slower client holds a place that others may
/// want.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of a file: hundreds of certificates.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Most bytes that wait to be sent: two records.
const WAITING_BYTES_MAX: usize = 32 << 10;
/// Bytes that TLS holds for a connection: bytes to send, an incoming record, and its decrypted content.
pub(crate) const TLS_BYTES: u64 = 64 << 10;

/// The files of a server that speaks TLS, all of them PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate first, then the ones between it and its root.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Only clients with a certificate that one of these authorities signed are served.
    pub client_ca: Option<PathBuf>,
}

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

/// The result of the last reading.
struct Read {
    config: Arc<ServerConfig>,
    certificates: usize,
    /// Why clients will refuse the certificate today.
    warning: Option<String>,
}

/// TLS of one port.
pub struct Tls {
    files: TlsFiles,
    read: RwLock<Read>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be used; says which, and why.
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let read = RwLock::new(read(&files)?);
        Ok(Tls { files, read })
    }

    /// Reads the files again, for new connections; says what was found.
    ///
    /// # Errors
    /// When a file cannot be used; then nothing changes.
    pub fn reload(&self) -> Result<String, TlsError> {
        let read = read(&self.files)?;
        let n = read.certificates;
        let mut found = format!("{n} in {}", self.files.cert.display());
        if let Some(warning) = &read.warning {
            found = format!("{found}; {warning}");
        }
        *self.read.write() = read;
        Ok(found)
    }

    /// Whether clients must show a certificate.
    pub fn is_mutual(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Why clients will refuse the certificate, if that is known: it has expired, or is not valid yet.
    pub fn warning(&self) -> Option<String> {
        self.read.read().warning.clone()
    }

    /// The encrypted connection, after the handshake.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.read.read().config.clone());
        let handshake = acceptor.accept_with(stream, |session| {
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
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

fn read(files: &TlsFiles) -> Result<Read, TlsError> {
    let error = |flag, path: &Path| {
        let path = path.to_owned();
        move |problem| TlsError {
            flag,
            path,
            problem,
        }
    };
    let cert_error = error("--tls-cert", &files.cert);
    let key_error = error("--tls-key", &files.key);
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.cert).map_err(cert_error.clone())?;
    let key = private_key(&files.key).map_err(key_error.clone())?;
    let (certificates, warning) = (chain.len(), warning(&files.cert, &chain[0], &provider));
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| cert_error.clone()(TlsProblem::Unusable(e)))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = roots(path).map_err(error("--tls-client-ca", path))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier.build().map_err(TlsProblem::from);
            builder.with_client_cert_verifier(verifier.map_err(error("--tls-client-ca", path))?)
        }
    };
    let made = builder.with_single_cert(chain, key);
    let mut config = made.map_err(|e| match e {
        Error::InconsistentKeys(_) => {
            let cert = files.cert.clone();
            key_error(TlsProblem::OtherKey { cert })
        }
        Error::General(_) => key_error(TlsProblem::Unusable(e)),
        _ => cert_error(TlsProblem::Unusable(e)),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Read {
        config: Arc::new(config),
        certificates,
        warning,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let text = file::read(path, FILE_BYTES_MAX)?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(TlsProblem::Pem)?;
    if all.is_empty() {
        let what = "certificate";
        return Err(TlsProblem::Nothing { what });
    }
    Ok(all)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsProblem> {
    let text = file::read(path, FILE_BYTES_MAX)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsProblem::Nothing {
            what: "private key",
        },
        error => TlsProblem::Pem(error),
    })
}

fn roots(path: &Path) -> Result<RootCertStore, TlsProblem> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(TlsProblem::Unusable)?;
    }
    Ok(roots)
}

/// A warning if the certificate is not valid now. Its issuer is for the clients to check.
fn warning(
    path: &Path,
    certificate: &CertificateDer<'_>,
    provider: &CryptoProvider,
) -> Option<String> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let (none, algorithms) = (
        RootCertStore::empty(),
        &provider.signature_verification_algorithms,
    );
    // Validity is checked before the issuer, and there is no issuer here.
    let verified = verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &none,
        &[],
        UnixTime::now(),
        algorithms.all,
    );
    let what = match verified {
        Err(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "has expired",
        Err(Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        )) => "is not valid yet",
        _ => return None,
    };
    let path = path.display();
    Some(format!(
        "the certificate in {path} {what}: clients will refuse it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_does_not_end_is_given_up() {
        let folder = format!("spillgate-handshake-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = TlsFiles {
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            client_ca: None,
        };
        std::fs::write(&files.cert, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        let tls = Tls::new(files);
        std::fs::remove_dir_all(&folder).unwrap();
        let (_client, server) = tokio::io::duplex(1 << 10);
        let start = tokio::time::Instant::now();
        let error = tls.unwrap().accept(server).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), HANDSHAKE_LIMIT);
    }
}
