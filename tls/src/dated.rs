//! When the certificates of a file end. A certificate that nobody renews stops a service on a day that was known for months.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore};

/// A certificate that ends within this time is warned of: two weeks are enough to renew it by hand.
const SOON: Duration = Duration::from_secs(14 * DAY);
const DAY: u64 = 86_400;
const HOUR: u64 = 3_600;
/// The last second that a certificate can name, that of the year 9999. One that ends then never does.
const LAST: u64 = 253_402_300_799;

/// The certificates of a file, and what follows from their end.
#[derive(Clone, Debug)]
pub struct Dated {
    path: PathBuf,
    certificates: Vec<CertificateDer<'static>>,
    consequence: &'static str,
}

impl Dated {
    /// `consequence` completes a sentence: `clients will refuse it`.
    pub fn new(
        path: &Path,
        certificates: &[CertificateDer<'static>],
        consequence: &'static str,
    ) -> Self {
        Dated {
            path: path.to_owned(),
            certificates: certificates.to_vec(),
            consequence,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Seconds since 1970 until the first of them expires; none where none ever does.
    pub fn expires_at(&self) -> Option<u64> {
        self.certificates.iter().filter_map(expiry).min()
    }

    /// What its owner should know at this time, if anything: the first certificate that is not valid, else the first that ends soon.
    pub fn warning(&self, now: SystemTime) -> Option<String> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let invalid = |c: &CertificateDer<'_>| match validity(c, UnixTime::since_unix_epoch(now)) {
            Validity::Valid => None,
            Validity::Early => Some("is not valid yet".to_owned()),
            Validity::Expired(_) => Some("has expired".to_owned()),
        };
        let soon = |c: &CertificateDer<'_>| {
            let left = expiry(c)?.checked_sub(now.as_secs())?;
            let within = match left {
                _ if left > SOON.as_secs() => return None,
                DAY.. => format!("{} days", left / DAY),
                _ => format!("{} hours", left / HOUR),
            };
            Some(format!("expires in {within}"))
        };
        let all = || self.certificates.iter().enumerate();
        let of = |(i, what): (usize, String), then: &str| {
            let which = match i {
                0 => "the certificate".to_owned(),
                i => format!("certificate {}", i + 1),
            };
            let (path, consequence) = (self.path.display(), self.consequence);
            format!("{which} in {path} {what}: {consequence}{then}")
        };
        let found = all().find_map(|(i, c)| Some((i, invalid(c)?)));
        let found = found.map(|found| of(found, ""));
        found.or_else(|| {
            let next = all().find_map(|(i, c)| Some((i, soon(c)?)));
            next.map(|next| of(next, " then"))
        })
    }
}

enum Validity {
    Valid,
    Early,
    /// Since then, in seconds since 1970.
    Expired(u64),
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    match validity(
        certificate,
        UnixTime::since_unix_epoch(Duration::from_secs(LAST)),
    ) {
        Validity::Expired(at) => Some(at),
        _ => None,
    }
}

/// Whether the certificate is valid at a time. One that cannot be read is another error's matter.
fn validity(certificate: &CertificateDer<'_>, at: UnixTime) -> Validity {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else {
        return Validity::Valid;
    };
    let algorithms = ring::default_provider().signature_verification_algorithms;
    // Times are checked before the issuer, and there is no issuer here.
    let roots = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], at, algorithms.all) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Validity::Expired(not_after.as_secs())
        }
        Err(Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        )) => Validity::Early,
        _ => Validity::Valid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::certificate;

    /// 1 January 2030.
    const START: u64 = 1_893_456_000;

    fn file(years: &[(i32, i32)], is_ca: bool) -> Dated {
        let all: Vec<CertificateDer<'static>> = years
            .iter()
            .map(|&(from, until)| {
                certificate(|params| {
                    params.not_before = rcgen::date_time_ymd(from, 1, 1);
                    params.not_after = rcgen::date_time_ymd(until, 1, 1);
                    if is_ca {
                        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
                    }
                })
            })
            .collect();
        Dated::new(Path::new("c.pem"), &all, "clients will refuse it")
    }

    fn warned(file: &Dated, at: u64) -> Option<String> {
        file.warning(UNIX_EPOCH + Duration::from_secs(at))
    }

    #[test]
    fn a_certificate_warns_two_weeks_before_its_end_and_after_it() {
        for is_ca in [false, true] {
            let one = file(&[(2001, 2030)], is_ca);
            assert_eq!(one.expires_at(), Some(START));
            assert_eq!(warned(&one, START - 14 * DAY - 1), None);
            for (at, says) in [
                (
                    START - 14 * DAY,
                    "the certificate in c.pem expires in 14 days: clients will refuse it then",
                ),
                (
                    START - DAY - 1,
                    "the certificate in c.pem expires in 1 days: clients will refuse it then",
                ),
                (
                    START - 2 * HOUR,
                    "the certificate in c.pem expires in 2 hours: clients will refuse it then",
                ),
                (
                    START + 1,
                    "the certificate in c.pem has expired: clients will refuse it",
                ),
                (
                    1,
                    "the certificate in c.pem is not valid yet: clients will refuse it",
                ),
            ] {
                assert_eq!(warned(&one, at).as_deref(), Some(says));
            }
        }
    }

    #[test]
    fn the_first_end_of_a_chain_counts() {
        let chain = file(&[(2001, 2040), (2001, 2030)], false);
        assert_eq!(chain.expires_at(), Some(START));
        let says = "certificate 2 in c.pem has expired: clients will refuse it";
        assert_eq!(warned(&chain, START + 1).as_deref(), Some(says));
        assert_eq!(
            file(&[(2001, 9999)], false)
                .expires_at()
                .map(|at| at > START),
            Some(true)
        );
    }
}
