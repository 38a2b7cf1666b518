//! The address at which a started server listens.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{self, Daemon};

/// Models load in a second or two; a pipeline without a measured profile is measured first.
const START_LIMIT: Duration = Duration::from_secs(300);

/// The server's URL, once it is ready to serve.
pub fn await_address(server: &mut Daemon, port_file: &Path) -> Result<String> {
    let begun = Instant::now();
    let mut before = String::new();
    loop {
        let text = std::fs::read_to_string(port_file).unwrap_or_default();
        // The same at two looks: no half-written address is taken for a whole one.
        if text == before
            && let Ok(address) = url(&text)
        {
            return Ok(address);
        }
        before = text;
        if let Some(status) = server.ended()? {
            bail!(
                "the server ended ({status}) before it was ready:\n{}",
                server.tail(30)
            );
        }
        if begun.elapsed() > START_LIMIT {
            bail!(
                "the server was not ready after {START_LIMIT:?}:\n{}",
                server.tail(30)
            );
        }
        if process::interrupted() {
            bail!("interrupted");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `127.0.0.1:1234` or a URL, as a URL.
fn url(address: &str) -> Result<String> {
    let address = address.trim();
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let (_, port) = rest
        .rsplit_once(':')
        .with_context(|| format!("no port in {address:?}"))?;
    port.parse::<u16>()
        .with_context(|| format!("no port in {address:?}"))?;
    Ok(format!("{scheme}://{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_urls() {
        assert_eq!(url("127.0.0.1:4000").unwrap(), "http://127.0.0.1:4000");
        assert_eq!(url("http://[::1]:4000\n").unwrap(), "http://[::1]:4000");
        assert!(url("127.0.0.1").is_err());
        assert!(url("").is_err());
    }
}
