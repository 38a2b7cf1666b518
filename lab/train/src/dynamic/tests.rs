//! The shipped networks through the module library and libtorch, as serving runs them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use spillgate_backend::torch::TorchBackend;
use spillgate_backend::{BackendError, Model};
use spillgate_process::value::Tensor;

use super::*;
use crate::data;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/modules/models")
}

/// libtorch, noting the rows of each forward by file.
struct Counting {
    torch: TorchBackend,
    calls: Arc<Mutex<Vec<(String, usize)>>>,
}

impl Counting {
    fn new() -> Self {
        Counting {
            torch: TorchBackend::new("cpu:0").expect("a CPU"),
            calls: Arc::default(),
        }
    }

    /// The rows of each forward of a file since the last time.
    fn sizes(&self, file: &str) -> Vec<usize> {
        let mut sizes = Vec::new();
        self.calls.lock().unwrap().retain(|(name, n)| {
            let is_of_file = name == file;
            if is_of_file {
                sizes.push(*n);
            }
            !is_of_file
        });
        sizes
    }
}

struct Counted {
    file: String,
    model: Box<dyn Model>,
    calls: Arc<Mutex<Vec<(String, usize)>>>,
}

impl Backend for Counting {
    fn device_kind(&self) -> &'static str {
        self.torch.device_kind()
    }

    fn load(&mut self, path: &Path) -> Result<Box<dyn Model>, BackendError> {
        let file = path.file_name().expect("a file").to_string_lossy();
        Ok(Box::new(Counted {
            file: file.into_owned(),
            model: self.torch.load(path)?,
            calls: Arc::clone(&self.calls),
        }))
    }
}

impl Model for Counted {
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let n = inputs[0].shape[0] as usize;
        self.calls.lock().unwrap().push((self.file.clone(), n));
        self.model.forward(inputs)
    }
}

fn all(operator: &mut dyn Operator, batch: &[Inputs]) -> Vec<Vec<Value>> {
    let results = operator.run(0, batch);
    results.into_iter().map(|r| r.expect("runs")).collect()
}

/// MODELS.md's claims, with room for other processors' rounding and for fewer requests.
#[test]
fn shipped_networks_meet_their_floors() {
    let mut backend = TorchBackend::new("cpu:0").expect("a CPU");
    let samples = data::held_out(10, None).expect("frames");
    let requests = pictures(&samples, 200);
    let mut who = who(&shipped(), THRESHOLD, &mut backend).expect("the shipped network loads");
    let exits = exits(&mut *who, &requests).expect("runs");
    let right: u64 = exits.iter().map(|hits| hits.right).sum();
    assert!(right >= 180, "{right} of 200 right: {exits:?}");
    for hits in exits {
        assert!(hits.all >= 20, "each exit has its share: {exits:?}");
    }
    let mut say = say(&shipped(), &mut backend).expect("the shipped network loads");
    let hits = names(&mut *say, &numbers(200)).expect("runs");
    assert!(hits.right >= 180, "{hits:?}");
}

#[test]
fn a_mixed_batch_of_pictures_answers_as_each_alone_and_shrinks() {
    let mut backend = Counting::new();
    let samples = data::held_out(4, None).expect("frames");
    let requests = pictures(&samples, 24).into_iter();
    let batch: Vec<Inputs> = requests.map(|(inputs, _)| inputs).collect();
    let mut who = who(&shipped(), THRESHOLD, &mut backend).expect("the shipped network loads");
    let together = all(&mut *who, &batch);
    let sizes = ["who.pt", "who.2.pt", "who.3.pt"].map(|file| backend.sizes(file));
    let mut exits = Vec::new();
    for (inputs, outputs) in batch.iter().zip(&together) {
        let alone = all(&mut *who, std::slice::from_ref(inputs)).remove(0);
        let alone = named(&alone).expect("one label");
        assert_eq!(named(outputs).expect("one label"), alone);
        exits.push(alone.1);
    }
    let until = |exit| exits.iter().filter(|e| **e >= exit).count();
    assert_eq!(sizes, [1, 2, 3].map(|exit| vec![until(exit)]));
    assert!(
        until(3) > 0 && until(3) < until(2) && until(2) < 24,
        "{exits:?}"
    );
}

