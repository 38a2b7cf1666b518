//! The form of a TorchScript archive: all of it but the numbers in its tensors. Archives of one form have the same code, and
//! tensors of the same sizes and shapes; so what a check finds of one holds for the others, and they take equally long.
//!
//! Numbers are in the entries `data/N` and `constants/N`, of which names and sizes count. Of all other entries, which are
//! small, the content counts. TorchScript numbers the classes that one process made (`___torch_mangle_7`): those numbers
//! count by the order in which they appear.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Seek};

use sha2::{Digest, Sha256};
use zip::read::ZipArchive;
use zip::result::ZipError;

use super::look::look;
use super::message::Hash;

/// Most bytes of the entries whose content counts.
const CONTENT_BYTES_MAX: u64 = 64 << 20;
/// What precedes the number of a class.
const MANGLED: &[u8] = b"___torch_mangle_";

/// The form of an archive.
///
/// # Errors
/// When it is no TorchScript archive, or one of an unusual shape.
pub(super) fn form(file: &mut (impl Read + Seek)) -> Result<Hash, String> {
    look(file)?;
    file.rewind().map_err(|e| e.to_string())?;
    let mut zip = ZipArchive::new(file).map_err(damaged)?;
    if zip.offset() != 0 {
        return Err("something is in front of its archive; write it anew".to_owned());
    }
    let mut hasher = Sha256::new();
    let mut mangled = Mangled::default();
    let mut names = HashSet::new();
    let mut folder: Option<String> = None;
    let mut left = CONTENT_BYTES_MAX;
    for i in 0..zip.len() {
        let mut entry = zip.by_index(i).map_err(damaged)?;
        // The folder is named after the file that was first written.
        let (top, name) = entry.name().split_once('/').unwrap_or(("", entry.name()));
        let (top, name) = (top.to_owned(), name.to_owned());
        if folder.get_or_insert_with(|| top.clone()) != &top || !names.insert(name.clone()) {
            return Err("its entries are not all different and in one folder".to_owned());
        }
        mangled.add(&mut hasher, name.as_bytes());
        if name == ".data/serialization_id" {
            continue;
        }
        if is_numbers(&name) && entry.compression() == zip::CompressionMethod::Stored {
            hasher.update(entry.size().to_le_bytes());
            continue;
        }
        let mut content = Vec::new();
        let read = (&mut entry).take(left + 1).read_to_end(&mut content);
        read.map_err(|e| format!("its entry {name:?} cannot be read: {e}; write it anew"))?;
        left = left
            .checked_sub(content.len() as u64)
            .ok_or_else(|| format!("more than {CONTENT_BYTES_MAX} bytes of it are no tensors"))?;
        mangled.add(&mut hasher, &content);
    }
    Ok(hasher.finalize().into())
}

/// Whether the content of each entry is what was written: libtorch does not look.
///
/// # Errors
/// The first entry that is damaged.
pub(super) fn intact(bytes: &[u8]) -> Result<(), String> {
    let mut zip = ZipArchive::new(io::Cursor::new(bytes)).map_err(damaged)?;
    for i in 0..zip.len() {
        let mut entry = zip.by_index(i).map_err(damaged)?;
        let name = entry.name().to_owned();
        io::copy(&mut entry, &mut io::sink())
            .map_err(|e| format!("its entry {name:?} is damaged: {e}; write it anew"))?;
    }
    Ok(())
}

fn damaged(error: ZipError) -> String {
    format!("it is a damaged zip archive: {error}; fetch or write it again")
}

/// Whether an entry holds the numbers of a tensor.
fn is_numbers(name: &str) -> bool {
    let of = |folder: &str| {
        name.strip_prefix(folder)
            .and_then(|n| n.parse::<u32>().ok())
    };
    of("data/").or_else(|| of("constants/")).is_some()
}

/// Numbers of classes, by the order in which they appear.
#[derive(Default)]
struct Mangled(HashMap<Vec<u8>, usize>);

impl Mangled {
    /// Adds a part with its length. Two parts add the same only if they differ in numbers of classes alone.
    fn add(&mut self, hasher: &mut Sha256, part: &[u8]) {
        let mut rest = part;
        let mut plain = 0u64;
        while let Some(at) = find(rest, MANGLED) {
            let (before, after) = rest.split_at(at + MANGLED.len());
            let n_digits = after.iter().take_while(|b| b.is_ascii_digit()).count();
            let known = self.0.len();
            let number = *self.0.entry(after[..n_digits].to_vec()).or_insert(known);
            hasher.update(before);
            hasher.update((number as u64).to_le_bytes());
            plain += before.len() as u64;
            rest = &after[n_digits..];
        }
        hasher.update(rest);
        hasher.update((plain + rest.len() as u64).to_le_bytes());
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, part)
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use zip::CompressionMethod;
    use zip::write::{FileOptions, ZipWriter};

    use super::*;

    /// An archive with these entries.
    fn archive(folder: &str, entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in entries {
            let options = FileOptions::default().compression_method(CompressionMethod::Stored);
            zip.start_file(format!("{folder}/{name}"), options).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn model(folder: &str, code: &str, numbers: &[u8]) -> Vec<u8> {
        archive(
            folder,
            &[
                ("data.pkl", b"pickle"),
                ("code/__torch__.py", code.as_bytes()),
                ("data/0", numbers),
                ("constants.pkl", b""),
                (".data/serialization_id", &numbers[..1]),
            ],
        )
    }

    fn form_of(bytes: &[u8]) -> Result<Hash, String> {
        form(&mut Cursor::new(bytes))
    }

    #[test]
    fn numbers_and_the_name_of_the_file_do_not_count_and_all_else_does() {
        let one = form_of(&model("a", "return x", b"1234")).unwrap();
        assert_eq!(form_of(&model("b", "return x", b"5678")), Ok(one));
        assert_ne!(form_of(&model("a", "return y", b"1234")), Ok(one));
        assert_ne!(form_of(&model("a", "return x", b"12345678")), Ok(one));
    }

    #[test]
    fn numbers_of_classes_count_by_their_order() {
        let code = |a: u32, b: u32| {
            format!("___torch_mangle_{a}.Net ___torch_mangle_{b}.Net ___torch_mangle_{a}.X")
        };
        let one = form_of(&model("a", &code(1, 2), b"1")).unwrap();
        assert_eq!(form_of(&model("a", &code(18, 7), b"1")), Ok(one));
        assert_ne!(form_of(&model("a", &code(1, 1), b"1")), Ok(one));
    }

    #[test]
    fn what_is_no_usual_archive_has_no_form() {
        let good = model("a", "return x", b"1234");
        assert!(form_of(b"junk").is_err());
        assert!(form_of(&good[..good.len() / 2]).is_err());
        let mut moved = b"PK\x03\x04".to_vec();
        moved.extend(&good);
        assert!(form_of(&moved).is_err());
    }

    #[test]
    fn a_changed_number_is_damage() {
        let good = model("a", "return x", b"123456789");
        assert_eq!(intact(&good), Ok(()));
        let mut bad = good.clone();
        let at = find(&bad, b"123456789").unwrap();
        bad[at] ^= 1;
        assert!(intact(&bad).unwrap_err().contains("data/0"));
        assert!(form_of(&bad).is_ok(), "the form does not show it");
    }
}
