//! TorchScript archives. The form of an archive is all of it but the numbers in its tensors. Archives of one form have the same code, and
//! tensors of the same sizes and shapes; so what a check finds of one holds for the others, and they take equally long. One can be loaded
//! as another with other numbers.
//!
//! Numbers are in the entries `data/N` and `constants/N`, of which names and sizes count. Of all other entries, which are
//! small, the content counts, but for two kinds that are not read when an archive is loaded: where code stood in files (`.debug_pkl`)
//! and the inputs of the run that made a trace (`traced_inputs/N`). TorchScript numbers the classes that one process made (`___torch_mangle_7`): those numbers
//! count by the order in which they appear.

use std::collections::{HashMap, HashSet};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use zip::read::{ZipArchive, ZipFile};
use zip::result::ZipError;

use crate::description::{Description, METADATA_BYTES_MAX, of_config};

/// What tells forms apart: a SHA-256 hash.
pub type FormId = [u8; 32];

/// Most bytes of the entries whose content counts.
pub(crate) const CONTENT_BYTES_MAX: u64 = 64 << 20;
/// What precedes the number of a class.
const MANGLED: &[u8] = b"___torch_mangle_";
/// Bytes of the record at the end of an archive.
const END_BYTES: u64 = 22;

/// A form, and where the numbers are in one archive of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Equal for archives of one form.
    pub id: FormId,
    /// Of each entry of numbers its first byte in the archive; in one order in all archives of the form.
    pub starts: Vec<usize>,
    /// Their bytes, likewise. Equal for archives of one form.
    pub sizes: Vec<usize>,
    /// What the exporter wrote beside the model, the extra file `config.txt`; empty without it. Equal for archives of one form.
    pub config: Vec<u8>,
}

/// An archive in memory.
pub struct Archive<'a> {
    bytes: &'a [u8],
    form: OnceLock<Result<Form, String>>,
}

impl<'a> Archive<'a> {
    /// One of these bytes, whatever they are.
    pub fn new(bytes: &'a [u8]) -> Self {
        Archive {
            bytes,
            form: OnceLock::new(),
        }
    }

    /// All of it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether it begins as an archive does.
    pub fn is_zip(&self) -> bool {
        self.bytes.starts_with(b"PK\x03\x04") || self.bytes.starts_with(b"PK\x05\x06")
    }

    /// Its form, found once.
    ///
    /// # Errors
    /// As [`form`].
    pub fn form(&self) -> Result<&Form, String> {
        let found = self.form.get_or_init(|| form(&mut Cursor::new(self.bytes)));
        found.as_ref().map_err(String::clone)
    }

    /// What it says of itself. One of an unusual shape says nothing.
    pub fn description(&self) -> Description {
        let form = self.form().ok();
        Description {
            metadata: form.map(|form| of_config(&form.config)).unwrap_or_default(),
            ..Description::default()
        }
    }

    /// Whether the content of each entry is what was written: libtorch does not look.
    ///
    /// # Errors
    /// The first entry that is damaged.
    pub fn intact(&self) -> Result<(), String> {
        ends_plainly(&mut Cursor::new(self.bytes))?;
        let mut zip = ZipArchive::new(Cursor::new(self.bytes)).map_err(|e| damaged(&e))?;
        for i in 0..zip.len() {
            let mut entry = entry(&mut zip, i)?;
            let name = entry.name().to_owned();
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let (start, size) = (at(entry.data_start()), at(entry.size()));
            let result = if entry.compression() == zip::CompressionMethod::Stored {
                // In one piece, which is faster than through a reader.
                let content = start
                    .checked_add(size)
                    .and_then(|end| self.bytes.get(start..end));
                match content {
                    Some(content) if crc32fast::hash(content) == entry.crc32() => Ok(()),
                    Some(_) => Err("Invalid checksum".to_owned()),
                    None => Err("it ends behind the end".to_owned()),
                }
            } else {
                let copied = io::copy(&mut entry, &mut io::sink());
                copied.map(|_| ()).map_err(|e| e.to_string())
            };
            result.map_err(|e| format!("its entry {name:?} is damaged: {e}; write it anew"))?;
        }
        Ok(())
    }
}

