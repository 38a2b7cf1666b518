//! Cores of the machine that the executing threads of devices have for themselves. Where threads share cores, one that wakes up may take that
//! of a batch, and a batch may go on with another core's caches: it takes longer than expected.

use std::io;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Why threads cannot keep away from cores.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The process may not run there, or there is no such core.
    #[error(
        "this process may not run on core {core}: give one of {}",
        listed(allowed)
    )]
    NotAllowed {
        /// The core.
        core: usize,
        /// Those on which it may.
        allowed: Vec<usize>,
    },
    /// All other threads of the process need one, too.
    #[error(
        "no core is left for the other threads of the process: it may run on {} only",
        listed(allowed)
    )]
    NoneLeft {
        /// Those on which it may run.
        allowed: Vec<usize>,
    },
    /// The system says no.
    #[error("cores cannot be chosen: {0}")]
    System(#[from] io::Error),
}

/// The calling thread.
const THIS: Pid = Pid::from_raw(0);

/// All threads of the process keep away from these cores, and those that they start. To be called before threads start others.
///
/// # Errors
/// When a core is none of the process's, or none is left.
pub fn leave(cores: impl IntoIterator<Item = usize>) -> Result<(), CoreError> {
    let tasks = std::fs::read_dir("/proc/self/task")?;
    let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    keep_away(ids.map(Pid::from_raw), cores)
}

fn keep_away(
    threads: impl IntoIterator<Item = Pid>,
    cores: impl IntoIterator<Item = usize>,
) -> Result<(), CoreError> {
    let allowed = sched_getaffinity(THIS).map_err(io::Error::from)?;
    let mut rest = allowed;
    for core in cores {
        if !allowed.is_set(core).unwrap_or(false) {
            return Err(CoreError::NotAllowed {
                core,
                allowed: numbers(&allowed).collect(),
            });
        }
        rest.unset(core).map_err(io::Error::from)?;
    }
    if numbers(&rest).next().is_none() {
        return Err(CoreError::NoneLeft {
            allowed: numbers(&allowed).collect(),
        });
    }
    for thread in threads {
        match sched_setaffinity(thread, &rest) {
            // It has ended.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(())
}

/// The calling thread executes the batches of a device: it stays on the core that is given for that.
pub(crate) fn execute_on(core: Option<usize>, device: &str) {
    if let Some(core) = core
        && let Err(error) = stay_on(core)
    {
        tracing::warn!(device, core, %error, "batches execute on any core, since this one cannot be chosen");
    }
}

fn stay_on(core: usize) -> Result<(), Errno> {
    let mut only = CpuSet::new();
    only.set(core)?;
    sched_setaffinity(THIS, &only)
}

fn numbers(cores: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::count()).filter(|core| cores.is_set(*core).unwrap_or(false))
}

fn listed(cores: &[usize]) -> String {
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    cores.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own: what it may do ends with it.
    fn apart<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    fn leave_alone(cores: impl IntoIterator<Item = usize>) -> Result<(), CoreError> {
        keep_away([THIS], cores)
    }

    fn mine() -> Vec<usize> {
        numbers(&sched_getaffinity(THIS).unwrap()).collect()
    }

    #[test]
    fn a_thread_and_those_that_it_starts_keep_away_from_a_core_on_which_another_stays() {
        let all = mine();
        let [core, rest @ ..] = all.as_slice() else {
            panic!("the test runs somewhere");
        };
        if rest.is_empty() {
            let none_left = apart(|| leave_alone([*core]));
            assert!(matches!(none_left, Err(CoreError::NoneLeft { .. })));
            return;
        }
        apart(|| {
            leave_alone([*core]).unwrap();
            assert_eq!(mine(), rest);
            apart(|| {
                assert_eq!(mine(), rest, "it started with what its parent may do");
                stay_on(*core).unwrap();
                assert_eq!(mine(), [*core]);
            });
        });
        assert_eq!(mine(), all, "others are as they were");
    }

    #[test]
    fn a_core_that_is_not_there_and_the_last_one_are_errors_that_name_what_there_is() {
        let all = mine();
        let there = listed(&all);
        let far = apart(|| leave_alone([CpuSet::count() - 1]))
            .unwrap_err()
            .to_string();
        assert!(far.ends_with(&format!("give one of {there}")), "{far}");
        let beyond = apart(|| leave_alone([usize::MAX]));
        assert!(matches!(
            beyond,
            Err(CoreError::NotAllowed {
                core: usize::MAX,
                ..
            })
        ));
        let none = apart(|| leave_alone(all)).unwrap_err().to_string();
        assert!(
            none.contains("no core is left") && none.contains(&there),
            "{none}"
        );
    }
}
