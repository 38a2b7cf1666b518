//! Which files have one content, so that names of models that say the same share one model.
//!
//! PeerLinks to one file are known by its inode. Of other files those that have one length and one end are compared byte by byte. At its end a
//! TorchScript archive has the checksums of its entries, so files of different content are hardly ever compared, and a family of different
//! models costs no more than these reads.
//!
//! A model is more than its file: class names and further parts lie beside it ([`crate::beside`]). Those count, too.
//!
//! Bounds: what is compared in all ([`COMPARED_BYTES_MAX`]), and with how many others of the same end ([`SAME_END_MAX`]). A file beyond them
//! has a content of its own.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use sha2::{Digest, Sha256};
use spillgate_process::file;
use spillgate_worker::listed::ListedFile;

use crate::model_files::Folders;

/// Most bytes that are compared when a server starts or reads its files again: seconds, from the page cache.
pub(crate) const COMPARED_BYTES_MAX: u64 = 4 << 30;
/// Most contents of one end that a file is compared with. More than one is rare: only damage and mischief change a file and leave its
/// checksums.
pub(crate) const SAME_END_MAX: usize = 4;
/// Bytes of a file's end that must be equal before all of it is compared: the directory of an archive with some 150 entries.
const END_BYTES: u64 = 16 << 10;
/// Bytes that are compared at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// A content; equal for files that are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContentId(usize);

/// The contents of the files that were asked for.
pub(super) struct Contents {
    known: IndexMap<Key, ContentId>,
    by_end: IndexMap<End, Vec<Representative>>,
    folders: Folders,
    n: usize,
    /// Bytes that may still be compared.
    left: u64,
    /// Files that were not compared, because of the bounds.
    uncompared: usize,
}

/// What tells whether a file was seen before.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    /// Device and inode.
    Inode(u64, u64),
    /// Of one that cannot be opened.
    Path(PathBuf),
}

/// Length, and hash of the last bytes.
type End = (u64, [u8; 32]);

/// A file of a content, with which others are compared.
struct Representative {
    id: ContentId,
    listed: ListedFile,
}

impl Default for Contents {
    fn default() -> Self {
        Contents {
            known: IndexMap::new(),
            by_end: IndexMap::new(),
            folders: Folders::default(),
            n: 0,
            left: COMPARED_BYTES_MAX,
            uncompared: 0,
        }
    }
}

impl Contents {
    /// What a model of that file is made of: its file and those beside it, each with what follows the name of the model. `listed` gets
    /// these files as they are.
    pub(super) fn of_model(
        &mut self,
        path: &Path,
        listed: &mut Vec<ListedFile>,
    ) -> Vec<(String, ContentId)> {
        let all = self.folders.of_model(path);
        let of = |(part, file)| (part, self.of(file, listed));
        all.into_iter().map(of).collect()
    }

    /// The content of a file. `listed` gets the file as it is.
    pub(super) fn of(&mut self, path: PathBuf, listed: &mut Vec<ListedFile>) -> ContentId {
        let found = ListedFile::now(path);
        listed.push(found.clone());
        let path = found.path().to_owned();
        let opened = open(&path);
        let key = match &opened {
            Ok((_, inode, _)) => Key::Inode(inode.0, inode.1),
            Err(_) => Key::Path(path),
        };
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let end = opened.and_then(|(file, _, length)| Ok((end(&file, length)?, file)));
        let id = match end {
            Ok((end, file)) => self.like(end, &file, found),
            Err(_) => {
                self.n += 1;
                ContentId(self.n - 1)
            }
        };
        self.known.insert(key, id);
        id
    }

    /// Files that may have the content of another one and were not compared.
    pub(super) fn uncompared(&self) -> usize {
        self.uncompared
    }

    /// The content of a file with that end.
    fn like(&mut self, end: End, file: &File, found: ListedFile) -> ContentId {
        let others = self.by_end.entry(end).or_default();
        for other in others.iter() {
            if end.0 > self.left {
                break;
            }
            let same = compare(file, other.listed.path(), &mut self.left);
            // The other one may have changed since it was listed.
            if same.unwrap_or(false) && other.listed.is_as_listed().is_ok() {
                return other.id;
            }
        }
        let id = ContentId(self.n);
        self.n += 1;
        if others.is_empty() || (others.len() < SAME_END_MAX && end.0 <= self.left) {
            others.push(Representative { id, listed: found });
        } else {
            self.uncompared += 1;
        }
        id
    }
}

/// A plain file with its device and inode, and its length.
fn open(path: &Path) -> io::Result<(File, (u64, u64), u64)> {
    let file = file::open(path).map_err(io::Error::other)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    Ok((file, (about.dev(), about.ino()), about.len()))
}

fn end(file: &File, length: u64) -> io::Result<End> {
    let n = length.min(END_BYTES);
    let mut last = vec![0; n as usize];
    file.read_exact_at(&mut last, length - n)?;
    Ok((length, Sha256::digest(&last).into()))
}

