//! Addresses of cameras and videos on the network, with their secrets.
//!
//! People write passwords as they are, so `@`, `/`, `?` and `#` in one need no encoding. What is shown has `***` for the password and for what
//! stands behind `?`: cameras have their passwords there, too.

use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What a user's name or password keeps: also what is encoded already.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'%');
/// Schemes of live addresses: a frame that was not read is gone.
const LIVE: [&str; 12] = [
    "rtsp", "rtsps", "rtmp", "rtmps", "rtmpt", "rtmpe", "rtp", "srtp", "srt", "udp", "udplite",
    "tcp",
];
/// Schemes of files, and of live streams too: what ffmpeg says of them decides.
const FILES: [&str; 2] = ["http", "https"];
/// Schemes that begin with a TCP connection to the host itself, never by a proxy, and its usual port.
const DIALLED: [(&str, u16); 4] = [
    ("rtsp", 554),
    ("rtsps", 322),
    ("rtmp", 1935),
    ("rtmps", 443),
];
/// A camera that does not take a connection within this time is not there: it is tried again soon.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
const HIDDEN: &str = "***";

/// An address that ffmpeg reads. Its text forms show no secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: String,
    /// Name and password, encoded.
    user: Option<(String, Option<String>)>,
    /// Host, port and path.
    place: String,
    /// Behind `?`.
    query: Option<String>,
}

