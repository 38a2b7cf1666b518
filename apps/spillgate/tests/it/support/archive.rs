//! TorchScript archives made from a shipped one.

use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

use zip::write::{FileOptions, ZipWriter};
use zip::{CompressionMethod, ZipArchive};

/// What a forward pass begins with.
const FORWARD: &str = "    argument_1: Tensor) -> Tensor:\n";

/// A file of the shipped models.
pub(crate) fn shipped(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("apps/modules/models").join(name)
}

/// The shipped classifier, whose forward pass begins with this code and in whose numbers so many bits are turned.
pub(crate) fn model(code: &str, turned: usize) -> Vec<u8> {
    let bytes = std::fs::read(shipped("light.pt")).unwrap();
    let mut from = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut to = ZipWriter::new(Cursor::new(Vec::new()));
    for i in 0..from.len() {
        let mut entry = from.by_index(i).unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        if entry.name().ends_with(".py") {
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.contains(FORWARD), "{text}");
            bytes = text
                .replace(FORWARD, &format!("{FORWARD}{code}"))
                .into_bytes();
        }
        if is_numbers(entry.name()) {
            // The lowest bits of numbers of four bytes.
            bytes
                .iter_mut()
                .step_by(4)
                .take(turned)
                .for_each(|b| *b ^= 1);
        }
        let options = FileOptions::default().compression_method(CompressionMethod::Stored);
        to.start_file(entry.name(), options).unwrap();
        to.write_all(&bytes).unwrap();
    }
    to.finish().unwrap().into_inner()
}

/// Whether an entry holds the numbers of a tensor.
pub(crate) fn is_numbers(name: &str) -> bool {
    name.contains("/constants/") || name.contains("/data/")
}
