//! TLS of the client: the authorities that it trusts, and its own certificate. rustls with ring; HTTP/2 by ALPN.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// The TLS configuration that trusts `ca` or, without it, the authorities of this system.
///
/// # Errors
/// One line that names the file, and the problem.
pub(super) fn config(
    ca: Option<&Path>,
    cert: Option<&Path>,
    key: Option<&Path>,
) -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("TLS cannot be set up")?
        .with_root_certificates(roots(ca)?);
    let mut config = match (cert, key) {
        (Some(cert), Some(key)) => {
            let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| {
                anyhow!("--key {}: no private key (PEM): {error}", key.display())
            })?;
            builder
                .with_client_auth_cert(certificates("--cert", cert)?, key_der)
                .map_err(|error| {
                    let (cert, key) = (cert.display(), key.display());
                    anyhow!(
                        "--cert {cert} and --key {key} do not make a client's certificate: {error}"
                    )
                })?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        for certificate in certificates("--ca", path)? {
            roots.add(certificate).map_err(|error| {
                anyhow!("--ca {}: no root certificate: {error}", path.display())
            })?;
        }
        return Ok(roots);
    }
    let system = rustls_native_certs::load_native_certs();
    // Certificates of the system that cannot be read are left out.
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        bail!(
            "this system has no certificates of its own to trust; name the server's with --ca FILE"
        );
    }
    Ok(roots)
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().map_err(|error| anyhow!("{flag} {}: {error}", path.display()))?;
    if found.is_empty() {
        bail!("{flag} {}: no certificate in it (PEM)", path.display());
    }
    Ok(found)
}

/// Why a handshake failed, with a remedy.
pub(super) fn handshake_error(error: &io::Error) -> anyhow::Error {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    let advice = match tls {
        Some(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "; --ca FILE names whom to trust",
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "; --server-name NAME is the name to expect",
        Some(Error::InvalidMessage(_)) => "; does the server speak TLS? http:// is without",
        _ => "",
    };
    anyhow!("TLS: {error}{advice}")
}
