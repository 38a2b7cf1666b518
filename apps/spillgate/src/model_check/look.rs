//! Recognises the kind of a model file from its first bytes and, where it is a zip archive, from its directory. Nothing
//! is loaded. For a file that is neither TorchScript nor ONNX the error names its kind and the remedy. Archives that claim more than
//! they can hold are refused, and so are ONNX models that ask for more than a module can use.

use std::io::{self, Read, Seek, SeekFrom};

use spillgate_backend::onnx::{self, ONNX_BYTES_MAX};
use spillgate_backend::torch::archive::{damaged, ends_plainly};
use zip::read::ZipArchive;

/// Bytes of an archive that are read to learn what is in it: a directory of some hundred thousand entries.
const DIRECTORY_BYTES_MAX: u64 = 8 << 20;
/// Largest compressed entry once unpacked. PyTorch compresses only code and its debug records; tensors are stored.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;
/// The same for all compressed entries together.
const UNPACKED_SUM_MAX: u64 = 256 << 20;
/// Bytes of a pickle that are searched for the classes it names.
const PICKLE_BYTES_MAX: u64 = 1 << 20;
/// Bytes at the start of a file that tell its kind.
const HEAD_BYTES: usize = 1 << 10;

/// The cure for a file that holds weights.
const BUILD_AND_TRACE: &str = "build the model in Python, load the weights into it (model.load_state_dict(...)), and write \
                               torch.onnx.export(model.eval(), example, \"net.onnx\", dynamo=False, input_names=[\"images\"], \
                               dynamic_axes={\"images\": {0: \"batch\"}}); of Ultralytics: yolo export model=FILE format=onnx";
/// The cure for a file of another framework.
const EXPORT: &str = "export the model that it was made of as ONNX (tools/export_models.py does it for torchvision, timm, Ultralytics and Hugging Face)";

/// A model file by its format.
#[derive(Debug)]
pub(crate) enum Looked {
    TorchScript,
    /// With its content.
    Onnx(Vec<u8>),
}

/// Looks at a file.
///
/// # Errors
/// The kind of the file, and the remedy.
pub(crate) fn look(file: &mut (impl Read + Seek)) -> Result<Looked, String> {
    let mut head = vec![0; HEAD_BYTES];
    let n = fill(file, &mut head).map_err(|e| e.to_string())?;
    head.truncate(n);
    let length = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return archive(file, length).map(|()| Looked::TorchScript);
    }
    if onnx::begins_as_onnx(&head) {
        return onnx_model(file, length).map(Looked::Onnx);
    }
    Err(other(&head, length))
}

fn onnx_model(file: &mut (impl Read + Seek), length: u64) -> Result<Vec<u8>, String> {
    if length > ONNX_BYTES_MAX as u64 {
        return Err(format!(
            "it is an ONNX model of {length} bytes, and one has {ONNX_BYTES_MAX} at most; save its weights in a file beside it \
             (onnx.save(model, FILE, save_as_external_data=True)); a family takes no such model"
        ));
    }
    file.rewind().map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    let read = file.take(ONNX_BYTES_MAX as u64).read_to_end(&mut bytes);
    read.map_err(|e| e.to_string())?;
    onnx::look(&bytes).map_err(|why| match why.contains("ONNX") {
        true => why,
        false => format!("this ONNX model cannot be served: {why}"),
    })?;
    Ok(bytes)
}

fn fill(file: &mut (impl Read + Seek), head: &mut [u8]) -> io::Result<usize> {
    file.rewind()?;
    let mut n = 0;
    loop {
        match file.read(&mut head[n..])? {
            0 => return Ok(n),
            more => n += more,
        }
    }
}

