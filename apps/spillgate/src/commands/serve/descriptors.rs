//! How many connections the process has descriptors for.

use anyhow::{Context as _, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors beside those of clients' connections: the admin port, links, model and log files, the threads' own.
const RESERVED: usize = 160;
/// Connections where their number is not given: far more than most servers have clients.
pub(crate) const CONNECTIONS: usize = 1024;

/// Raises the limit of descriptors of this process as far as it may. The limit.
///
/// # Errors
/// When the system refuses.
pub(super) fn raise() -> anyhow::Result<usize> {
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of descriptors")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
            .context("cannot raise the limit of descriptors")?;
    }
    Ok(usize::try_from(hard).unwrap_or(usize::MAX))
}

/// The most connections, as given or as the descriptors allow.
///
/// # Errors
/// When there are too few descriptors.
pub(super) fn connections(given: Option<usize>, limit: usize) -> anyhow::Result<usize> {
    let most = limit.saturating_sub(RESERVED);
    let wanted = given.unwrap_or(1);
    ensure!(
        wanted <= most,
        "{} {} descriptors with the {RESERVED} for everything else, and this process may have {limit}; raise \
         the limit (ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of containers){}",
        match given {
            Some(n) => format!("--connections {n} needs"),
            None => "a single connection needs".to_owned(),
        },
        wanted + RESERVED,
        if most > 0 && given.is_some() {
            format!(", or give at most {most}")
        } else {
            String::new()
        }
    );
    Ok(given.unwrap_or(CONNECTIONS.min(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_follow_from_the_descriptors() {
        assert_eq!(connections(None, 1 << 20).unwrap(), CONNECTIONS);
        assert_eq!(connections(None, 1024).unwrap(), 864);
        assert_eq!(connections(Some(864), 1024).unwrap(), 864);
        let said = |given, limit| connections(given, limit).unwrap_err().to_string();
        let error = said(Some(865), 1024);
        assert!(
            error.starts_with("--connections 865 needs 1025 descriptors"),
            "{error}"
        );
        assert!(error.ends_with("or give at most 864"), "{error}");
        let error = said(None, 160);
        assert!(
            error.starts_with("a single connection needs 161 descriptors"),
            "{error}"
        );
        assert!(error.contains("may have 160"), "{error}");
    }
}
