//! TLS of the serving port: rustls with ring, HTTP/2 by ALPN. The files are read at the start and on reload. Open
//! connections keep the certificates that they began with.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use spillgate_tls::{Dated, PemFile, TlsError, TlsProblem};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::server::TlsStream;

/// Bytes that TLS holds for a connection: bytes to send, an incoming record, and its decrypted content.
pub(crate) const TLS_BYTES: u64 = 2 * spillgate_tls::WAITING_BYTES_MAX as u64;

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

/// The result of the last reading.
struct Read {
    config: Arc<ServerConfig>,
    certificates: usize,
    /// The files with certificates.
    dated: Vec<Dated>,
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
        for warning in read
            .dated
            .iter()
            .filter_map(|d| d.warning(SystemTime::now()))
        {
            found = format!("{found}; {warning}");
        }
        *self.read.write() = read;
        Ok(found)
    }

    /// The files that it reads.
    pub fn files(&self) -> Vec<PathBuf> {
        let TlsFiles {
            cert,
            key,
            client_ca,
        } = self.files.clone();
        [Some(cert), Some(key), client_ca]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Whether clients must show a certificate.
    pub fn is_mutual(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// The files with certificates, as they were read last.
    pub fn dated(&self) -> Vec<Dated> {
        self.read.read().dated.clone()
    }

    /// The encrypted connection, after the handshake.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.read.read().config.clone();
        spillgate_tls::accept(config, stream).await
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

fn read(files: &TlsFiles) -> Result<Read, TlsError> {
    let file = |flag, path| PemFile { flag, path };
    let cert = file("--tls-cert", &files.cert);
    let key = file("--tls-key", &files.key);
    let provider = Arc::new(ring::default_provider());
    let chain = cert.certificates()?;
    let private_key = key.private_key()?;
    let certificates = chain.len();
    let mut dated = vec![Dated::new(&files.cert, &chain, "clients will refuse it")];
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| cert.error(TlsProblem::Unusable(error)))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let ca = file("--tls-client-ca", path);
            dated.push(Dated::new(
                path,
                &ca.certificates()?,
                "clients that it vouches for are refused",
            ));
            let roots = ca.roots()?.into();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| ca.error(error))?)
        }
    };
    let made = builder.with_single_cert(chain, private_key);
    let mut config = made.map_err(|error| spillgate_tls::unusable(error, cert, key))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Read {
        config: Arc::new(config),
        certificates,
        dated,
    })
}

#[cfg(test)]
mod tests {
    use spillgate_tls::HANDSHAKE_LIMIT;

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
