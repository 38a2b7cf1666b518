//! Why a connection with TLS failed, in words: what is wrong, and what would be right.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

/// The error of a handshake, or of the first reading after it: a server judges a client's certificate after the client's handshake.
pub(crate) fn in_words(error: &io::Error) -> String {
    let inner = error.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => of_tls(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the peer ended the connection during the handshake".to_owned()
        }
        None => error.to_string(),
    }
}

fn of_tls(error: &Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    let text = match error {
        Error::NoCertificatesPresented => {
            "the peer shows no certificate; start it with --link-ca, --link-cert and --link-key"
        }
        Error::InvalidMessage(_) => super::SPEAKS_PLAIN,
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "the peer's certificate has expired; give it a new one"
        }
        Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "the peer's certificate is not valid yet; compare the clocks of both machines"
        }
        Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "the peer's certificate is of no authority in --link-ca; have it signed by one of them, or add its authority \
             there"
        }
        Error::InvalidCertificate(Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. }) => {
            "the peer's certificate is not for this use; its extended key usage must be serverAuth and clientAuth, or absent"
        }
        Error::AlertReceived(Alert::CertificateExpired) => {
            "the peer says that this process's certificate has expired, or is not valid yet; give this process a new one, or \
             compare the clocks of both machines"
        }
        Error::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            "the peer says that this process's certificate is of no authority in its --link-ca; have it signed by one of \
             them, or add its authority there"
        }
        Error::AlertReceived(Alert::CertificateRequired) => {
            "the peer says that this process shows no certificate; start it with --link-ca, --link-cert and --link-key"
        }
        Error::AlertReceived(Alert::UnsupportedCertificate) => {
            "the peer says that this process's certificate is not for this use; its extended key usage must be serverAuth \
             and clientAuth, or absent"
        }
        Error::AlertReceived(Alert::AccessDenied) => {
            "the peer says that this process's certificate has not the names of its roles; the peer's log says which \
             are missing"
        }
        _ => return format!("no TLS with the peer: {error}"),
    };
    text.to_owned()
}