/// Checks that an archive ends with the record of its directory, as those of PyTorch do. Readers of archives look for that record in
/// different ways where something follows it, and could see different directories.
///
/// # Errors
/// When it ends otherwise, or cannot be read.
pub fn ends_plainly(file: &mut (impl Read + Seek)) -> Result<(), String> {
    let length = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    let mut end = [0; END_BYTES as usize];
    let start = length.checked_sub(END_BYTES);
    let read = start.map(|start| {
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut end)
    });
    if let Some(Err(error)) = read {
        return Err(error.to_string());
    }
    // The last two bytes are the length of a comment that would follow.
    match end.starts_with(b"PK\x05\x06") && end.ends_with(&[0, 0]) {
        true => Ok(()),
        false => Err(
            "it is a damaged zip archive: it does not end with its directory; fetch or write it again"
                .to_owned(),
        ),
    }
}

/// An entry of an archive, by its place.
///
/// # Errors
/// When it is damaged or encrypted.
pub fn entry<R: Read + Seek>(zip: &mut ZipArchive<R>, i: usize) -> Result<ZipFile<'_>, String> {
    let found = zip.by_index_decrypt(i, b"").map_err(|e| damaged(&e))?;
    found.map_err(|_| "an entry of it is encrypted; write it anew".to_owned())
}

/// The form of an archive.
///
/// # Errors
/// When it is no TorchScript archive, or one of an unusual shape.
pub fn form(file: &mut (impl Read + Seek)) -> Result<Form, String> {
    ends_plainly(file)?;
    let length = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    file.rewind().map_err(|e| e.to_string())?;
    let mut zip = ZipArchive::new(file).map_err(|e| damaged(&e))?;
    if zip.offset() != 0 {
        return Err("something is in front of its archive; write it anew".to_owned());
    }
    let mut hasher = Sha256::new();
    let mut mangled = Mangled::default();
    let mut names = HashSet::new();
    let mut folder: Option<String> = None;
    let mut left = CONTENT_BYTES_MAX;
    let (mut starts, mut sizes) = (Vec::new(), Vec::new());
    let mut config = Vec::new();
    for i in 0..zip.len() {
        let mut entry = entry(&mut zip, i)?;
        // The folder is named after the file that was first written.
        let (top, name) = entry.name().split_once('/').unwrap_or(("", entry.name()));
        let (top, name) = (top.to_owned(), name.to_owned());
        // libtorch does not tell names apart by case.
        if folder.get_or_insert_with(|| top.clone()) != &top
            || !names.insert(name.to_ascii_lowercase())
        {
            return Err("its entries are not all different and in one folder".to_owned());
        }
        mangled.add(&mut hasher, Part::Name, name.as_bytes());
        let is_debug = name.starts_with("code/") && name.ends_with(".py.debug_pkl");
        if name == ".data/serialization_id" || is_debug {
            continue;
        }
        if number_in(&name, "traced_inputs/") {
            hasher.update([Part::Size as u8]);
            hasher.update(entry.size().to_le_bytes());
            continue;
        }
        if is_numbers(&name) && entry.compression() == zip::CompressionMethod::Stored {
            let is_inside = entry.data_start().checked_add(entry.size());
            if is_inside.is_none_or(|end| end > length) {
                return Err(format!(
                    "its entry {name:?} ends behind its end; write it anew"
                ));
            }
            let number = |n: u64| usize::try_from(n).map_err(|e| e.to_string());
            starts.push(number(entry.data_start())?);
            sizes.push(number(entry.size())?);
            hasher.update([Part::Size as u8]);
            hasher.update(entry.size().to_le_bytes());
            continue;
        }
        let mut content = Vec::new();
        let read = (&mut entry).take(left + 1).read_to_end(&mut content);
        read.map_err(|e| format!("its entry {name:?} cannot be read: {e}; write it anew"))?;
        left = left
            .checked_sub(content.len() as u64)
            .ok_or_else(|| format!("more than {CONTENT_BYTES_MAX} bytes of it are no tensors"))?;
        mangled.add(&mut hasher, Part::Content, &content);
        if name == "extra/config.txt" && content.len() <= METADATA_BYTES_MAX {
            config = content;
        }
    }
    Ok(Form {
        id: hasher.finalize().into(),
        starts,
        sizes,
        config,
    })
}

