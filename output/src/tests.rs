use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt, symlink};

use super::*;

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_is_the_old_one_until_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.yaml");
    std::fs::write(&path, "old").unwrap();
    let mut output = Output::begin(&path).unwrap();
    output.write_all(b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    drop(output);
    assert_eq!(names(folder.path()), ["p.yaml"], "nothing stays beside");
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    write(&path, "new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(names(folder.path()), ["p.yaml"]);
}

#[test]
fn rights_and_links_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("p.yaml"), folder.path().join("link"));
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    symlink("p.yaml", &link).unwrap();
    write(&link, "new").unwrap();
    assert!(link.is_symlink());
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
}

#[test]
fn what_cannot_be_written_is_found_at_the_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let told = |path: &Path| check(path).unwrap_err().to_string();
    let at = folder.path().display();
    assert_eq!(
        told(folder.path()),
        format!("cannot write {at}: it is a folder; name a file in it")
    );
    let gone = told(&folder.path().join("gone/p.yaml"));
    let expected = format!(
        "cannot write {at}/gone/p.yaml: it is written beside, in {at}/gone, and then renamed: No such file or directory"
    );
    assert!(gone.starts_with(&expected), "{gone}");
    symlink("nothing", folder.path().join("link")).unwrap();
    let dangling = told(&folder.path().join("link"));
    assert!(dangling.contains("No such file"), "{dangling}");
    assert_eq!(names(folder.path()), ["link"]);
}

#[test]
fn devices_are_written_straight_to() {
    write("/dev/null", "gone").unwrap();
    let error = write("/dev/full", "too much").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot write /dev/full: No space left"),
        "{error}"
    );
}

#[test]
fn a_pipe_is_written_to_by_the_link_that_leads_to_it() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    // As /dev/stdout is one, in a container.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    assert!(Path::new(&path).canonicalize().is_err(), "it has no name");
    write(&path, "through").unwrap();
    drop(writer);
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, "through");
}

#[test]
fn a_name_without_a_folder_is_in_the_working_folder() {
    assert_eq!(folder_of(Path::new("p.yaml")), Path::new("."));
    assert_eq!(folder_of(Path::new("a/p.yaml")), Path::new("a"));
}