/// The kind of a file that is no archive.
fn other(head: &[u8], length: u64) -> String {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let text = text.trim_start();
    let header = head.first_chunk::<8>().map(|h| u64::from_le_bytes(*h));
    let is_safetensors = header.is_some_and(|n| n > 1 && n < length) && head.get(8) == Some(&b'{');
    if head.is_empty() {
        "it is empty; write it anew, or fetch it again".to_owned()
    } else if text.starts_with("version https://git-lfs") {
        "it is a git-lfs pointer, not the file itself; `git lfs pull` fetches it".to_owned()
    } else if text.starts_with("<!doctype html") || text.starts_with("<html") {
        "it is an HTML page, most likely of a site that wanted a log-in or had no such file; fetch the file again".to_owned()
    } else if is_safetensors {
        format!("it is a safetensors file: weights without the model; {BUILD_AND_TRACE}")
    } else if head.starts_with(b"\x89HDF\r\n\x1a\n") {
        format!("it is an HDF5 file, as Keras writes them; {EXPORT}")
    } else if head.get(4..8) == Some(b"TFL3") {
        format!("it is a TensorFlow Lite model; {EXPORT}")
    } else if is_engine(head) {
        format!("it is an engine of TensorRT, which runs on one kind of GPU alone; {EXPORT}")
    } else if (text.starts_with("<?xml") || text.starts_with("<net")) && text.contains("<net") {
        format!("it is a model of OpenVINO; {EXPORT}")
    } else if head.starts_with(b"\x1f\x8b") {
        "it is a gzip archive; unpack it, and name the model in it".to_owned()
    } else if head.starts_with(b"GGUF") {
        format!("it is a GGUF file: weights of a language model; {EXPORT}")
    } else if head.get(4..8) == Some(b"PTMF") {
        "it is a TorchScript model for mobile; save it with .save(FILE) instead".to_owned()
    } else if head.first() == Some(&0x80) && head.get(1).is_some_and(|protocol| *protocol < 6) {
        pickled(head)
    } else {
        let start: String = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
        format!(
            "it is no TorchScript model, which is a zip archive, and no ONNX model: it begins with {start}"
        )
    }
}

/// Whether a file begins as an engine of TensorRT does, or as one that Ultralytics wrote: the length of a JSON object before it.
fn is_engine(head: &[u8]) -> bool {
    let plain = |bytes: &[u8]| bytes.starts_with(b"ftrt") || bytes.starts_with(b"ptrt");
    let length = head.first_chunk::<4>().map(|n| u32::from_le_bytes(*n));
    plain(head) || length.is_some_and(|n| n > 1 && n < 1 << 20) && head.get(4..6) == Some(b"{\"")
}

/// The kind of a pickle, by the classes that it names.
fn pickled(bytes: &[u8]) -> String {
    let names = |name: &str| {
        bytes
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    };
    if names("ultralytics") {
        return "it is a .pt of Ultralytics, which needs its Python code; yolo export model=FILE format=onnx, or tools/export_models.py \
                ultralytics FILE, makes a model of it"
            .to_owned();
    }
    if names("torch.nn.modules") || names("c__main__\n") || names("Net\n") {
        return "it is a pickled nn.Module (torch.save(model)), which needs its Python code; save \
                torch.jit.trace(model.eval(), example) with .save(FILE) instead"
            .to_owned();
    }
    format!("it holds weights (a state_dict or checkpoint) without the model; {BUILD_AND_TRACE}")
}

/// A reader that gives up after so many bytes.
struct Budget<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Budget<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 && !into.is_empty() {
            return Err(io::Error::other(format!(
                "its directory takes more than the {DIRECTORY_BYTES_MAX} bytes that are read"
            )));
        }
        let n = self.inner.read(&mut into[..most])?;
        self.left -= n as u64;
        Ok(n)
    }
}

impl<R: Seek> Seek for Budget<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

