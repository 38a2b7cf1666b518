//! The parts that a running server reads again, on SIGHUP or when their files have changed: tokens, certificates, the topology.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;

/// Reads something anew. Returns a line about the result, or the reason why the earlier content stays.
type Reading = Box<dyn Fn() -> Result<String, String> + Send + Sync>;

/// The name of a part that was reloaded, and the result.
pub type Reloaded = (String, Result<String, String>);

/// What tells one content of a file from another without reading it: the file, its size and its time. `None`: it is not
/// there.
type Stamp = Option<(u64, u64, Option<SystemTime>)>;

struct Reloadable {
    name: String,
    read: Reading,
    files: Vec<PathBuf>,
    stamps: Mutex<Stamps>,
}

/// What was seen of a part's files.
#[derive(Default)]
struct Stamps {
    /// When they were read last.
    read: Vec<Stamp>,
    /// At the last look.
    seen: Vec<Stamp>,
}

/// All that can be reloaded, in the order in which it was added. It is made before anything is read.
pub struct Reload {
    began: SystemTime,
    parts: Vec<Reloadable>,
}

impl Default for Reload {
    fn default() -> Self {
        Reload {
            began: SystemTime::now(),
            parts: Vec::new(),
        }
    }
}

impl Reload {
    /// Adds a part, which was read since this was made. `read` is called outside of the async threads: it may read files. If it fails, the
    /// earlier content stays, and it returns the reason. The files are those that are watched.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) {
        let now = stamps(&files);
        // What was written since then may have been read before.
        let is_newer = |stamp: &(u64, u64, Option<SystemTime>)| stamp.2 >= Some(self.began);
        let known = match now.iter().flatten().any(is_newer) {
            true => Vec::new(),
            false => now.clone(),
        };
        self.parts.push(Reloadable {
            name: name.into(),
            read: Box::new(read),
            files,
            stamps: Mutex::new(Stamps {
                read: known,
                seen: now,
            }),
        });
    }

    /// Reloads every part, also after one that failed.
    pub fn run(&self) -> Vec<Reloaded> {
        self.parts.iter().map(Reloadable::reload).collect()
    }

    /// Looks at the watched files, and reloads the parts whose files have changed since they were read. A part is reloaded
    /// once its files are as they were at the look before: a certificate and its key may be written one after the other.
    pub fn look(&self) -> Vec<Reloaded> {
        let changed = self.parts.iter().filter(|part| part.has_changed());
        changed.map(Reloadable::reload).collect()
    }
}

impl Reloadable {
    fn reload(&self) -> Reloaded {
        // Before they are read: what changes meanwhile is read again.
        let now = stamps(&self.files);
        self.stamps.lock().read = now;
        (self.name.clone(), (self.read)())
    }

    fn has_changed(&self) -> bool {
        let now = stamps(&self.files);
        let mut stamps = self.stamps.lock();
        let has_settled = now == stamps.seen;
        let is_new = now != stamps.read;
        stamps.seen = now;
        is_new && has_settled
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        // A mounted secret is a link to a folder that is replaced: what is at its end counts.
        let found = std::fs::metadata(Path::new(file)).ok()?;
        Some((found.ino(), found.len(), found.modified().ok()))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn each_part_is_reloaded_and_a_failure_stops_no_other() {
        let mut reload = Reload::default();
        assert!(reload.run().is_empty());
        reload.add("tokens", Vec::new(), || Err("gone".to_owned()));
        reload.add("certificates", Vec::new(), || Ok("two".to_owned()));
        let expected = [
            ("tokens".to_owned(), Err("gone".to_owned())),
            ("certificates".to_owned(), Ok("two".to_owned())),
        ];
        assert_eq!(reload.run(), expected);
        assert!(reload.look().is_empty(), "they have no files");
    }

    #[test]
    fn a_part_whose_files_change_is_reloaded_once_they_have_settled() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // As Kubernetes mounts a secret: a link to a folder of the present contents.
        for (version, text) in [("1", "old"), ("2", "new, and longer")] {
            std::fs::create_dir(at(version)).unwrap();
            std::fs::write(at(version).join("key"), text).unwrap();
        }
        std::os::unix::fs::symlink(at("1"), at("data")).unwrap();
        std::fs::write(at("cert"), "old").unwrap();
        let files = vec![at("cert"), at("data").join("key")];
        // The time of a file may be that of the last tick of the system's clock.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut reload = Reload::default();
        let times = Arc::new(AtomicUsize::new(0));
        let counted = times.clone();
        reload.add("certificates", files, move || {
            Ok(counted.fetch_add(1, Ordering::Relaxed).to_string())
        });
        reload.add("tokens", Vec::new(), || panic!("it has not changed"));
        let looks = |n: usize| (0..n).map(|_| reload.look().len()).collect::<Vec<_>>();
        assert_eq!(looks(2), [0, 0]);
        std::fs::write(at("cert"), "new, and longer").unwrap();
        assert_eq!(looks(1), [0], "the key may follow");
        std::fs::remove_file(at("data")).unwrap();
        std::os::unix::fs::symlink(at("2"), at("data")).unwrap();
        assert_eq!(looks(3), [0, 1, 0]);
        std::fs::remove_file(at("cert")).unwrap();
        assert_eq!(looks(3), [0, 1, 0], "what is gone is told once");
        assert_eq!(times.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_is_written_while_a_server_starts_is_read_again() {
        let mut reload = Reload::default();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let file = tempfile::NamedTempFile::new().unwrap();
        reload.add("tokens", vec![file.path().to_owned()], || Ok(String::new()));
        assert_eq!((reload.look().len(), reload.look().len()), (1, 0));
    }
}
