//! TLS and tokens of a server. Their files are read before anything is loaded, and again on SIGHUP or when they have changed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use spillgate_controller::edge::{Edge, Tls, TlsFiles};
use spillgate_pipeline::grant::{Grant, parse_grants};
use spillgate_tls::TlsError;

use crate::files::{self, LoadError};
use crate::process_role::ProcessRole;
use crate::reload::Reload;

/// Why a server cannot be secured as it should be.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A file for TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file of tokens.
    #[error(transparent)]
    Tokens(#[from] LoadError),
}

/// The files, read and checked.
#[derive(Clone, Debug, Default)]
pub struct Security {
    tls: Option<Arc<Tls>>,
    tokens: Option<Tokens>,
}

#[derive(Clone, Debug)]
struct Tokens {
    file: PathBuf,
    grants: Vec<Grant>,
}

impl Security {
    /// Reads the files that are given.
    ///
    /// # Errors
    /// When one cannot be used; says which, and why.
    pub fn read(tls: Option<TlsFiles>, tokens: Option<PathBuf>) -> Result<Self, SecurityError> {
        let tls = tls.map(Tls::new).transpose()?.map(Arc::new);
        let tokens = tokens
            .map(|file| {
                let grants = load_grants(&file)?;
                Ok::<_, LoadError>(Tokens { file, grants })
            })
            .transpose()?;
        Ok(Security { tls, tokens })
    }

    /// Whether it speaks TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    pub(crate) fn grants(&self) -> Option<Vec<Grant>> {
        self.tokens.as_ref().map(|tokens| tokens.grants.clone())
    }

    fn dated_warnings(&self) -> Vec<String> {
        let dated = self.tls.iter().flat_map(|tls| tls.dated());
        dated.filter_map(|d| d.warning(SystemTime::now())).collect()
    }

    /// Warnings for its owner, a line each: an address that other machines can reach without TLS or tokens, a
    /// certificate that clients will refuse today or soon.
    pub fn warnings(&self, listen: SocketAddr) -> Vec<String> {
        let mut lines: Vec<String> = self.dated_warnings();
        if !listen.ip().to_canonical().is_loopback() {
            if self.tls.is_none() {
                lines.push(format!(
                    "{listen} can be reached by others, and what goes there can be read on the way: no --tls-cert"
                ));
            }
            if self.tokens.is_none() && !self.tls.as_ref().is_some_and(|tls| tls.is_mutual()) {
                lines.push(format!(
                    "{listen} can be reached by other machines, and every client is served: no --tokens"
                ));
            }
        }
        let nobody = self.tokens.iter().filter(|t| t.grants.is_empty());
        lines.extend(
            nobody.map(|t| format!("{} has no token: no client is served", t.file.display())),
        );
        lines
            .iter()
            .map(|line| format!("warning: {line}"))
            .collect()
    }

    /// Grants that name a pipeline that is not among these, a line each.
    pub fn strangers(&self, pipelines: &[&str]) -> Vec<String> {
        let tokens = self.tokens.iter();
        let all = tokens.flat_map(|t| t.grants.iter().map(|grant| (&t.file, grant)));
        let named = all.flat_map(|(file, grant)| {
            let list = grant.pipelines.iter().flatten();
            list.map(move |name| (file, grant, name))
        });
        named
            .filter(|(_, _, name)| !pipelines.contains(&name.as_str()))
            .map(|(file, grant, name)| {
                format!(
                    "warning: {}:{}: {} may use \"{name}\", which is not served here",
                    file.display(),
                    grant.line,
                    grant.name
                )
            })
            .collect()
    }

    /// Adds what can be read anew while `edge` serves.
    pub(crate) fn add_to(&self, reload: &mut Reload, edge: &Arc<Edge>) {
        if let Some(tls) = self.tls.clone() {
            reload.add("certificates", tls.files(), move || {
                tls.reload().map_err(|error| error.to_string())
            });
        }
        if let Some(Tokens { file, .. }) = self.tokens.clone() {
            let edge = edge.clone();
            reload.add("tokens", vec![file.clone()], move || {
                let grants = load_grants(&file).map_err(|error| error.to_string())?;
                let found = format!("{} in {}", grants.len(), file.display());
                edge.set_grants(grants);
                Ok(found)
            });
        }
    }
}

/// Warnings for the owner of a process of a set, a line each: a link port that other machines can reach without TLS, a
/// certificate that its peers will refuse.
pub fn link_warnings(role: &ProcessRole) -> Vec<String> {
    let lines = match (&role.tls, role.listen()) {
        (Some(tls), _) => tls.warnings(&role.link_process()),
        (None, Some(listen)) if !listen.ip().to_canonical().is_loopback() => vec![format!(
            "{listen} can be reached by others, and whoever reaches it can take any role: no --link-cert"
        )],
        (None, _) => Vec::new(),
    };
    lines
        .iter()
        .map(|line| format!("warning: {line}"))
        .collect()
}

fn load_grants(file: &Path) -> Result<Vec<Grant>, LoadError> {
    let text = files::read(file)?;
    parse_grants(&text, &file.display().to_string()).map_err(LoadError::Spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_reach_without_tls_or_tokens_warns() {
        let none = Security::default();
        for (address, lines) in [
            ("127.0.0.1:1", 0),
            ("[::1]:1", 0),
            ("[::ffff:127.0.0.1]:1", 0),
            ("0.0.0.0:1", 2),
            ("[::]:1", 2),
            ("192.168.1.1:1", 2),
        ] {
            let warnings = none.warnings(address.parse().unwrap());
            assert_eq!(warnings.len(), lines, "{address}: {warnings:?}");
        }
        let [tls, tokens] = &none.warnings("0.0.0.0:1".parse().unwrap())[..] else {
            panic!("two lines");
        };
        assert!(tls.ends_with("no --tls-cert") && tokens.ends_with("no --tokens"));
    }
}
