//! The folder of a set goes away while the set runs.

use super::*;

// Over five seconds: four processes start, and two of them once more.
#[test]
fn children_are_started_again_when_the_folder_of_their_files_and_logs_is_gone() {
    let mut up = Up::start("folder", &[]);
    let set = up.folder.join("set");
    for name in ["a-0", "gateway-0"] {
        // It is the folder in which `up` was started, too.
        std::fs::remove_dir_all(&set).unwrap();
        send(up.pid(name), Signal::SIGKILL);
        up.waits_for(&format!("{name}: ended"));
        up.waits_for(&format!("{name}: ready"));
    }
    for file in ["profiles.yaml", "gateway-0.log"] {
        assert!(set.join(file).exists(), "{file}");
    }
    up.bench(0, 20, 1, || {}).completes(0.9);
}