impl Address {
    /// Reads `scheme://[user[:password]@]host[:port][/path][?query]`.
    ///
    /// # Errors
    /// Where the scheme is none that is read, or there is no host. The message has no secret.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (scheme, rest) = text
            .split_once("://")
            .context("an address is scheme://host/path")?;
        let scheme = scheme.to_ascii_lowercase();
        ensure!(
            LIVE.contains(&scheme.as_str()) || FILES.contains(&scheme.as_str()),
            "{scheme}:// is not read; there are {}, {}",
            FILES.join(", "),
            LIVE.join(", ")
        );
        ensure!(
            !rest.contains(|c: char| c.is_control()),
            "an address has no control characters"
        );
        let (user, rest) = split_user(rest);
        let (place, query) = match rest.split_once('?') {
            Some((place, query)) => (place, Some(query.to_owned())),
            None => (rest, None),
        };
        ensure!(
            !authority(place).is_empty(),
            "{scheme}:// has no host: an address is {scheme}://host/path"
        );
        let encoded = |text: &str| utf8_percent_encode(text, KEPT).to_string();
        Ok(Address {
            user: user.map(|user| match user.split_once(':') {
                Some((name, password)) => (encoded(name), Some(encoded(password))),
                None => (encoded(user), None),
            }),
            place: place.to_owned(),
            query,
            scheme,
        })
    }

    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Whether its scheme is of live sources.
    pub(super) fn is_live(&self) -> bool {
        LIVE.contains(&self.scheme.as_str())
    }

    pub(super) fn has_secret(&self) -> bool {
        self.query.is_some()
            || self
                .user
                .as_ref()
                .is_some_and(|(_, password)| password.is_some())
    }

    /// The address with its secret, for the program that dials it.
    pub(super) fn real(&self) -> String {
        self.written(|secret| secret)
    }

    /// The address for people.
    pub(crate) fn shown(&self) -> String {
        self.written(|_| HIDDEN)
    }

    fn written<'a>(&'a self, secret: impl Fn(&'a str) -> &'a str) -> String {
        let user = match &self.user {
            None => String::new(),
            Some((name, None)) => format!("{name}@"),
            Some((name, Some(password))) => format!("{name}:{}@", secret(password)),
        };
        let query = self
            .query
            .as_deref()
            .map_or(String::new(), |query| format!("?{}", secret(query)));
        format!("{}://{user}{}{query}", self.scheme, self.place)
    }

    /// Whether somebody takes connections there. ffmpeg would wait for minutes for a host that is away, and so miss its return.
    ///
    /// # Errors
    /// Why nobody does.
    pub(super) fn dial(&self) -> Result<()> {
        let Some((_, usual)) = DIALLED.iter().find(|(scheme, _)| *scheme == self.scheme) else {
            return Ok(());
        };
        let place = authority(&self.place);
        let has_port = place
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let place = match has_port {
            true => place.to_owned(),
            false => format!("{place}:{usual}"),
        };
        let found = place
            .to_socket_addrs()
            .with_context(|| format!("there is no host {place}"))?;
        let mut why = None;
        for address in found {
            match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                Ok(_) => return Ok(()),
                Err(error) => why = Some(error),
            }
        }
        match why {
            Some(error) => Err(error).with_context(|| format!("cannot reach {place}")),
            None => bail!("{place} has no address"),
        }
    }

    /// A text of somebody else that may quote the address, without its secret.
    pub(super) fn scrubbed(&self, text: &str) -> String {
        let password = self
            .user
            .as_ref()
            .and_then(|(_, password)| password.as_deref());
        let decoded = password.map(|p| {
            percent_encoding::percent_decode_str(p)
                .decode_utf8_lossy()
                .into_owned()
        });
        let secrets = [password, decoded.as_deref(), self.query.as_deref()];
        let secrets = secrets
            .into_iter()
            .flatten()
            .filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// Everything before the path.
fn authority(text: &str) -> &str {
    text.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Name and password, and what follows.
///
/// A password may have any of `@/?#`. So the user ends at the last `@` that a host follows for sure: one with a dot, a port, or in brackets.
/// Where there is none, it ends where the standard says.
fn split_user(rest: &str) -> (Option<&str>, &str) {
    let standard = authority(rest);
    // `host:554/path@2` has no user.
    if !standard.contains('@') && is_host(standard) {
        return (None, rest);
    }
    let mut ats = rest
        .char_indices()
        .filter(|(_, c)| *c == '@')
        .map(|(at, _)| at);
    let mut sure = ats
        .clone()
        .filter(|at| rest[..*at].contains(':') && is_surely_host(authority(&rest[at + 1..])));
    let end = sure
        .next_back()
        .or_else(|| standard.rfind('@'))
        .or_else(|| ats.next_back());
    match end {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    }
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let named = !host.is_empty()
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let bracketed = host.starts_with('[') && host.ends_with(']');
    (named || bracketed) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_surely_host(text: &str) -> bool {
    is_host(text) && (text.contains(['.', ':', '[']) || text == "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_read_as_people_write_them_and_shown_to_nobody() {
        for (text, real, shown) in [
            (
                "rtsp://10.0.0.1/a",
                "rtsp://10.0.0.1/a",
                "rtsp://10.0.0.1/a",
            ),
            (
                "RTSP://me@cam:554/a",
                "rtsp://me@cam:554/a",
                "rtsp://me@cam:554/a",
            ),
            (
                "rtsp://me:pw@cam/a",
                "rtsp://me:pw@cam/a",
                "rtsp://me:***@cam/a",
            ),
            (
                "rtsp://me:p@w@cam.local/a",
                "rtsp://me:p%40w@cam.local/a",
                "rtsp://me:***@cam.local/a",
            ),
            (
                "rtsp://me:p/w?#@10.0.0.1/a",
                "rtsp://me:p%2Fw%3F%23@10.0.0.1/a",
                "rtsp://me:***@10.0.0.1/a",
            ),
            (
                "rtsp://me:a@b/c@cam:554/x",
                "rtsp://me:a%40b%2Fc@cam:554/x",
                "rtsp://me:***@cam:554/x",
            ),
            (
                "rtsp://me:p%40w@cam/a",
                "rtsp://me:p%40w@cam/a",
                "rtsp://me:***@cam/a",
            ),
            (
                "rtsp://cam:554/a@2",
                "rtsp://cam:554/a@2",
                "rtsp://cam:554/a@2",
            ),
            (
                "rtsp://me:pw@cam/a@high",
                "rtsp://me:pw@cam/a@high",
                "rtsp://me:***@cam/a@high",
            ),
            (
                "rtsp://me:p#w@[::1]:554/a",
                "rtsp://me:p%23w@[::1]:554/a",
                "rtsp://me:***@[::1]:554/a",
            ),
            (
                "http://cam/v.cgi?user=me&pwd=x",
                "http://cam/v.cgi?user=me&pwd=x",
                "http://cam/v.cgi?***",
            ),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.real(), real, "{text}");
            assert_eq!(address.shown(), shown, "{text}");
            assert_eq!(format!("{address:?}"), shown);
            assert_eq!(address.has_secret(), real != shown);
            let said = format!("{real}: Connection refused");
            assert_eq!(
                address.scrubbed(&said),
                format!("{shown}: Connection refused")
            );
        }
        let address = Address::parse("rtsp://me:p@w@cam.local/a").unwrap();
        assert_eq!(address.scrubbed("login p@w failed"), "login *** failed");
    }

    #[test]
    fn an_address_is_dialled_where_cameras_listen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = |text: String| Address::parse(&text).unwrap();
        assert!(
            address(format!("rtsp://me:pw@127.0.0.1:{port}/a"))
                .dial()
                .is_ok()
        );
        drop(listener);
        let gone = format!(
            "{:#}",
            address(format!("rtsp://me:pw@127.0.0.1:{port}/a"))
                .dial()
                .unwrap_err()
        );
        assert!(
            gone.starts_with(&format!(
                "cannot reach 127.0.0.1:{port}: Connection refused"
            )),
            "{gone}"
        );
        // By a proxy, perhaps, and by no connection at all.
        for other in ["http://127.0.0.1:1/a", "udp://127.0.0.1:1"] {
            assert!(address(other.to_owned()).dial().is_ok());
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_secret() {
        for (text, says) in [
            (
                "ftp://me:pw@host/a",
                "ftp:// is not read; there are http, https, rtsp",
            ),
            ("rtsp://me:pw@/a", "rtsp:// has no host"),
            ("rtsp://", "rtsp:// has no host"),
            ("rtsp://a\nb/c", "no control characters"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("pw"), "{error}");
        }
    }
}