fn archive(file: &mut (impl Read + Seek), length: u64) -> Result<(), String> {
    ends_plainly(file)?;
    file.rewind().map_err(|e| e.to_string())?;
    let left = DIRECTORY_BYTES_MAX;
    let mut zip = ZipArchive::new(Budget { inner: file, left }).map_err(|e| damaged(&e))?;
    sizes(&mut zip, length)?;
    let names: Vec<&str> = zip.file_names().collect();
    let has = |end: &str| names.iter().any(|name| name.ends_with(end));
    let has_code = names.iter().any(|name| name.contains("/code/"));
    if has_code && has("constants.pkl") {
        return Ok(());
    }
    let is_exported = has("serialized_exported_program.json")
        || has("/archive_format")
        || names
            .iter()
            .any(|name| name.contains("models/") && name.ends_with(".json"));
    if is_exported {
        return Err(
            "it is a program of torch.export (.pt2), not TorchScript; save torch.jit.trace(model.eval(), example) with \
             .save(FILE) instead"
                .to_owned(),
        );
    }
    if has(".onnx") {
        return Err("it is a zip archive with an ONNX model in it; unpack it".to_owned());
    }
    if has("model.weights.h5") {
        return Err(format!("it is a model of Keras; {EXPORT}"));
    }
    let pickle = names.iter().find(|name| name.ends_with("data.pkl"));
    let Some(name) = pickle.map(|name| (*name).to_owned()) else {
        return Err(
            "it is a zip archive, but no TorchScript model: it has no code/ and no constants.pkl"
                .to_owned(),
        );
    };
    let mut bytes = Vec::new();
    let entry = zip.by_name_decrypt(&name, b"").map_err(|e| damaged(&e))?;
    let entry = entry.map_err(|_| "an entry of it is encrypted".to_owned())?;
    // A pickle that cannot be read names no classes.
    let _ = entry.take(PICKLE_BYTES_MAX).read_to_end(&mut bytes);
    Err(pickled(&bytes))
}

/// Refuses an archive whose entries claim more than the file can hold, or unpack to more than models need.
fn sizes<R: Read + Seek>(zip: &mut ZipArchive<R>, length: u64) -> Result<(), String> {
    let (mut packed, mut unpacked) = (0u64, 0u64);
    for i in 0..zip.len() {
        let entry = zip.by_index_raw(i).map_err(|e| damaged(&e))?;
        packed = packed.saturating_add(entry.compressed_size());
        let is_stored = entry.compression() == zip::CompressionMethod::Stored;
        if is_stored && entry.size() != entry.compressed_size() {
            return Err(format!(
                "its entry {} lies about its size",
                shown(entry.name())
            ));
        }
        if !is_stored {
            unpacked = unpacked.saturating_add(entry.size());
        }
        if !is_stored && entry.size() > UNPACKED_BYTES_MAX || unpacked > UNPACKED_SUM_MAX {
            return Err(format!(
                "its entry {} unpacks to {} bytes: more than {UNPACKED_BYTES_MAX} in one entry, or {UNPACKED_SUM_MAX} in \
                 all, is no code (PyTorch compresses nothing else)",
                shown(entry.name()),
                entry.size()
            ));
        }
    }
    if packed > length {
        return Err(format!(
            "its entries claim {packed} bytes, and the file has {length}: they overlap, or it is cut short"
        ));
    }
    Ok(())
}

