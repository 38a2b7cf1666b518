//! The certificates of a set's links: an authority of its own for each set, and a certificate for each role, renewed before it ends.
//!
//! A new authority is believed before it signs: for a while pods read both, then certificates are signed by the new one, then the old
//! one goes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Roles that show certificates, with the name that says what its holder may be.
pub const ROLES: [&str; 4] = ["controller", "gateway", "worker", "operator"];
/// The roles whose Secrets pods read.
pub const POD_ROLES: [&str; 3] = ["controller", "gateway", "worker"];

/// How long certificates are valid, and when they are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of a role's certificate.
    pub certificate: Duration,
    /// Of an authority.
    pub authority: Duration,
    /// After this time pods have surely read a Secret that changed: the kubelet looks once a minute.
    pub read_within: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Lifetimes {
            certificate: 30 * DAY,
            authority: 3650 * DAY,
            read_within: Duration::from_secs(180),
        }
    }
}

/// Clocks of nodes differ.
const EARLIER: Duration = Duration::from_secs(300);

/// An authority: its certificate and its private key (PEM).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    certificate: String,
    key: String,
    /// Since when pods may have read it, in seconds since 1970.
    since: u64,
    /// When it ends.
    until: u64,
}

/// A certificate of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    certificate: String,
    key: String,
    since: u64,
    until: u64,
    /// The certificate of the authority that signed it.
    by: String,
}

/// All certificates of a set, as the operator keeps them in a Secret of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates {
    /// The newest one last. Two live while the authority changes.
    authorities: Vec<Authority>,
    /// By role.
    issued: BTreeMap<String, Issued>,
}

impl Certificates {
    /// The certificates in the operator's Secret. One that cannot be read counts as none: new ones are issued.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// For the operator's Secret.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Issues what is missing, or has passed two thirds of its time. Whether anything changed.
    ///
    /// # Errors
    /// When a certificate cannot be made.
    pub fn renew(&mut self, set: &str, now: u64, lifetimes: Lifetimes) -> anyhow::Result<bool> {
        let mut changed = false;
        if self
            .authorities
            .last()
            .is_none_or(|of| is_old(of.since, of.until, now))
        {
            let authority = authority(set, now, lifetimes.authority)?;
            self.authorities.push(authority);
            changed = true;
        }
        // The newest one signs once all have read it; the first one at once.
        let read_by = |of: &Authority| of.since + lifetimes.read_within.as_secs() <= now;
        let signs = match self.authorities.as_slice() {
            [only] => only,
            [.., before, newest] if !read_by(newest) => before,
            all => all.last().context("there is an authority")?,
        }
        .clone();
        for role in ROLES {
            let is_right = self.issued.get(role).is_some_and(|issued| {
                issued.by == signs.certificate && !is_old(issued.since, issued.until, now)
            });
            if !is_right {
                let issued = issue(set, role, &signs, now, lifetimes.certificate)?;
                self.issued.insert(role.to_owned(), issued);
                changed = true;
            }
        }
        // An old authority goes once certificates of the new one have been read everywhere.
        let newest_signed = self.issued.values().all(|issued| {
            issued.by == signs.certificate && issued.since + lifetimes.read_within.as_secs() <= now
        });
        let is_newest = self.authorities.last() == Some(&signs);
        if self.authorities.len() > 1 && is_newest && newest_signed {
            self.authorities = vec![signs];
            changed = true;
        }
        Ok(changed)
    }

    /// What the Secret of a role holds.
    pub fn of_role(&self, role: &str) -> Option<BTreeMap<String, String>> {
        let issued = self.issued.get(role)?;
        let authorities = self.authorities.iter().map(|of| of.certificate.as_str());
        let data = [
            ("ca.crt", authorities.collect::<String>()),
            ("tls.crt", issued.certificate.clone()),
            ("tls.key", issued.key.clone()),
        ];
        Some(data.map(|(key, value)| (key.to_owned(), value)).into())
    }
}

