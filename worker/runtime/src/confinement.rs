//! What threads that load models, run them or decode pictures may open (landlock). Code of a model that opens a file, and a decoder that is made to,
//! find nothing but the folders of models and what libraries and drivers need; nothing can be written, made or removed, and no port
//! be reached.
//!
//! landlock confines a thread and those that it starts. The other threads of the process are as free as before, so whoever starts
//! programs does so from one of those.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, path_beneath_rules,
};
use spillgate_backend::operator::OperatorError;

/// The newest rules that are asked for; an older kernel keeps those that it knows.
const RULES: ABI = ABI::V5;

/// Libraries that are opened as they are needed: parts of libtorch, and of a GPU's driver.
const LIBRARIES: [&str; 8] = [
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/cuda",
];

/// What the machine is, and chance.
const MACHINE: [&str; 7] = [
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/sys/vm",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
];

/// Where a GPU's driver looks for its devices.
const DRIVER: [&str; 6] = [
    "/proc/devices",
    "/proc/driver/nvidia",
    "/proc/modules",
    "/sys/bus/pci",
    "/sys/class/drm",
    "/sys/module",
];

/// What threads may open. To be made once, and entered by each thread.
pub struct Confinement(RulesetCreated);

impl Confinement {
    /// Threads read what lies in these folders. A folder that is not there is left out.
    ///
    /// # Errors
    /// The system's text, where it has no such rules.
    pub fn of(folders: &[PathBuf]) -> Result<Self, String> {
        let libraries = LIBRARIES.map(PathBuf::from).into_iter();
        let read = folders
            .iter()
            .cloned()
            .chain(libraries)
            .chain(MACHINE.map(PathBuf::from))
            .chain(beside_the_program());
        let drivers = DRIVER.map(PathBuf::from).into_iter();
        let devices = gpu_devices();
        let drivers = drivers.filter(|_| !devices.is_empty());
        let reading = AccessFs::ReadFile | AccessFs::ReadDir;
        // A driver is spoken to through its devices.
        let using: BitFlags<AccessFs> = reading | AccessFs::WriteFile | AccessFs::IoctlDev;
        let rules = Ruleset::default()
            .handle_access(AccessFs::from_all(RULES))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(RULES)))
            .and_then(|rules| rules.create())
            .and_then(|rules| rules.add_rules(path_beneath_rules(read.chain(drivers), reading)))
            .and_then(|rules| rules.add_rules(path_beneath_rules(devices, using)));
        rules.map(Confinement).map_err(|e| e.to_string())
    }

    /// Confines the calling thread and those that it starts from now on. It cannot be undone.
    ///
    /// # Errors
    /// The system's text, where it does not.
    pub fn enter(&self) -> Result<(), String> {
        let rules = self.0.try_clone().map_err(|e| e.to_string())?;
        let status = rules.restrict_self().map_err(|e| e.to_string())?;
        match status.ruleset {
            RulesetStatus::NotEnforced => Err("this system has no landlock".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Folders of libtorch, where the program brings it, and what the dynamic linker is told.
fn beside_the_program() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(paths) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&paths).filter(|path| path.is_absolute()));
    }
    // Where the parts lie that were opened at the start.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let opened = maps
        .lines()
        .filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_libtorch = |path: &&Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libtorch") || name.starts_with("libc10"))
    };
    let folder = |path: &Path| Some(path.parent()?.to_owned());
    folders.extend(opened.filter(is_libtorch).filter_map(folder));
    folders.sort_unstable();
    folders.dedup();
    folders
}

/// The devices of NVIDIA's driver, which are here if it is.
fn gpu_devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_gpu = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("nvidia"))
    };
    entries.map(|entry| entry.path()).filter(is_gpu).collect()
}

/// See [`confine_with`].
static CONFINEMENT: OnceLock<Confinement> = OnceLock::new();

/// From now on each thread of this process that loads models, runs them or decodes pictures opens only what lies in these folders, and what
/// libraries need. Only the first call counts.
///
/// # Errors
/// Why the system does not confine threads; they go on without.
pub fn confine_with(folders: &[PathBuf]) -> Result<(), String> {
    let made = Confinement::of(folders)?;
    // Whether the system really does it is known once a thread has asked.
    let tried = std::thread::scope(|scope| scope.spawn(|| made.enter()).join());
    tried.unwrap_or_else(|_| Err("the thread that tried it ended".to_owned()))?;
    let _ = CONFINEMENT.set(made);
    Ok(())
}

/// Confines the calling thread, if threads of this process are ([`confine_with`]).
///
/// # Errors
/// When the system no longer does it: the thread must not go on.
pub fn enter() -> Result<(), OperatorError> {
    let entered = CONFINEMENT.get().map_or(Ok(()), Confinement::enter);
    entered.map_err(|why| OperatorError::Other(format!("a thread cannot be confined: {why}")))
}

/// Runs this on a thread of its own that is confined, and waits for it. A panic goes on here.
///
/// # Errors
/// When there is no such thread, or what `run` says.
pub fn run<T: Send, E: From<OperatorError> + Send>(
    run: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("models".to_owned());
        let thread = thread.spawn_scoped(scope, || {
            enter()?;
            run()
        });
        let thread = thread.map_err(|e| OperatorError::Other(format!("no thread: {e}")))?;
        let ended = thread.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_confined_thread_reads_its_folders_and_writes_nothing_and_the_others_stay_free() {
        let folder =
            std::env::temp_dir().join(format!("spillgate-confined-{}", std::process::id()));
        let (models, secret) = (folder.join("models"), folder.join("secret"));
        fs::create_dir_all(&models).unwrap();
        fs::write(models.join("a.pt"), "model").unwrap();
        fs::write(&secret, "secret").unwrap();
        // A link in the folder leads to where it points.
        std::os::unix::fs::symlink(&secret, models.join("link")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let confinement = match Confinement::of(std::slice::from_ref(&models)) {
            Ok(confinement) => confinement,
            Err(why) => return println!("skipped: {why}"),
        };
        let inside = || {
            confinement
                .enter()
                .map_err(|why| println!("skipped: {why}"))
                .ok()?;
            let read = |path: &Path| fs::read_to_string(path).map_err(|e| e.kind());
            let denied = Err(io::ErrorKind::PermissionDenied);
            assert_eq!(read(&models.join("a.pt")), Ok("model".to_owned()));
            assert_eq!(read(&secret), denied);
            assert_eq!(read(&models.join("link")), denied);
            assert_eq!(read(&models.join("../secret")), denied);
            assert_eq!(read(Path::new("/etc/hostname")), denied);
            assert_eq!(read(Path::new("/proc/self/environ")), denied);
            assert!(File::create(models.join("new")).is_err());
            assert!(
                OpenOptions::new()
                    .write(true)
                    .open(models.join("a.pt"))
                    .is_err()
            );
            assert!(fs::remove_file(models.join("a.pt")).is_err());
            assert!(fs::rename(models.join("a.pt"), models.join("b.pt")).is_err());
            assert!(fs::create_dir(folder.join("d")).is_err());
            assert!(fs::read_dir(&folder).is_err());
            assert!(TcpStream::connect(address).is_err());
            // What it starts is confined, too.
            let child = std::thread::scope(|s| s.spawn(|| read(&secret)).join().unwrap());
            assert_eq!(child, denied);
            Some(())
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap());
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        fs::remove_dir_all(&folder).unwrap();
    }
}
