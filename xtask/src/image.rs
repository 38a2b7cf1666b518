//! `image`: container images without a container engine, as archives that `ctr images import`, `docker load` and
//! `podman load` take. deploy/kubernetes/image.py writes them.
//!
//! deploy/container/Dockerfile makes the same image of the product where Docker and its registries are at hand.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

use crate::dist;
use crate::profile::Profile;

/// An image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Image {
    /// `spillgate` with the CPU libtorch, and the shipped models and pipelines: `spillgate:VERSION`.
    Product,
    /// `spillgate-operator` alone: `spillgate-operator:VERSION`.
    Operator,
}

/// Where the release archive lies in the image. The Dockerfile says the same.
const HOME: &str = "/opt/spillgate";
/// The variables of the image, as in the Dockerfile.
const ENVIRONMENT: [&str; 3] = [
    "OMP_WAIT_POLICY=PASSIVE",
    "SPILLGATE_LISTEN=[::]:7700",
    "SPILLGATE_ADMIN=[::]:7701",
];
/// Not root; any other one will do. The Dockerfile says the same.
const USER: &str = "10001";
/// Authorities that the system trusts: the clients' `https://` and the operator's calls need them.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

impl Image {
    /// The package whose program it runs, which is also the image's name.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Image::Product => "spillgate",
            Image::Operator => "spillgate-operator",
        }
    }

    /// Its program, which is built if need be.
    pub(crate) fn program(self, workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
        let profile = match (self, profile) {
            (Image::Operator, Profile::Tests) => Profile::Alone,
            (_, profile) => profile,
        };
        profile.program(workspace, self.package())
    }
}

/// `cargo xtask image`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let mut profile = Profile::Release;
    let mut image = Image::Product;
    let mut program: Option<PathBuf> = None;
    let mut out: Option<PathBuf> = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("debug") => profile = Profile::Tests,
            Long("program") => program = Some(parser.value()?.into()),
            Long("operator") => image = Image::Operator,
            Value(path) if out.is_none() => out = Some(path.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let out = out.unwrap_or_else(|| {
        let name = format!("{}-image.tar", image.package());
        workspace.path("dist").join(name)
    });
    let built = match program {
        Some(program) => program,
        None => image.program(workspace, profile)?,
    };
    let tag = write(workspace, image, &built, &out)?;
    let size = std::fs::metadata(&out)?.len();
    println!(
        "image: {tag} in {}, {:.1} MB",
        out.display(),
        size as f64 / 1e6
    );
    Ok(())
}

/// Writes the archive of an image of a program, and returns the image's name.
pub(crate) fn write(
    workspace: &Workspace,
    image: Image,
    built: &Path,
    out: &Path,
) -> Result<String> {
    if !Path::new(AUTHORITIES).is_file() {
        bail!("{AUTHORITIES} is missing; install it: apt-get install ca-certificates");
    }
    let tag = format!("{}:{}", image.package(), dist::version(workspace)?);
    let folder = workspace.target_dir()?.join("image").join(image.package());
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut script = workspace.program("python3");
    script
        // Libraries that a program finds by it alone are not found in the image.
        .env_remove("LD_LIBRARY_PATH")
        .arg("deploy/kubernetes/image.py")
        .arg(std::path::absolute(out)?)
        .arg(&tag);
    script.arg(format!("{AUTHORITIES}={AUTHORITIES}"));
    script.args(["--user", USER]);
    match image {
        Image::Product => {
            dist::stage(workspace, built, true, &folder)?;
            product(&mut script, &folder)?;
        }
        Image::Operator => {
            let program = folder.join("bin").join(image.package());
            std::fs::create_dir_all(folder.join("bin"))?;
            std::fs::copy(built, &program)
                .with_context(|| format!("cannot copy {}", built.display()))?;
            dist::strip(workspace, &program)?;
            let inside = format!("/bin/{}", image.package());
            script.arg("--libraries").arg(&program).arg("--layer");
            script.arg(placed(&inside, &program)).args(["--", &inside]);
        }
    }
    process::run(&mut script)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(tag)
}

/// What the product's image consists of: libraries in a layer of their own, since they rarely change.
fn product(script: &mut Command, folder: &Path) -> Result<()> {
    script.arg("--libraries").arg(folder.join("bin/spillgate"));
    script.arg(placed(&format!("{HOME}/lib"), &folder.join("lib")));
    script.arg("--layer");
    let mut entries = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    for name in entries.iter().filter(|name| *name != "lib") {
        let inside = format!("{HOME}/{}", name.to_string_lossy());
        script.arg(placed(&inside, &folder.join(name)));
    }
    for variable in ENVIRONMENT {
        script.args(["--env", variable]);
    }
    script.args(["--env", &format!("PATH={HOME}/bin:/usr/bin:/bin")]);
    script.args(["--workdir", HOME]);
    for word in ["serve", "pipelines/traffic.yaml"] {
        script.args(["--command", word]);
    }
    script.args(["--", "spillgate"]);
    Ok(())
}

fn placed(inside: &str, local: &Path) -> String {
    format!("{inside}={}", local.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dockerfile_makes_the_same_image() {
        let dockerfile = include_str!("../../deploy/container/Dockerfile");
        for said in ENVIRONMENT.iter().chain([&HOME]) {
            assert!(dockerfile.contains(said), "{said}");
        }
        assert!(dockerfile.contains(&format!("USER {USER}\n")));
        assert!(dockerfile.contains(r#"ENTRYPOINT ["spillgate"]"#));
        assert!(dockerfile.contains(r#"CMD ["serve", "pipelines/traffic.yaml"]"#));
    }
}