/// What is said of an archive that cannot be read.
pub fn damaged(error: &ZipError) -> String {
    format!("it is a damaged zip archive: {error}; fetch or write it again")
}

/// Whether an entry holds the numbers of a tensor.
fn is_numbers(name: &str) -> bool {
    number_in(name, "data/") || number_in(name, "constants/")
}

fn number_in(name: &str, folder: &str) -> bool {
    let number = name.strip_prefix(folder);
    number.is_some_and(|n| n.parse::<u32>().is_ok())
}

/// What a part of a form is.
#[derive(Clone, Copy)]
enum Part {
    Name,
    Content,
    Size,
}

/// Numbers of classes, by the order in which they appear.
#[derive(Default)]
struct Mangled(HashMap<Vec<u8>, usize>);

impl Mangled {
    /// Adds a part: what it is, how many pieces it has, and each with its length before it and the number of the class after it. Two parts
    /// add the same only if they differ in numbers of classes alone.
    fn add(&mut self, hasher: &mut Sha256, part: Part, bytes: &[u8]) {
        let n_pieces = memchr::memmem::find_iter(bytes, MANGLED).count();
        hasher.update([part as u8]);
        hasher.update((n_pieces as u64).to_le_bytes());
        let piece = |hasher: &mut Sha256, piece: &[u8]| {
            hasher.update((piece.len() as u64).to_le_bytes());
            hasher.update(piece);
        };
        let mut rest = bytes;
        for _ in 0..n_pieces {
            let at = find(rest, MANGLED).expect("so many were found");
            let (before, after) = rest.split_at(at + MANGLED.len());
            let n_digits = after.iter().take_while(|b| b.is_ascii_digit()).count();
            let known = self.0.len();
            let number = *self.0.entry(after[..n_digits].to_vec()).or_insert(known);
            piece(hasher, before);
            hasher.update((number as u64).to_le_bytes());
            rest = &after[n_digits..];
        }
        piece(hasher, rest);
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, part)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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

    fn form_of(bytes: &[u8]) -> Result<FormId, String> {
        Archive::new(bytes).form().map(|form| form.id)
    }

    #[test]
    fn an_archive_is_described_by_its_extra_file() {
        let config = br#"{"names": {"0": "person"}, "task": "detect", "stride": 32}"#;
        let of = |entry: &str, config: &[u8]| {
            let entries = [
                ("code/__torch__.py", b"return x".as_slice()),
                (entry, config),
            ];
            Archive::new(&archive("net", &entries))
                .description()
                .metadata
        };
        let said = of("extra/config.txt", config);
        let said: Vec<(&str, &str)> = said.iter().map(|(k, v)| (&**k, &**v)).collect();
        let names = r#"{"0":"person"}"#;
        assert_eq!(
            said,
            [("names", names), ("stride", "32"), ("task", "detect")]
        );
        assert!(of("extra/other.txt", config).is_empty());
        // Programs write what they like there.
        assert!(of("extra/config.txt", b"[1, 2]").is_empty());
        assert!(of("extra/config.txt", b"\xff").is_empty());
    }

    #[test]
    fn numbers_lie_where_the_form_says() {
        let bytes = model("a-long-name", "return x", b"123456789");
        let archive = Archive::new(&bytes);
        let Form { starts, sizes, .. } = archive.form().unwrap();
        assert_eq!((starts.len(), sizes.as_slice()), (1, [9].as_slice()));
        assert_eq!(&bytes[starts[0]..][..9], b"123456789");
    }

    #[test]
    fn numbers_and_the_name_of_the_file_do_not_count_and_all_else_does() {
        let one = form_of(&model("a", "return x", b"1234")).unwrap();
        assert_eq!(form_of(&model("b", "return x", b"5678")), Ok(one));
        assert_ne!(form_of(&model("a", "return y", b"1234")), Ok(one));
        assert_ne!(form_of(&model("a", "return x", b"12345678")), Ok(one));
    }

