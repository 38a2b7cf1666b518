//! Certificates for the links between processes, made as docs/processes.md says.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use xtask::process;

/// Says what to do where openssl is missing.
pub(super) fn require() -> Result<()> {
    if !process::succeeds("openssl", &["version"]) {
        bail!("openssl is missing; install it with: apt-get install openssl");
    }
    Ok(())
}

/// Makes an authority and one certificate that lets its holder have each role. The environment that names them.
pub(super) fn make(folder: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    std::fs::create_dir_all(folder)?;
    let request = |name: &str, subject: &str| {
        let mut command = Command::new("openssl");
        command.current_dir(folder).args(["req", "-x509", "-nodes"]);
        command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-keyout", &format!("{name}.key")]);
        command.args(["-out", &format!("{name}.pem"), "-days", "2"]);
        command.args(["-subj", &format!("/CN={subject}")]);
        command
    };
    let mut authority = request("ca", "link authority");
    authority.args(["-addext", "basicConstraints=critical,CA:TRUE"]);
    authority.args(["-addext", "keyUsage=critical,keyCertSign"]);
    let mut holder = request("all", "all roles");
    let names = ["gateway", "controller", "worker"].map(|role| format!("DNS:{role}.spillgate"));
    let names = format!("subjectAltName={}", names.join(","));
    holder.args(["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", &names]);
    holder.args(["-addext", "basicConstraints=CA:FALSE"]);
    for command in [&mut authority, &mut holder] {
        let (succeeded, said) = process::judge(command)?;
        if !succeeded {
            bail!("openssl failed:\n{said}");
        }
    }
    Ok(vec![
        ("SPILLGATE_LINK_CA", folder.join("ca.pem")),
        ("SPILLGATE_LINK_CERT", folder.join("all.pem")),
        ("SPILLGATE_LINK_KEY", folder.join("all.key")),
    ])
}