/// Whether two files are equal. What is compared is taken from `left`.
fn compare(one: &File, other: &Path, left: &mut u64) -> io::Result<bool> {
    let mut other = open(other)?.0;
    let mut at = 0;
    let (mut chunk, mut of_other) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let n = one.read_at(&mut chunk, at)?;
        if n == 0 {
            return Ok(other.read(&mut of_other)? == 0);
        }
        *left = left.saturating_sub(n as u64);
        other.read_exact(&mut of_other[..n])?;
        if chunk[..n] != of_other[..n] {
            return Ok(false);
        }
        at += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes with its test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let of = format!("spillgate-contents-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(of);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn of(contents: &mut Contents, path: &Path) -> ContentId {
        contents.of(path.to_owned(), &mut Vec::new())
    }

    /// More than one chunk, which differs from others of its kind only at the begin.
    fn long(first: u8) -> Vec<u8> {
        let mut bytes = vec![7; 3 * CHUNK_BYTES + 5];
        bytes[0] = first;
        bytes
    }

    #[test]
    fn equal_files_have_one_content_wherever_they_lie() {
        let folder = Folder::new("equal");
        let mut contents = Contents::default();
        let a = folder.write("a", &long(1));
        let first = of(&mut contents, &a);
        let copy = folder.write("copy", &long(1));
        assert_eq!(of(&mut contents, &copy), first);
        let link = folder.0.join("link");
        std::os::unix::fs::symlink(&a, &link).unwrap();
        assert_eq!(of(&mut contents, &link), first);
        let left = contents.left;
        let hard = folder.0.join("hard");
        std::fs::hard_link(&copy, &hard).unwrap();
        assert_eq!(of(&mut contents, &hard), first);
        assert_eq!(contents.left, left, "links are not compared");
        assert_eq!(contents.uncompared(), 0);
    }

    #[test]
    fn files_of_one_end_and_another_content_are_told_apart() {
        let folder = Folder::new("end");
        let mut contents = Contents::default();
        let all: Vec<ContentId> = (0..9)
            .map(|i| {
                let path = folder.write(&i.to_string(), &long(i));
                of(&mut contents, &path)
            })
            .collect();
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{all:?}");
        }
        assert_eq!(contents.uncompared(), 9 - SAME_END_MAX);
        // Those that stand for their content are still found.
        let copy = folder.write("copy", &long(3));
        assert_eq!(of(&mut contents, &copy), all[3]);
    }

    #[test]
    fn what_is_beyond_the_bound_is_not_compared() {
        let folder = Folder::new("bound");
        let mut contents = Contents {
            left: 2 * long(0).len() as u64,
            ..Contents::default()
        };
        let paths: Vec<PathBuf> = (0..4)
            .map(|i| folder.write(&i.to_string(), &long(1)))
            .collect();
        let all: Vec<usize> = paths.iter().map(|p| of(&mut contents, p).0).collect();
        assert_eq!(all, [0, 0, 0, 1]);
        assert_eq!(contents.uncompared(), 1);
    }

    #[test]
    fn a_file_that_changed_stands_for_nothing_any_more() {
        let folder = Folder::new("changed");
        let mut contents = Contents::default();
        let first = folder.write("a", &long(1));
        let id = of(&mut contents, &first);
        // It is another one when the copy is compared with it, at another time.
        folder.write("a", &long(2));
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
        let file = File::options().append(true).open(&first).unwrap();
        file.set_modified(later).unwrap();
        let other = folder.write("b", &long(2));
        assert_ne!(of(&mut contents, &other), id);
    }

    #[test]
    fn what_is_missing_or_no_file_is_known_by_its_path() {
        let folder = Folder::new("missing");
        let mut contents = Contents::default();
        let (a, b) = (folder.0.join("a"), folder.0.join("b"));
        let one = of(&mut contents, &a);
        assert_eq!(of(&mut contents, &a), one);
        assert_ne!(of(&mut contents, &b), one);
        assert_ne!(of(&mut contents, &folder.0), one, "a folder");
    }

    #[test]
    fn what_lies_beside_a_model_counts() {
        let folder = Folder::new("beside");
        let mut contents = Contents::default();
        for name in ["a.pt", "b.pt", "c.pt", "ab.pt"] {
            folder.write(name, b"net");
        }
        folder.write("a.labels", b"car");
        folder.write("b.labels", b"car");
        folder.write("c.labels", b"bus");
        let mut model = |name: &str| {
            let mut listed = Vec::new();
            let of = contents.of_model(&folder.0.join(name), &mut listed);
            (of, listed.len())
        };
        let (a, n) = model("a.pt");
        assert_eq!(n, 2, "the file and its labels: {a:?}");
        assert_eq!(model("b.pt").0, a);
        assert_ne!(model("c.pt").0, a);
        assert_ne!(model("ab.pt").0, a);
        assert_eq!(model("gone.pt").1, 1);
    }
}
