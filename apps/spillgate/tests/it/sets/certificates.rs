//! An authority with its certificates: files that go away with their test.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("spillgate-authority-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let authority = Authority {
            folder,
            issuer: Issuer::new(params, key),
        };
        std::fs::write(authority.path("ca.pem"), root.pem()).unwrap();
        // With it the tests look at what processes show.
        authority.certificate("test", &["localhost"], |_| {});
        authority
    }

    /// Writes `NAME.pem` and `NAME.key`. A name that `dns` has not is added, so that any server is called localhost.
    pub(crate) fn certificate(
        &self,
        name: &str,
        dns: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().unwrap();
        let all = dns.iter().chain(&["localhost"]);
        let all: Vec<String> = all.map(|dns| (*dns).to_owned()).collect();
        let mut params = CertificateParams::new(all).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub(crate) fn copy(&self, from: &str, to: &str) {
        std::fs::copy(self.path(from), self.path(to)).unwrap();
    }

    pub(crate) fn copy_from(&self, other: &Authority, file: &str) {
        std::fs::copy(other.path(file), self.path(file)).unwrap();
    }

    pub(crate) fn remove(&self, file: &str) {
        std::fs::remove_file(self.path(file)).unwrap();
    }

    /// The flags of a process with a certificate of that name.
    pub(crate) fn flags(&self, name: &str) -> Vec<String> {
        let path = |file: &str| self.path(file).to_str().unwrap().to_owned();
        let files = [
            ("--link-ca", path("ca.pem")),
            ("--link-cert", path(&format!("{name}.pem"))),
            ("--link-key", path(&format!("{name}.key"))),
        ];
        let flags = files.into_iter();
        flags
            .flat_map(|(flag, file)| [flag.to_owned(), file])
            .collect()
    }

    /// The certificate that is shown at an address.
    pub(crate) fn shown_at(&self, address: &str) -> Vec<u8> {
        let read = |file: &str| CertificateDer::from_pem_file(self.path(file)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(read("ca.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.path("test.key")).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![read("test.pem")], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut stream).unwrap();
        }
        session.peer_certificates().unwrap()[0].to_vec()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
