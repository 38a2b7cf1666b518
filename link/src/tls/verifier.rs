//! Verifies the certificate of a process that is dialled: its authority, its time, and that its names cover what the process should
//! be.

use std::sync::{Arc, OnceLock};

use spillgate_protocol::session::rights::LinkProcess;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

#[derive(Debug)]
pub(super) struct Verifier {
    roots: Arc<RootCertStore>,
    set: Arc<str>,
    peer: LinkProcess,
    algorithms: WebPkiSupportedAlgorithms,
    /// Why the names are not those of the peer: TLS has no words for it.
    refused: Arc<OnceLock<String>>,
}

impl Verifier {
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        (set, peer): (Arc<str>, LinkProcess),
        refused: Arc<OnceLock<String>>,
    ) -> Self {
        Verifier {
            roots,
            set,
            peer,
            algorithms: ring::default_provider().signature_verification_algorithms,
            refused,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        let chain = std::slice::from_ref(end_entity);
        if let Some(why) = super::rights(&self.set, Some(chain)).refuse_member(&self.peer) {
            let _ = self.refused.set(why);
            // The peer hears "access denied".
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
