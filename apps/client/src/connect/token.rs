//! The bearer token of each call.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Longest token file: a longer one holds something else. Servers read headers of at least 8 KiB.
const TOKEN_BYTES_MAX: usize = 4096;

/// Adds the token, if there is one, to the metadata of each call.
#[derive(Clone, Default)]
pub(crate) struct Authorize {
    header: Option<MetadataValue<Ascii>>,
}

impl Authorize {
    /// Reads the token from a file; white space around it does not count.
    ///
    /// # Errors
    /// When the file holds no token. The error does not repeat its content.
    pub(super) fn from_file(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Authorize::default());
        };
        let name = path.display();
        let cannot = || format!("--token-file {name}");
        let mut text = String::new();
        let file = File::open(path).with_context(cannot)?;
        let mut file = file.take(TOKEN_BYTES_MAX as u64 + 1);
        file.read_to_string(&mut text).with_context(cannot)?;
        if text.len() > TOKEN_BYTES_MAX {
            bail!("--token-file {name}: more than {TOKEN_BYTES_MAX} bytes are no token");
        }
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("--token-file {name}: a token is one word of printable ASCII, alone in its file");
        }
        let mut header: MetadataValue<Ascii> = format!("Bearer {token}").parse()?;
        header.set_sensitive(true);
        Ok(Authorize {
            header: Some(header),
        })
    }

    pub(super) fn has_token(&self) -> bool {
        self.header.is_some()
    }

    /// For calls without tonic.
    pub(super) fn header(&self) -> Option<http::HeaderValue> {
        let header = self.header.as_ref()?;
        let mut value = http::HeaderValue::from_bytes(header.as_bytes()).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl Interceptor for Authorize {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.header {
            request
                .metadata_mut()
                .insert("authorization", header.clone());
        }
        Ok(request)
    }
}

/// Whether bytes to this host stay on this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for (host, here) in [
            ("127.0.0.1", true),
            ("127.8.8.8", true),
            ("::1", true),
            ("localhost", true),
            ("0.0.0.0", false),
            ("gpu-box", false),
            ("127.0.0.1.example.org", false),
        ] {
            assert_eq!(is_loopback(host), here, "{host}");
        }
    }
}
