//! How much memory of a device models take while they run, beside their weights, and how much it has (`native/memory.cpp`).

#![expect(unsafe_code, reason = "calls of C++ functions")]

use std::ffi::{c_char, c_int, c_void};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};

use tch::Device;

use crate::native::said;

unsafe extern "C" {
    fn spillgate_count_memory(gpu: bool, out: *mut *mut c_void) -> *mut c_char;
    fn spillgate_counted_memory(counting: *const c_void) -> u64;
    fn spillgate_count_memory_end(counting: *mut c_void);
    fn spillgate_gpu_memory(index: c_int, bytes: *mut u64) -> *mut c_char;
}

/// Counts what the thread that made it takes of a device's memory, until it is dropped. As it holds a pointer, it stays on its thread.
struct Counting(NonNull<c_void>);

impl Counting {
    fn new(device: Device) -> Option<Self> {
        let mut out = null_mut();
        // SAFETY: `out` is written before it returns null.
        said(unsafe { spillgate_count_memory(device.is_cuda(), &mut out) }).ok()?;
        NonNull::new(out).map(Counting)
    }

    /// The most bytes that were taken at the same time.
    fn most(&self) -> u64 {
        // SAFETY: it lives.
        unsafe { spillgate_counted_memory(self.0.as_ptr()) }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // SAFETY: nothing else holds it, and this is the thread that made it.
        unsafe { spillgate_count_memory_end(self.0.as_ptr()) }
    }
}

/// The most bytes of a device's memory that `run` takes at the same time, on this thread. `None` where libtorch counts nothing.
pub(super) fn taken_by(device: Device, run: &mut dyn FnMut()) -> Option<u64> {
    let counting = Counting::new(device);
    run();
    counting.map(|counting| counting.most())
}

/// Bytes of memory that a GPU has.
pub(super) fn of_gpu(index: usize) -> Option<u64> {
    let mut bytes = 0;
    let index = c_int::try_from(index).ok()?;
    // SAFETY: `bytes` is written before it returns null.
    said(unsafe { spillgate_gpu_memory(index, &mut bytes) }).ok()?;
    Some(bytes)
}

/// Bytes of memory that this process may have: all of the machine's, or what its control group allows.
pub(super) fn of_host() -> Option<u64> {
    let all = in_meminfo(&read_to_string("/proc/meminfo").ok()?)?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = in_cgroup(&groups).into_iter();
    let limits = limits.filter_map(|file| read_to_string(file).ok()?.trim().parse().ok());
    limits.chain([all]).min()
}

/// `MemTotal` in bytes.
fn in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// The files that may bound the memory of a process in these groups (cgroup v2): its own, and those around it.
fn in_cgroup(groups: &str) -> Vec<PathBuf> {
    let own = groups.lines().find_map(|l| l.strip_prefix("0::/"));
    let around = own.into_iter().flat_map(|own| Path::new(own).ancestors());
    let file = |group: &Path| Path::new("/sys/fs/cgroup").join(group).join("memory.max");
    around.map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Kind, Tensor};

    const MIB: u64 = 1 << 20;

    fn zeros(mib: i64) -> Tensor {
        Tensor::zeros([mib << 18], (Kind::Float, Device::Cpu))
    }

    #[test]
    fn the_most_that_is_taken_at_the_same_time_counts() {
        let most = taken_by(Device::Cpu, &mut || {
            // 3 MiB, then 6, then 4.
            let three = zeros(3);
            drop(zeros(3));
            let one = zeros(1);
            drop((three, one));
        });
        let most = most.expect("libtorch counts");
        assert!((6 * MIB..6 * MIB + 4096).contains(&most), "{most}");
    }

    #[test]
    fn another_device_and_other_times_do_not_count() {
        let on_gpu = taken_by(Device::Cuda(0), &mut || drop(zeros(1)));
        assert_eq!(on_gpu, Some(0));
        let kept = zeros(1);
        let freed = taken_by(Device::Cpu, &mut || ());
        assert_eq!(freed, Some(0));
        drop(kept);
    }

    #[test]
    fn a_panic_ends_the_count() {
        let panicked = std::panic::catch_unwind(|| {
            taken_by(Device::Cpu, &mut || {
                drop(zeros(1));
                panic!("as asked");
            })
        });
        assert!(panicked.is_err());
        assert_eq!(taken_by(Device::Cpu, &mut || ()), Some(0));
    }

    #[test]
    fn a_host_has_what_its_machine_and_its_control_groups_allow() {
        assert_eq!(
            in_meminfo("MemTotal:       24613412 kB\nMemFree: 1 kB\n"),
            Some(24_613_412 << 10)
        );
        assert_eq!(in_meminfo("MemFree: 1 kB\n"), None);
        let files = in_cgroup("1:cpu:/x\n0::/a/b\n");
        let expected = ["a/b/memory.max", "a/memory.max", "memory.max"];
        assert_eq!(files, expected.map(|f| Path::new("/sys/fs/cgroup").join(f)));
        assert!(in_cgroup("").is_empty());
        assert!(of_host().expect("a machine has memory") > 1 << 28);
    }
}