#[test]
fn a_mixed_batch_of_numbers_answers_as_each_alone_and_shrinks() {
    let mut backend = Counting::new();
    let requests = numbers(24).into_iter();
    let batch: Vec<Inputs> = requests.map(|(inputs, _)| inputs).collect();
    let mut say = say(&shipped(), &mut backend).expect("the shipped network loads");
    let together = all(&mut *say, &batch);
    assert_eq!(backend.sizes("say.pt"), [24]);
    let sizes = backend.sizes("say.step.pt");
    let mut n_letters = Vec::new();
    for (inputs, outputs) in batch.iter().zip(&together) {
        let alone = all(&mut *say, std::slice::from_ref(inputs)).remove(0);
        assert_eq!(
            written(outputs).expect("one text"),
            written(&alone).expect("one text")
        );
        n_letters.push(written(outputs).expect("one text").len());
    }
    // Step k runs for all whose text has at least k letters.
    let longest = *n_letters.iter().max().expect("24 texts");
    let expected: Vec<usize> = (0..=longest)
        .map(|k| n_letters.iter().filter(|n| **n >= k).count())
        .collect();
    assert_eq!(sizes, expected);
}

#[test]
fn numbers_that_cannot_be_read_fail_alone() {
    let mut backend = TorchBackend::new("cpu:0").expect("a CPU");
    let mut say = say(&shipped(), &mut backend).expect("the shipped network loads");
    let payload = |text: &'static str| vec![Some(Value::Bytes(text.into())), None];
    let batch = ["407", "", "4 7", "1234567890", "0012"].map(payload);
    let results = say.run(0, &batch).into_iter();
    let texts: Vec<String> = results
        .map(|r| match r {
            Ok(outputs) => written(&outputs).expect("one text").to_owned(),
            Err(error) => error.to_string(),
        })
        .collect();
    assert_eq!(texts[0], "four hundred seven");
    assert!(texts[1].contains("no text to read"), "{}", texts[1]);
    assert!(
        texts[2].contains("' ' in the text cannot be read"),
        "{}",
        texts[2]
    );
    assert!(texts[3].contains("at most 9 characters"), "{}", texts[3]);
    assert_eq!(texts[4], "twelve");
}

/// A folder with files of the shipped networks under other names; goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let name = format!("spillgate-dynamic-{}-{}", std::process::id(), files[0].1);
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        for (from, to) in files {
            std::fs::copy(shipped().join(from), path.join(to)).expect("a copy");
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn bad_files_are_named() {
    let mut backend = TorchBackend::new("cpu:0").expect("a CPU");
    // No third segment, then junk in its place, then segments in the wrong order.
    let folder = Folder::with(&[
        ("who.labels", "who.labels"),
        ("who.3.pt", "who.2.pt"),
        ("who.pt", "who.pt"),
    ]);
    let error = who(&folder.0, 0.9, &mut backend)
        .err()
        .expect("no who.3.pt");
    let error = error.to_string();
    assert!(
        error.contains("who.3.pt: No such file") && error.contains("modules.who: options.exits: 3"),
        "{error}"
    );
    std::fs::write(folder.0.join("who.3.pt"), "no model").expect("writes");
    let error = who(&folder.0, 0.9, &mut backend).err().expect("junk");
    assert!(
        error.to_string().contains("who.3.pt: no TorchScript model"),
        "{error}"
    );
    std::fs::copy(shipped().join("who.2.pt"), folder.0.join("who.3.pt")).expect("a copy");
    let mut mixed_up = who(&folder.0, 1.0, &mut backend).expect("all load");
    let samples = data::held_out(1, None).expect("frames");
    let (picture, _) = pictures(&samples, 1).remove(0);
    let error = run(&mut *mixed_up, 0, picture)
        .expect_err("the wrong order")
        .to_string();
    assert!(
        error.starts_with("who.2.pt: ") && !error.contains('\n'),
        "{error}"
    );

    let folder = Folder::with(&[("say.pt", "say.pt"), ("light.pt", "say.step.pt")]);
    let mut no_step = say(&folder.0, &mut backend).expect("both load");
    let (number, _) = numbers(1).remove(0);
    let error = run(&mut *no_step, 0, number)
        .expect_err("no step")
        .to_string();
    assert!(
        error.starts_with("say.step.pt: ") && !error.contains('\n'),
        "{error}"
    );
}
