//! The flags of certificates between processes.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use spillgate_link::tls::{LinkTls, LinkTlsFiles};

/// Certificates on both sides of each connection between processes.
#[derive(Args)]
pub(crate) struct LinkTlsArgs {
    /// Speak TLS with other processes, and only with those whose certificates one of these authorities signed (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_LINK_CA",
        requires_all = ["link_cert", "link_key"]
    )]
    link_ca: Option<PathBuf>,
    /// Certificate of this process for --link-ca; its DNS names say its roles, like worker.spillgate (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_LINK_CERT",
        requires_all = ["link_ca", "link_key"]
    )]
    link_cert: Option<PathBuf>,
    /// Private key of --link-cert (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_LINK_KEY",
        requires_all = ["link_ca", "link_cert"]
    )]
    link_key: Option<PathBuf>,
}

impl LinkTlsArgs {
    /// Reads the certificates, if there are some: of a process of that set.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn read(&self, set: Arc<str>) -> anyhow::Result<Option<Arc<LinkTls>>> {
        let (Some(ca), Some(cert), Some(key)) = (&self.link_ca, &self.link_cert, &self.link_key)
        else {
            return Ok(None);
        };
        let files = LinkTlsFiles {
            ca: ca.clone(),
            cert: cert.clone(),
            key: key.clone(),
        };
        Ok(Some(Arc::new(LinkTls::new(files, set)?)))
    }
}
