//! The memory that a process may take, beside what its pipelines need. The kernel kills a process that takes more than its control
//! group may, and says nothing to it: so this says it before models are loaded.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::profile::device_kind;

use crate::device_name::resolve_device;
use crate::files::LoadedPipeline;
use crate::model_files::weights_bytes;

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// From here on a limit is none: version 1 writes the largest multiple of a page.
const NONE: u64 = 1 << 60;
/// Values of an input pixel, and their bytes.
const PIXEL_BYTES: u64 = 3 * 4;

/// A limit of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// The file that says so.
    pub file: PathBuf,
}

impl Limit {
    /// The lowest limit of this process's control groups; none where there is none, or it cannot be read.
    pub fn of_process() -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::lowest(&groups, Path::new(ROOT))
    }

    /// `groups` is the text of `/proc/PID/cgroup`: lines of `HIERARCHY:CONTROLLERS:PATH`. A group's ancestors limit it, too. In a
    /// container the path may be that of its host: then the root of the mount is the container's own group.
    fn lowest(groups: &str, root: &Path) -> Option<Self> {
        let files = groups.lines().flat_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            let (mount, name) = match controllers {
                "" => (root.to_owned(), "memory.max"),
                _ if controllers.split(',').any(|c| c == "memory") => {
                    (root.join("memory"), "memory.limit_in_bytes")
                }
                _ => return Vec::new(),
            };
            let path = Path::new(path.trim_start_matches('/'));
            let groups = path.ancestors();
            groups.map(|group| mount.join(group).join(name)).collect()
        });
        let limits = files.filter_map(|file| {
            let bytes = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            (bytes < NONE).then_some(Limit { bytes, file })
        });
        limits.min_by_key(|limit| limit.bytes)
    }
}

/// Bytes that pipelines take in main memory, as far as that is known before they are loaded. What a network needs while it runs is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Weights that are loaded at the start and stay.
    pub weights: u64,
    /// Weights that are loaded when a request asks for them, or give way to others.
    pub on_demand: u64,
    /// The inputs of one largest batch of each module.
    pub batches: u64,
    /// What may be held for clients.
    pub clients: u64,
}

impl Need {
    /// What the modules that this process `runs` of the pipelines take. With `gives_way` no weights stay for good.
    pub fn of(
        all: &[LoadedPipeline],
        runs: &dyn Fn(&Pipeline, &Module) -> bool,
        gives_way: bool,
        clients: u64,
    ) -> Self {
        let mut need = Need {
            clients,
            ..Need::default()
        };
        // Each file once a device: modules may share weights.
        let mut files: BTreeMap<(String, PathBuf), (u64, bool)> = BTreeMap::new();
        for loaded in all {
            let modules = loaded.pipeline.modules.iter();
            for module in modules.filter(|m| runs(&loaded.pipeline, m)) {
                let devices = module.devices.iter().map(|name| resolve_device(name));
                for device in devices.filter(|device| device_kind(device) == "cpu") {
                    let side = module.variants.iter().filter_map(|v| v.input).max();
                    let side = u64::from(side.unwrap_or(0));
                    need.batches += u64::from(module.batch.max) * side * side * PIXEL_BYTES;
                    for (file, stays) in weights(module) {
                        let file = loaded.base_dir().join(file);
                        let bytes = weights_bytes(&file).unwrap_or(0);
                        let known = files.entry((device.clone(), file)).or_default();
                        *known = (bytes, known.1 || (stays && !gives_way));
                    }
                }
            }
        }
        for (bytes, stays) in files.into_values() {
            match stays {
                true => need.weights += bytes,
                false => need.on_demand += bytes,
            }
        }
        need
    }

    fn total(&self) -> u64 {
        let parts = [self.weights, self.on_demand, self.batches, self.clients];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// What is needed, in a line, and whether that is within the limit.
    ///
    /// # Errors
    /// When the weights alone are above the limit: then loading them would end the process.
    pub fn judge(&self, limit: Option<&Limit>) -> Result<String, String> {
        let mut line = format!("memory: {} of weights", size(self.weights));
        if self.on_demand > 0 {
            let _ = write!(line, ", up to {} more on demand", size(self.on_demand));
        }
        let (batches, clients) = (size(self.batches), size(self.clients));
        let _ = write!(
            line,
            ", {batches} of inputs in batches, up to {clients} for clients (--memory), beside what networks need while they run"
        );
        let Some(Limit { bytes, file }) = limit else {
            return Ok(line);
        };
        let (allowed, file) = (size(*bytes), file.display());
        if self.weights > *bytes {
            return Err(format!(
                "the weights take {} of memory, and this process may take {allowed} ({file}): it would be killed while they are \
                 loaded; raise the limit, or serve smaller models",
                size(self.weights)
            ));
        }
        if self.total() > *bytes {
            return Ok(format!(
                "warning: {line}: {} in all, and this process may take {allowed} ({file}): it would be killed without a word; raise \
                 the limit, or lower --memory",
                size(self.total())
            ));
        }
        let _ = write!(line, "; this process may take {allowed} ({file})");
        Ok(line)
    }
}

/// The model files of a module, and whether their weights stay in memory.
fn weights(module: &Module) -> Vec<(&str, bool)> {
    if let Some(family) = &module.family {
        return family.members.iter().map(|m| (&*m.file, false)).collect();
    }
    let served = module.served();
    let variants = module.variants.iter().enumerate();
    variants.map(|(i, v)| (&*v.model, i == served)).collect()
}

/// In whole MiB, or in KiB below one.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 MiB".to_owned(),
        1..0x10_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn lowest(root: &tempfile::TempDir, groups: &str) -> Option<(u64, String)> {
        let limit = Limit::lowest(groups, root.path())?;
        let file = limit.file.strip_prefix(root.path()).unwrap();
        Some((limit.bytes, file.display().to_string()))
    }

