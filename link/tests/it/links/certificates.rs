//! An authority with its certificates: files that go away with their test.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use spillgate_link::tls::LinkTlsFiles;

pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("spillgate-links-{}-{name}", std::process::id());
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
        authority.write("ca.pem", &root.pem());
        authority
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub(crate) fn certificate(
        &self,
        name: &str,
        dns: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().unwrap();
        let dns: Vec<String> = dns.iter().map(|dns| (*dns).to_owned()).collect();
        let mut params = CertificateParams::new(dns).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    pub(crate) fn files(&self, name: &str) -> LinkTlsFiles {
        LinkTlsFiles {
            ca: self.folder.join("ca.pem"),
            cert: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        }
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