fn is_old(since: u64, until: u64, now: u64) -> bool {
    let lives = until.saturating_sub(since);
    now < since.saturating_sub(EARLIER.as_secs()) || now >= since + lives / 3 * 2
}

fn params(names: Vec<String>, now: u64, lives: Duration) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    let at = |seconds: u64| {
        let seconds = i64::try_from(seconds).context("a time")?;
        OffsetDateTime::from_unix_timestamp(seconds).context("a time")
    };
    params.not_before = at(now.saturating_sub(EARLIER.as_secs()))?;
    params.not_after = at(now + lives.as_secs())?;
    Ok(params)
}

fn authority_params(set: &str, now: u64, lives: Duration) -> anyhow::Result<CertificateParams> {
    let mut params = params(Vec::new(), now, lives)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, format!("links of the set {set}"));
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn authority(set: &str, now: u64, lives: Duration) -> anyhow::Result<Authority> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(set, now, lives)?.self_signed(&key)?;
    Ok(Authority {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        since: now,
        until: now + lives.as_secs(),
    })
}

fn issue(
    set: &str,
    role: &str,
    by: &Authority,
    now: u64,
    lives: Duration,
) -> anyhow::Result<Issued> {
    let lives = lives.min(Duration::from_secs(by.until.saturating_sub(now)));
    let signer = KeyPair::from_pem(&by.key).context("the key of the authority")?;
    // An issuer is known by its name and its key: both are those of the authority's certificate.
    let issuer = Issuer::new(authority_params(set, by.since, lives)?, signer);
    let key = KeyPair::generate()?;
    let params = params(vec![format!("{role}.{set}")], now, lives)?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Issued {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        since: now,
        until: now + lives.as_secs(),
        by: by.certificate.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVES: Lifetimes = Lifetimes {
        certificate: Duration::from_secs(3_000),
        authority: Duration::from_secs(30_000),
        read_within: Duration::from_secs(100),
    };

    fn counts(of: &Certificates) -> (usize, Vec<u64>) {
        (
            of.authorities.len(),
            of.issued.values().map(|of| of.since).collect(),
        )
    }

    #[test]
    fn certificates_are_renewed_after_two_thirds_of_their_time() {
        let mut all = Certificates::default();
        assert!(all.renew("default", 1_000_000, LIVES).unwrap());
        let first = all.clone();
        assert!(!all.renew("default", 1_001_999, LIVES).unwrap());
        assert_eq!(all, first);
        assert!(all.renew("default", 1_002_000, LIVES).unwrap());
        assert_eq!(counts(&all), (1, vec![1_002_000; 4]));
        assert_eq!(Certificates::read(&all.text()), Some(all));
    }

    #[test]
    fn a_new_authority_signs_once_it_was_read_and_the_old_one_goes_after_that() {
        let mut all = Certificates::default();
        all.renew("default", 0, LIVES).unwrap();
        let old = all.authorities[0].certificate.clone();
        let (mut now, mut changes) = (0, Vec::new());
        while now < 21_000 {
            now += 50;
            let before = all.clone();
            if all.renew("default", now, LIVES).unwrap() {
                let by_new = all.issued.values().filter(|of| of.by != old).count();
                changes.push((now, all.authorities.len(), by_new));
                // What pods may still have is signed by what all others believe.
                for role in ROLES {
                    let ca = all.of_role(role).unwrap()["ca.crt"].clone();
                    let held = before.issued.values();
                    assert!(held.into_iter().all(|of| ca.contains(&of.by)), "{now}");
                }
            }
        }
        let of_authority: Vec<_> = changes
            .into_iter()
            .filter(|(now, ..)| *now >= 20_000)
            .collect();
        assert_eq!(
            of_authority,
            [(20_000, 2, 0), (20_100, 2, 4), (20_200, 1, 4)]
        );
    }
}
