//! Cores that devices have for themselves.

use nix::sched::{CpuSet, sched_getaffinity};

use super::*;

/// The cores on which a thread may run; `None`: it has ended.
fn cores_of(thread: Pid) -> Option<Vec<usize>> {
    let allowed = sched_getaffinity(thread).ok()?;
    let cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap());
    Some(cores.collect())
}

/// Those of this process, and so of those that it starts.
fn cores() -> Vec<usize> {
    cores_of(Pid::from_raw(0)).unwrap()
}

/// The threads of a process by name, with the cores on which each may run.
fn threads(of: u32) -> Vec<(String, Vec<usize>)> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).unwrap();
    let one = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let id = task.file_name().to_str()?.parse().ok()?;
        Some((name.trim().to_owned(), cores_of(Pid::from_raw(id))?))
    };
    tasks.filter_map(|task| one(task.ok()?)).collect()
}

fn folder(name: &str) -> Folder {
    let folder = Folder::new(&format!("cores-{name}"), "default_model: a");
    folder.member("a", &model("", 0));
    folder
}

#[test]
fn batches_execute_on_the_core_of_their_device_and_nothing_else_does() {
    let all = cores();
    let [core, rest @ ..] = all.as_slice() else {
        panic!("the test runs somewhere");
    };
    if rest.is_empty() {
        let text = refused(&["--core", &format!("cpu={core}")]);
        assert!(
            text.contains("no core is left for the other threads"),
            "{text}"
        );
        return;
    }
    let core_flag = format!("cpu={core}");
    for placing in [&[][..], &["--device", "cpu,memory=16MiB"]] {
        let folder = folder(&format!("own-{}", placing.len()));
        let served = folder.serve_with(&[&["--core", core_flag.as_str()], placing].concat());
        let check = || {
            served.ask_in_the_end("a").unwrap();
            let threads = threads(served.child.as_ref().unwrap().id());
            let executes = |name: &str| name.starts_with("device cpu");
            let (own, others): (Vec<_>, Vec<_>) =
                threads.into_iter().partition(|(name, _)| executes(name));
            assert!(!own.is_empty() && others.len() > 3, "{others:?}");
            for (name, cores) in own {
                assert_eq!(cores, [*core], "{name}");
            }
            for (name, cores) in others {
                assert_eq!(cores, rest, "{name}");
            }
        };
        check();
        // Threads that are started for files that are read again keep to it, too.
        folder.member("b", &model("", 1));
        served.read_again();
        check();
    }
}

#[test]
fn a_core_that_cannot_be_had_is_an_error_at_the_start_that_says_what_can() {
    let all = cores();
    let far = CpuSet::count() - 1;
    let (first, listed) = (all[0], all.iter().map(usize::to_string).collect::<Vec<_>>());
    let not_allowed = format!(
        "error: this process may not run on core {far}: give one of {}",
        listed.join(", ")
    );
    let shared = format!(
        "error: core {first} is for both cpu:0 and cuda:0: give each device a core of its own"
    );
    let two =
        "error: cpu:0 has core 0 and core 1: its batches execute one after another, so give it one";
    let unknown =
        "error: cuda:7: a core is given for it, but no module runs on it; modules run on cpu:0";
    let (cpu, cuda) = (format!("cpu={first}"), format!("cuda={first}"));
    let (far, elsewhere) = (format!("cpu={far}"), format!("cuda:7={first}"));
    let mut cases = vec![
        (vec!["--core", &far], not_allowed.as_str()),
        (vec!["--core", &cpu, "--core", &cuda], &shared),
        (vec!["--core", "cpu=0,cpu=1"], two),
        (
            vec!["--core", "cpu"],
            "give a device and a core of the machine, like cpu=1",
        ),
    ];
    if all.len() > 1 {
        cases.push((vec!["--core", &elsewhere], unknown));
    }
    for (arguments, expected) in cases {
        let text = refused(&arguments);
        assert!(text.contains(expected), "{text}");
    }
}

/// What a server says that does not start.
fn refused(arguments: &[&str]) -> String {
    let folder = folder(&format!("refused-{}", arguments.join("-")));
    let mut command = folder.command("serve");
    let none = ["--listen", "127.0.0.1:0", "--no-admin"];
    let output = command.args(none).args(arguments).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}
