//! TLS between processes: both sides show a certificate, and its names say what its holder may be
//! ([`rights`](spillgate_protocol::session::rights)). TLS 1.3 and HTTP/2 only. No session of TLS is resumed: each connection
//! shows its certificates anew. The files are read at the start and on reload, and open connections keep what they began with.

mod verifier;
mod words;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use parking_lot::RwLock;
use spillgate_protocol::session::rights::{LinkProcess, Rights};
use spillgate_tls::{Dated, PemFile, TlsError, TlsProblem, dns_names};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use verifier::Verifier;
pub(crate) use words::in_words;

/// What is wrong where only this process speaks TLS.
pub(crate) const SPEAKS_PLAIN: &str = "the peer does not speak TLS; start it with --link-ca, --link-cert and --link-key, or \
                                       this process without them";
/// The first byte of an alert of TLS. HTTP/2 begins with the length of a frame, of which the first byte is 0.
pub(crate) const TLS_ALERT: u8 = 0x15;
/// What is wrong where only the peer speaks TLS.
pub(crate) const SPEAKS_TLS: &str =
    "the peer speaks TLS; start this process with --link-ca, --link-cert and --link-key";
/// A name for the handshake, which nobody reads: addresses may be numbers, and a process is known by the names of its roles.
const SERVER_NAME: &str = "spillgate";

/// The files of a process, all of them PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTlsFiles {
    /// The authorities that sign the certificates of peers.
    pub ca: PathBuf,
    /// The certificate of the process first, then the ones between it and its root.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// The result of the last reading.
struct Read {
    server: Arc<ServerConfig>,
    client: ClientConfig,
    roots: Arc<RootCertStore>,
    n_certificates: usize,
    rights: Rights,
    /// The files with certificates.
    dated: Vec<Dated>,
}

/// TLS of a process with its peers.
pub struct LinkTls {
    files: LinkTlsFiles,
    /// The set in which the names of certificates hold.
    set: Arc<str>,
    read: RwLock<Read>,
}

impl LinkTls {
    /// Reads the files, for a process of that set.
    ///
    /// # Errors
    /// When a file cannot be used; says which, and why.
    pub fn new(files: LinkTlsFiles, set: Arc<str>) -> Result<Self, TlsError> {
        let read = RwLock::new(read(&files, &set)?);
        Ok(LinkTls { files, set, read })
    }

    /// The set of the process.
    pub fn set(&self) -> &Arc<str> {
        &self.set
    }

    /// What a process without a certificate may be.
    pub(crate) fn no_rights(&self) -> Rights {
        Rights::of(&self.set, [])
    }

    /// The files that it reads.
    pub fn files(&self) -> Vec<PathBuf> {
        let LinkTlsFiles { ca, cert, key } = self.files.clone();
        vec![ca, cert, key]
    }

    /// Reads the files again, for new connections; says what was found.
    ///
    /// # Errors
    /// When a file cannot be used; then nothing changes.
    pub fn reload(&self) -> Result<String, TlsError> {
        let read = read(&self.files, &self.set)?;
        let n = read.n_certificates;
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

    /// Why peers will refuse this process as what it is, as far as that is known here; a line each.
    pub fn warnings(&self, me: &LinkProcess) -> Vec<String> {
        let read = self.read.read();
        let names = read.rights.refuse_member(me).map(|why| {
            let cert = self.files.cert.display();
            format!("--link-cert {cert}: peers will refuse this process: {why}")
        });
        let dated = read
            .dated
            .iter()
            .filter_map(|d| d.warning(SystemTime::now()));
        dated.chain(names).collect()
    }

    /// The files with certificates, as they were read last.
    pub fn dated(&self) -> Vec<Dated> {
        self.read.read().dated.clone()
    }

    /// The connection that a peer opened, and what its certificate lets it be.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<(tokio_rustls::server::TlsStream<TcpStream>, Rights), String> {
        let config = self.read.read().server.clone();
        let stream = spillgate_tls::accept(config, stream).await;
        let stream = stream.map_err(|error| in_words(&error))?;
        let rights = rights(&self.set, stream.get_ref().1.peer_certificates());
        Ok((stream, rights))
    }

    /// The connection to this process, and what its certificate lets it be.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        peer: &LinkProcess,
    ) -> Result<(tokio_rustls::client::TlsStream<TcpStream>, Rights), String> {
        let refused = Arc::new(OnceLock::new());
        let config = {
            let read = self.read.read();
            let mut config = read.client.clone();
            let verifier = Verifier::new(
                read.roots.clone(),
                (self.set.clone(), peer.clone()),
                refused.clone(),
            );
            config
                .dangerous()
                .set_certificate_verifier(Arc::new(verifier));
            config
        };
        let name = ServerName::try_from(SERVER_NAME).expect("it is a name");
        let connector = TlsConnector::from(Arc::new(config));
        let connected = connector.connect(name, stream).await;
        let stream = connected.map_err(|error| match refused.get() {
            Some(why) => String::clone(why),
            None => in_words(&error),
        })?;
        let rights = rights(&self.set, stream.get_ref().1.peer_certificates());
        Ok((stream, rights))
    }
}

impl std::fmt::Debug for LinkTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LinkTls").field(&self.files).finish()
    }
}

/// What the certificate that was shown lets its holder be.
fn rights(set: &str, chain: Option<&[CertificateDer<'_>]>) -> Rights {
    let names = chain.and_then(|chain| chain.first()).map(dns_names);
    Rights::of(set, names.iter().flatten().map(String::as_str))
}

fn read(files: &LinkTlsFiles, set: &str) -> Result<Read, TlsError> {
    let file = |flag, path| PemFile { flag, path };
    let ca = file("--link-ca", &files.ca);
    let cert = file("--link-cert", &files.cert);
    let key = file("--link-key", &files.key);
    let provider = Arc::new(ring::default_provider());
    let roots = Arc::new(ca.roots()?);
    let chain = cert.certificates()?;
    let private_key = key.private_key()?;
    let n_certificates = chain.len();
    let dated = vec![
        Dated::new(&files.cert, &chain, "peers will refuse it"),
        Dated::new(
            &files.ca,
            &ca.certificates()?,
            "peers that it vouches for are refused",
        ),
    ];
    let rights = rights(set, Some(&chain));
    let unusable = |error| spillgate_tls::unusable(error, cert, key);

    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let verifier = verifier.build().map_err(|error| ca.error(error))?;
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| cert.error(TlsProblem::Unusable(error)))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), private_key.clone_key())
        .map_err(unusable)?;
    server.alpn_protocols = vec![b"h2".to_vec()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;

    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| cert.error(TlsProblem::Unusable(error)))?
        // Each dial has its own verifier, since it knows which process it dials.
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain, private_key)
        .map_err(unusable)?;
    client.alpn_protocols = vec![b"h2".to_vec()];
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    Ok(Read {
        server: Arc::new(server),
        client,
        roots,
        n_certificates,
        rights,
        dated,
    })
}
