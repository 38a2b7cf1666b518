//! Addresses to listen on, as people write them: like those of services (`spillgate_pipeline::address`).

use std::net::{SocketAddr, ToSocketAddrs};

/// An address to listen on, such as `127.0.0.1:7700`, `localhost:7700`, `[::1]:0` or what a server says that it listens on.
///
/// # Errors
/// A sentence that says what would be right.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let right =
        "write HOST:PORT, like 127.0.0.1:7700, or 0.0.0.0:7700 for all networks of this machine";
    let bare = without_scheme(text);
    if bare.starts_with(':') {
        return Err(format!("it names no host; {right}"));
    }
    match bare.to_socket_addrs() {
        Ok(mut found) => found
            .next()
            .ok_or_else(|| format!("{bare} has no address; {right}")),
        Err(error) => Err(format!("{error}; {right}")),
    }
}

fn without_scheme(text: &str) -> &str {
    let bare = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    bare.unwrap_or(text).trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_people_write_it() {
        for text in [
            "127.0.0.1:7700",
            "http://127.0.0.1:7700",
            "https://127.0.0.1:7700/",
        ] {
            assert_eq!(listen(text).unwrap().to_string(), "127.0.0.1:7700");
        }
        assert_eq!(listen("[::1]:0").unwrap().to_string(), "[::1]:0");
        assert!(listen("localhost:80").unwrap().ip().is_loopback());
        for wrong in ["7700", ":7700", "127.0.0.1", "host:port"] {
            assert!(
                listen(wrong).unwrap_err().contains("write HOST:PORT"),
                "{wrong}"
            );
        }
    }
}