    #[test]
    fn numbers_that_would_lie_behind_the_end_are_an_error() {
        let mut bytes = model("a", "return x", b"123456789");
        // The directory says where the entry begins and how long it is, in both sizes.
        let name = find(&bytes, b"PK\x01\x02").unwrap();
        let at = name + find(&bytes[name..], b"a/data/0").unwrap() - 46;
        for size in [at + 20, at + 24] {
            bytes[size..size + 4].copy_from_slice(&1_000_000u32.to_le_bytes());
        }
        let error = form_of(&bytes).unwrap_err();
        assert!(error.contains("behind its end"), "{error}");
    }

    #[test]
    fn entries_are_told_apart_by_what_they_are_and_by_their_lengths() {
        let packed = |entries: &[(&str, &[u8], CompressionMethod)]| {
            let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
            for (name, content, method) in entries {
                let options = FileOptions::default().compression_method(*method);
                zip.start_file(format!("a/{name}"), options).unwrap();
                zip.write_all(content).unwrap();
            }
            let bytes = zip.finish().unwrap().into_inner();
            form_of(&bytes)
        };
        const STORED: CompressionMethod = CompressionMethod::Stored;
        let empty = |method| packed(&[("data/0", b"", method), ("data/1", &[1; 100], STORED)]);
        assert_ne!(empty(STORED), empty(CompressionMethod::Deflated));
        let named = |name| packed(&[(name, b"12345678", STORED)]);
        assert_ne!(
            named("data/x.debug_pkl"),
            packed(&[("data/x.debug_pkl", b"1", STORED)])
        );
        assert!(packed(&[("a", b"1", STORED), ("A", b"2", STORED)]).is_err());
    }

    #[test]
    fn what_follows_the_directory_or_is_encrypted_is_an_error() {
        let good = model("a", "return x", b"1234");
        let mut longer = good.clone();
        longer.push(0);
        assert!(form_of(&longer).unwrap_err().contains("does not end"));
        assert!(
            Archive::new(&longer)
                .intact()
                .unwrap_err()
                .contains("does not end")
        );
        // An extra field of the first entry says that it is encrypted with AES.
        let mut locked = Vec::new();
        let at = find(&good, b"PK\x01\x02").unwrap();
        let name = at + 46 + "a/data.pkl".len();
        locked.extend_from_slice(&good[..name]);
        locked.extend([0x01, 0x99, 7, 0, 2, 0, b'A', b'E', 3, 0, 0]);
        locked.extend_from_slice(&good[name..]);
        locked[at + 30] = 11;
        let end = locked.len() - 22;
        let size = u32::from_le_bytes(locked[end + 12..end + 16].try_into().unwrap()) + 11;
        locked[end + 12..end + 16].copy_from_slice(&size.to_le_bytes());
        assert!(form_of(&locked).is_err());
        assert!(Archive::new(&locked).intact().is_err());
    }

    #[test]
    fn what_is_not_read_when_a_model_is_loaded_does_not_count() {
        let with = |debug: &[u8], input: &[u8]| {
            let entries: [(&str, &[u8]); 3] = [
                ("code/__torch__.py", b"return x"),
                ("code/__torch__.py.debug_pkl", debug),
                ("traced_inputs/0", input),
            ];
            form_of(&archive("a", &entries)).unwrap()
        };
        assert_eq!(with(b"line 1", b"1234"), with(b"line 20", b"5678"));
        assert_ne!(with(b"line 1", b"1234"), with(b"line 1", b"12345"));
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
        assert_eq!(Archive::new(&good).intact(), Ok(()));
        let mut bad = good.clone();
        let at = find(&bad, b"123456789").unwrap();
        bad[at] ^= 1;
        assert!(Archive::new(&bad).intact().unwrap_err().contains("data/0"));
        assert!(form_of(&bad).is_ok(), "the form does not show it");
    }
}
