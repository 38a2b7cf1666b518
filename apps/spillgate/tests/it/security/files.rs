//! An authority, a server and a client of it, tokens: files that go away with their test.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sha2::{Digest, Sha256};

pub(crate) struct Files {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Files {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("spillgate-security-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let files = Files {
            folder,
            issuer: Issuer::new(params, key),
        };
        files.write("ca.pem", &root.pem());
        files.write("tokens.yaml", "tokens:\n");
        files.certificate("server", |_| {});
        files.certificate("client", |_| {});
        files
    }

    /// Writes `NAME.pem` and `NAME.key`, signed by the authority.
    pub(crate) fn certificate(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// Adds an entry to `tokens.yaml`; the token.
    pub(crate) fn token(&self, name: &str, rights: &str) -> String {
        let token = format!("token-of-{name}");
        let hash = Sha256::digest(token.as_bytes());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let before = self.read("tokens.yaml").replace("tokens: []", "tokens:\n");
        let entry = format!("- {{ name: {name}, sha256: \"{hash}\", {rights} }}\n");
        self.write("tokens.yaml", &(before + &entry));
        token
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