    #[test]
    fn the_lowest_limit_of_all_ancestors_holds() {
        let two = tree(&[
            ("pods/one/memory.max", "max\n"),
            ("pods/memory.max", "1048576\n"),
            ("memory.max", "2097152\n"),
        ]);
        let found = lowest(&two, "0::/pods/one\n");
        assert_eq!(found, Some((MIB, "pods/memory.max".to_owned())));
        assert_eq!(
            lowest(&two, "0::/\n"),
            Some((2 * MIB, "memory.max".to_owned()))
        );
        assert_eq!(lowest(&tree(&[]), "0::/pods/one\n"), None);

        let one = tree(&[
            (
                "memory/docker/7/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("memory/docker/memory.limit_in_bytes", "4194304\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let groups = "7:cpu,cpuacct:/docker/7\n4:memory:/docker/7\n0::/docker/7\n";
        let file = "memory/docker/memory.limit_in_bytes".to_owned();
        assert_eq!(lowest(&one, groups), Some((4 * MIB, file)));

        // The path is that of the host.
        let inside = tree(&[("memory/memory.limit_in_bytes", "1048576\n")]);
        let file = "memory/memory.limit_in_bytes".to_owned();
        assert_eq!(lowest(&inside, "4:memory:/docker/7\n"), Some((MIB, file)));
    }

    #[test]
    fn what_cannot_fit_is_an_error_and_what_may_not_a_warning() {
        let need = Need {
            weights: 100 * MIB,
            on_demand: 0,
            batches: MIB / 2,
            clients: 256 * MIB,
        };
        let of = |mib: u64| Limit {
            bytes: mib * MIB,
            file: PathBuf::from("memory.max"),
        };
        let line = "memory: 100 MiB of weights, 512 KiB of inputs in batches, up to 256 MiB for clients (--memory), beside what networks \
                    need while they run";
        assert_eq!(need.judge(None).unwrap(), line);
        assert_eq!(
            need.judge(Some(&of(512))).unwrap(),
            format!("{line}; this process may take 512 MiB (memory.max)")
        );
        let warning = need.judge(Some(&of(300))).unwrap();
        let says = format!(
            "warning: {line}: 357 MiB in all, and this process may take 300 MiB (memory.max): it would"
        );
        assert!(warning.starts_with(&says), "{warning}");
        let error = need.judge(Some(&of(99))).unwrap_err();
        let says = "the weights take 100 MiB of memory, and this process may take 99 MiB (memory.max): it would be killed";
        assert!(error.starts_with(says), "{error}");
    }

    #[test]
    fn weights_are_those_of_the_files() {
        let folder = tree(&[("a.pt", "123"), ("b.pt", "12345"), ("f/c.pt", "1234567")]);
        let text = "{ name: p, slo: 1s, modules: { \
                    a: { op: classifier, variants: [{ model: a.pt, input: 32 }, { model: b.pt, input: 64 }], inputs: { image: \
                    $source.frame }, device: cpu, batch: { max: 2 } }, \
                    b: { op: classifier, variants: [{ model: b.pt, input: 32 }], inputs: { image: $source.frame }, device: cpu, \
                    batch: { max: 1 } }, \
                    c: { op: classifier, variants: [{ model: a.pt, input: 64 }], inputs: { image: $source.frame }, device: emulated } }, \
                    outputs: { labels: $a.labels } }";
        let file = folder.path().join("p.yaml");
        std::fs::write(&file, text).unwrap();
        let library = spillgate_modules::library();
        let loaded = crate::files::load(&file, &library.catalog()).unwrap();
        let all = [loaded];
        // `b.pt` is the served variant of both.
        let need = Need::of(&all, &|_, _| true, false, 7);
        let batches = (2 * 64 * 64 + 32 * 32) * PIXEL_BYTES;
        let expected = Need {
            weights: 5,
            on_demand: 3,
            batches,
            clients: 7,
        };
        assert_eq!(need, expected);
        let placed = Need::of(&all, &|_, _| true, true, 7);
        assert_eq!((placed.weights, placed.on_demand), (0, 8));
        let other = Need::of(&all, &|_, m| m.name == "c", false, 7);
        assert_eq!((other.weights, other.on_demand, other.batches), (0, 0, 0));
    }
}
