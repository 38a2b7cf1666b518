//! The files of a model beside the one that the pipeline file names: those that have its name, like the class names `cam-1.labels` and
//! the further part `cam-1.2.pt` of `cam-1.pt`, those in which weights of an ONNX model lie, and those that options name.

use std::io::Read;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use spillgate_backend::onnx::{self, HEAD_BYTES, ONNX_BYTES_MAX};
use spillgate_backend::operator::Library;
use spillgate_pipeline::catalog::OptionType;
use spillgate_pipeline::pipeline::{Module, OptionValue};
use spillgate_process::file;

/// Folders of models. Each is read once.
#[derive(Default)]
pub(crate) struct Folders {
    /// The names of the files of each, in order.
    names: IndexMap<PathBuf, Vec<String>>,
}

impl Folders {
    /// The files of a model, its own among them, each with what follows the name of the model. A file of its own that is not there is
    /// named, too.
    pub(crate) fn of_model(&mut self, path: &Path) -> Vec<(String, PathBuf)> {
        let mut all = Vec::new();
        if let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) {
            let begin = format!("{stem}.");
            let folder = path.parent().unwrap_or(Path::new(""));
            let names = self.folder(folder);
            let first = names.partition_point(|name| *name < begin);
            let own = names[first..]
                .iter()
                .take_while(|name| name.starts_with(&begin));
            all.extend(own.map(|name| (name[begin.len()..].to_owned(), folder.join(name))));
        }
        if !all.iter().any(|(_, file)| file == path) {
            all.push((String::new(), path.to_owned()));
        }
        for weights in weights_beside(path) {
            if !all.iter().any(|(_, file)| *file == weights) {
                let part = weights.strip_prefix(path.parent().unwrap_or(Path::new("")));
                let part = part.unwrap_or(&weights).display().to_string();
                all.push((part, weights));
            }
        }
        all
    }

    /// None where it cannot be read.
    fn folder(&mut self, folder: &Path) -> &[String] {
        self.names.entry(folder.to_owned()).or_insert_with(|| {
            let read = match folder.as_os_str().is_empty() {
                true => std::fs::read_dir("."),
                false => std::fs::read_dir(folder),
            };
            let entries = read.into_iter().flatten().flatten();
            let files = entries.filter(|e| e.file_type().is_ok_and(|ty| !ty.is_dir()));
            let mut names: Vec<String> = files
                .filter_map(|e| e.file_name().into_string().ok())
                .collect();
            names.sort_unstable();
            names
        })
    }
}

/// The files in which weights of an ONNX model lie; none of another one. What is wrong with them is for the check of models to say.
fn weights_beside(path: &Path) -> Vec<PathBuf> {
    let read = || {
        let mut head = Vec::new();
        let file = file::open(path).ok()?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
        if !onnx::begins_as_onnx(&head) {
            return None;
        }
        let bytes = file::read(path, ONNX_BYTES_MAX).ok()?;
        onnx::weights_beside(path, &bytes).ok()
    };
    read().unwrap_or_default()
}

/// Bytes of a model's file and of those in which weights of it lie. None where it is not there.
pub(crate) fn weights_bytes(path: &Path) -> Option<u64> {
    let length = |path: &Path| std::fs::metadata(path).ok().map(|found| found.len());
    let beside = weights_beside(path);
    let beside: u64 = beside.iter().filter_map(|file| length(file)).sum();
    Some(length(path)? + beside)
}

/// The options of a module that name files, with the names.
pub(crate) fn option_files<'m>(module: &'m Module, library: &Library) -> Vec<(&'m str, &'m str)> {
    let Some(kind) = library.get(&module.op) else {
        return Vec::new();
    };
    let options = kind.module_type().options;
    let files = options.iter().filter(|o| o.ty == OptionType::File);
    let given = files.filter_map(|o| module.options.get_key_value(&o.name));
    let named = given.filter_map(|(name, value)| match value {
        OptionValue::Text(file) => Some((name.as_str(), file.as_str())),
        _ => None,
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_the_name_of_a_model_are_its_own() {
        let of = format!("spillgate-beside-{}", std::process::id());
        let folder = std::env::temp_dir().join(of);
        std::fs::create_dir_all(folder.join("cam-1.d")).unwrap();
        for name in ["cam-1.pt", "cam-1.labels", "cam-1.2.pt", "cam-10.pt", "cam"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let mut folders = Folders::default();
        let mut of = |name: &str| {
            let all = folders.of_model(&folder.join(name));
            let parts = all.into_iter().map(|(part, path)| {
                assert!(path.starts_with(&folder));
                part
            });
            parts.collect::<Vec<_>>()
        };
        assert_eq!(of("cam-1.pt"), ["2.pt", "labels", "pt"]);
        assert_eq!(of("cam-10.pt"), ["pt"]);
        assert_eq!(of("cam"), [""], "it has no ending");
        assert_eq!(of("gone.pt"), [""]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