/// A name from the archive as part of a line.
fn shown(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use zip::write::{FileOptions, ZipWriter};

    use super::*;

    /// The message about a file with these bytes.
    fn said(name: &str, bytes: &[u8]) -> String {
        let path =
            std::env::temp_dir().join(format!("spillgate-look-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let result = look(&mut File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        result.map_or_else(|why| why, |_| "fine".to_owned())
    }

    fn zipped(entries: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
        let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
        for (name, bytes) in entries {
            let options = FileOptions::default().compression_method(method);
            zip.start_file(*name, options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    const STORED: zip::CompressionMethod = zip::CompressionMethod::Stored;
    const DEFLATED: zip::CompressionMethod = zip::CompressionMethod::Deflated;

    #[test]
    fn wrong_files_are_named_for_what_they_are() {
        let exported = [
            ("m/models/model.json", b"{}".as_slice()),
            ("m/archive_format", b"pt2"),
        ];
        let weights = [(
            "m/data.pkl",
            b"\x80\x02ccollections\nOrderedDict\n".as_slice(),
        )];
        let module = [(
            "m/data.pkl",
            b"\x80\x02ctorch.nn.modules.linear\nLinear\n".as_slice(),
        )];
        let mut safetensors = 20u64.to_le_bytes().to_vec();
        safetensors.extend(b"{\"a\":{\"dtype\":\"F32\"}}....................");
        let cases: [(&str, Vec<u8>, &str); 21] = [
            ("empty", Vec::new(), "it is empty"),
            ("html", b"\n<!DOCTYPE html><html>".to_vec(), "HTML page"),
            (
                "lfs",
                b"version https://git-lfs.github.com/spec/v1\n".to_vec(),
                "git lfs pull",
            ),
            ("safetensors", safetensors, "safetensors"),
            (
                "onnx",
                b"\x08\x07\x12\x07pytorch".to_vec(),
                "ONNX model without a graph",
            ),
            ("weights", zipped(&weights, STORED), "state_dict"),
            ("module", zipped(&module, STORED), "pickled nn.Module"),
            (
                "legacy",
                b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(),
                "state_dict",
            ),
            ("pt2", zipped(&exported, STORED), "torch.export"),
            (
                "docx",
                zipped(&[("word/document.xml", b"x")], STORED),
                "no TorchScript model",
            ),
            (
                "cut",
                zipped(&weights, STORED)[..40].to_vec(),
                "damaged zip archive",
            ),
            (
                "junk",
                b"this is no model".to_vec(),
                "it begins with 7468697320697320",
            ),
            ("hdf5", b"\x89HDF\r\n\x1a\n".to_vec(), "HDF5"),
            (
                "keras",
                zipped(
                    &[
                        ("config.json", b"{}".as_slice()),
                        ("model.weights.h5", b"x"),
                    ],
                    STORED,
                ),
                "of Keras",
            ),
            ("engine", b"ftrt\0\0\0\0".to_vec(), "TensorRT"),
            (
                "ultralytics-engine",
                b"\x20\x01\0\0{\"description\": \"x\"}".to_vec(),
                "TensorRT",
            ),
            (
                "openvino",
                b"<?xml version=\"1.0\"?>\n<net name=\"m\" version=\"11\">".to_vec(),
                "OpenVINO",
            ),
            (
                "ultralytics",
                b"\x80\x02cultralytics.nn.tasks\nDetectionModel\n".to_vec(),
                "of Ultralytics",
            ),
            ("gzip", b"\x1f\x8b\x08\0".to_vec(), "gzip archive"),
            (
                "zipped",
                zipped(&[("net/net.onnx", b"x".as_slice())], STORED),
                "with an ONNX model in it",
            ),
            ("gguf", b"GGUF\x03\0\0\0".to_vec(), "GGUF"),
        ];
        for (name, bytes, part) in cases {
            let said = said(name, &bytes);
            assert!(said.contains(part), "{name}: {said}");
        }
        let good = [("m/code/a.py", b"x".as_slice()), ("m/constants.pkl", b"x")];
        assert_eq!(said("good", &zipped(&good, DEFLATED)), "fine");
    }

    #[test]
    fn bombs_are_refused_by_their_directory() {
        let zeros = vec![0; UNPACKED_BYTES_MAX as usize + 1];
        let bomb = zipped(
            &[("m/code/a.py", &zeros), ("m/constants.pkl", b"x")],
            DEFLATED,
        );
        assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
        let said_of_it = said("bomb", &bomb);
        assert!(
            said_of_it.contains("unpacks to 67108865 bytes"),
            "{said_of_it}"
        );
        // The directory says that a stored entry is larger than it is.
        let mut liar = zipped(
            &[("m/constants.pkl", b"1234"), ("m/code/a.py", b"x")],
            STORED,
        );
        let at = liar.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
        liar[at + 24..at + 28].copy_from_slice(&3_000_000_000u32.to_le_bytes());
        let said_of_it = said("liar", &liar);
        assert!(said_of_it.contains("lies about its size"), "{said_of_it}");
    }
}
