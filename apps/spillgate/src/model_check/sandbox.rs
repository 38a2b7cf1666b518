//! The limits of the process that checks a model: little memory and time, no file but those of models, none written, no network, no other
//! program. A limit that the system does not offer is reported and left out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule,
};
use spillgate_worker::confinement::Confinement;

/// Most descriptors: standard ones, the model file, what libtorch looks up in /proc and /sys.
pub(crate) const DESCRIPTORS_MAX: u64 = 64;

/// The limits that hold, and those that the system does not offer.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) by: Vec<String>,
    pub(super) lacking: Vec<String>,
}

impl Held {
    fn note(&mut self, what: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.by.push(what.to_owned()),
            Err(error) => self.lacking.push(format!("{what} ({error})")),
        }
    }
}

/// Confines this process, which must have one thread; threads that it starts later are confined, too. `memory` is in
/// bytes beyond the present use, `seconds` of processor time from its start. It reads what lies in these
/// folders, and what libraries need.
pub(super) fn enter(memory: u64, seconds: u64, folders: &[PathBuf]) -> Held {
    let mut held = Held::default();
    // When its parent is gone, no process waits for the answer.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let limits = address_space().and_then(|now| limits(now.saturating_add(memory), seconds));
    held.note("memory, time and files", limits);
    held.note("no network", alone());
    held.note("no new privileges", prctl::set_no_new_privs().map_err(text));
    let files = Confinement::of(folders).and_then(|files| files.enter());
    held.note(
        "no files but those of models, none written (landlock)",
        files,
    );
    held.note("no other system calls (seccomp)", no_calls());
    held
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Bytes of address space that this process has.
fn address_space() -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(text)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or("no VmSize in /proc/self/status")? << 10)
}

fn limits(address_space: u64, seconds: u64) -> Result<(), String> {
    let limits = [
        (Resource::RLIMIT_AS, address_space, address_space),
        // The first signal ends the process; a second later nothing else is possible.
        (Resource::RLIMIT_CPU, seconds, seconds + 1),
        (Resource::RLIMIT_FSIZE, 0, 0),
        (Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX, DESCRIPTORS_MAX),
        (Resource::RLIMIT_CORE, 0, 0),
    ];
    for (resource, most, hard) in limits {
        setrlimit(resource, most, hard).map_err(text)?;
    }
    Ok(())
}

/// A network of its own, in which there is nothing; without privileges in a user's namespace.
fn alone() -> Result<(), String> {
    let user = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    unshare(CloneFlags::CLONE_NEWNET)
        .or_else(|_| unshare(user))
        .map_err(text)
}

/// System calls that no model needs fail: sockets, other programs, writing by path, ways around this filter.
fn no_calls() -> Result<(), String> {
    let never = [
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_writev,
        libc::SYS_io_uring_setup,
        libc::SYS_bpf,
        libc::SYS_mount,
        libc::SYS_keyctl,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_openat2,
        libc::SYS_truncate,
        libc::SYS_unlinkat,
        libc::SYS_renameat2,
        libc::SYS_mkdirat,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_fchmodat,
        libc::SYS_fchownat,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        never.into_iter().map(|call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    for call in [
        libc::SYS_creat,
        libc::SYS_unlink,
        libc::SYS_rename,
        libc::SYS_renameat,
        libc::SYS_mkdir,
        libc::SYS_rmdir,
        libc::SYS_link,
        libc::SYS_symlink,
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_fork,
        libc::SYS_vfork,
    ] {
        rules.insert(call, Vec::new());
    }
    rules.insert(libc::SYS_openat, writing(2).map_err(text)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, writing(1).map_err(text)?);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().map_err(text)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(text)?;
    seccompiler::apply_filter(&program).map_err(text)
}

/// Opening for writing, by the flags in this argument.
fn writing(argument: u8) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let kinds = [
        (libc::O_ACCMODE, libc::O_WRONLY),
        (libc::O_ACCMODE, libc::O_RDWR),
        (libc::O_CREAT, libc::O_CREAT),
        (libc::O_TRUNC, libc::O_TRUNC),
    ];
    let rule = |(mask, value): (i32, i32)| {
        let op = Op::MaskedEq(mask as u64);
        let condition = SeccompCondition::new(argument, Len::Dword, op, value as u64)?;
        SeccompRule::new(vec![condition])
    };
    kinds.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;

    use super::*;

    /// Set in the process that is confined.
    const CONFINED: &str = "SPILLGATE_TEST_CONFINED";

    /// The test runs itself in a process of its own, because a confinement cannot be undone.
    #[test]
    fn a_confined_process_reads_and_does_nothing_else() {
        if std::env::var_os(CONFINED).is_none() {
            let name =
                "model_check::sandbox::tests::a_confined_process_reads_and_does_nothing_else";
            let mut again = Command::new(std::env::current_exe().unwrap());
            let output = again
                .args(["--exact", name, "--nocapture"])
                .env(CONFINED, "1")
                .output();
            let output = output.unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success() && text.contains("confined"),
                "{output:?}"
            );
            return;
        }
        let folder = std::env::temp_dir();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held = enter(256 << 20, 60, &[]);
        println!("confined {held:?}");
        let is_held_by = |what: &str| held.by.iter().any(|by| by.contains(what));
        assert!(is_held_by("memory, time and files"), "{held:?}");
        assert!(
            std::fs::read("/proc/cpuinfo").is_ok(),
            "what libtorch looks up"
        );
        if is_held_by("landlock") {
            assert!(std::fs::read("/etc/hostname").is_err());
        }
        let mut memory: Vec<u8> = Vec::new();
        assert!(
            memory.try_reserve_exact(1 << 30).is_err(),
            "memory is limited"
        );
        if is_held_by("landlock") || is_held_by("seccomp") {
            let path = folder.join(format!("spillgate-confined-{}", std::process::id()));
            assert!(File::create(&path).is_err() && !path.exists());
            assert!(OpenOptions::new().write(true).open("/dev/null").is_err());
            assert!(std::fs::create_dir(&path).is_err());
        }
        if is_held_by("seccomp") {
            assert!(TcpStream::connect(address).is_err());
            assert!(UdpSocket::bind("127.0.0.1:0").is_err());
            assert!(Command::new("/bin/true").status().is_err());
        }
    }
}
