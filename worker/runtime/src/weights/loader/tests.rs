//! Models that several modules name by equal files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use spillgate_backend::operator::{BuildContext, ModuleKind};
use spillgate_backend::{BackendError, Model};
use spillgate_pipeline::catalog::{ModuleType, ValueType};
use spillgate_pipeline::compile::compile;
use spillgate_pipeline::id::{ModuleId, WorkerId};

use super::*;

/// A type whose outputs are the content of its file. One of the content `bad` cannot be read.
#[derive(Default)]
struct Says {
    n_read: Arc<AtomicUsize>,
    largest: Arc<AtomicUsize>,
}

struct Said {
    text: String,
    /// The largest batch that any operator ran.
    largest: Arc<AtomicUsize>,
}

impl ModuleKind for Says {
    fn module_type(&self) -> ModuleType {
        ModuleType::new("says", "says what is in its file", ModelNeed::Required)
            .input("image", ValueType::Image, "what comes in")
            .output("payload", ValueType::Bytes, "what goes out")
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        self.n_read.fetch_add(1, Ordering::Relaxed);
        let path = context.base_dir.join(&context.module.variants[0].model);
        let text = std::fs::read_to_string(&path).map_err(|e| OperatorError::Other(e.to_string()));
        match text?.as_str() {
            "bad" => Err(OperatorError::Other("it is bad".to_owned())),
            text => Ok(Box::new(Said {
                text: text.to_owned(),
                largest: self.largest.clone(),
            })),
        }
    }
}

impl Operator for Said {
    fn run(&mut self, _: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        self.largest.fetch_max(batch.len(), Ordering::Relaxed);
        let result = |_| Ok(vec![Value::Bytes(self.text.clone().into())]);
        batch.iter().map(result).collect()
    }

    fn example(&self, _: usize) -> Inputs {
        Vec::new()
    }
}

/// A loader of one model that `n` modules name, each by a file of its own; the files go with the test.
struct World {
    folder: PathBuf,
    loader: OperatorLoader,
    n_read: Arc<AtomicUsize>,
    largest: Arc<AtomicUsize>,
}

/// A backend whose models ran before, or did not.
struct Ran(bool);

impl Backend for Ran {
    fn device_kind(&self) -> &'static str {
        "cpu"
    }

    fn load(&mut self, _: &Path) -> Result<Box<dyn Model>, BackendError> {
        unreachable!("the type of these tests has no model")
    }

    fn take_cold(&mut self) -> bool {
        !self.0
    }
}

impl World {
    fn new(name: &str, n: usize, content: &str) -> Self {
        World::on(Ran(false), name, n, content)
    }

    fn on(backend: Ran, name: &str, n: usize, content: &str) -> Self {
        let of = format!("spillgate-sources-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(of);
        std::fs::create_dir_all(&folder).unwrap();
        let module = |i| {
            std::fs::write(folder.join(format!("{i}.pt")), content).unwrap();
            format!(
                "m{i}: {{ op: says, model: {i}.pt, batch: {{ max: 4 }}, inputs: {{ image: $source.frame }} }}"
            )
        };
        let modules: Vec<String> = (1..=n).map(module).collect();
        let yaml = format!(
            "{{ name: p, slo: 1s, modules: {{ {} }}, outputs: {{ payload: $m1.payload }} }}",
            modules.join(", ")
        );
        let says = Says::default();
        let (n_read, largest) = (says.n_read.clone(), says.largest.clone());
        let mut library = Library::new();
        library.register(says);
        let compiled =
            compile(&yaml, "p.yaml", &library.catalog(), None).unwrap_or_else(|e| panic!("{e}"));
        let pipeline = Arc::new(compiled.pipeline);
        let source = |i: usize| Source {
            worker: WorkerSpec {
                worker: WorkerId(0),
                pipeline: pipeline.clone(),
                base_dir: folder.clone(),
                module: ModuleId(i as u16),
                execution: Default::default(),
                from_start: true,
                load: None,
                members: None,
            },
            member: MemberId::default(),
            files: vec![ListedFile::now(folder.join(format!("{i}.pt")))],
        };
        let sources = (1..=n).map(source).collect();
        let backend: BackendFactory = Box::new(|| Ok(Box::new(backend)));
        let weights = Arc::from([WeightsSpec { sources }]);
        let loader = OperatorLoader::new(backend, Arc::new(library), weights).unwrap();
        World {
            folder,
            loader,
            n_read,
            largest,
        }
    }

    /// What the model says once it is loaded.
    fn load(&mut self) -> Result<String, String> {
        let loaded = self.loader.load(WeightsId(0), true);
        let results = loaded.map_err(|e| e.to_string())?.run(0, &[Vec::new()]);
        match &results[0].as_ref().unwrap()[0] {
            Value::Bytes(bytes) => Ok(String::from_utf8(bytes.to_vec()).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, i: usize, content: &str) {
        std::fs::write(self.folder.join(format!("{i}.pt")), content).unwrap();
    }

    fn remove(&self, i: usize) {
        std::fs::remove_file(self.folder.join(format!("{i}.pt"))).unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn while_the_device_serves_a_model_runs_alone_before_it_is_there_unless_one_like_it_ran() {
    for (has_ran, is_serving, largest) in [
        (false, true, 1),
        (false, false, 4),
        (true, true, 0),
        (true, false, 4),
    ] {
        let mut world = World::on(Ran(has_ran), "largest", 1, "one");
        world.loader.load(WeightsId(0), is_serving).unwrap();
        assert_eq!(world.largest.load(Ordering::Relaxed), largest);
    }
}

#[test]
fn a_model_is_read_from_any_file_that_is_as_it_was() {
    let mut world = World::new("any", 3, "one");
    assert_eq!(world.load().unwrap(), "one");
    world.write(1, "another");
    assert_eq!(world.load().unwrap(), "one", "of the second file");
    world.remove(2);
    assert_eq!(world.load().unwrap(), "one", "of the third file");
    assert_eq!(world.n_read.load(Ordering::Relaxed), 3);
}

#[test]
fn without_a_file_that_is_as_it_was_the_error_names_each() {
    let mut world = World::new("none", 2, "one");
    world.write(1, "another");
    world.remove(2);
    let why = world.load().unwrap_err();
    assert!(
        why.starts_with("its 2 names had equal files when they were listed, and none of these can be loaded; module m1: model 1.pt: its file "),
        "{why}"
    );
    assert!(
        why.contains("1.pt changed since it was listed; restart the server"),
        "{why}"
    );
    assert!(why.contains("; module m2: model 2.pt: its file "), "{why}");
    assert!(why.contains("2.pt cannot be had: No such file"), "{why}");
    assert_eq!(world.n_read.load(Ordering::Relaxed), 0);
}

#[test]
fn a_model_that_cannot_be_read_costs_two_reads_however_many_name_it() {
    let mut world = World::new("bad", 9, "bad");
    let why = world.load().unwrap_err();
    assert_eq!(world.n_read.load(Ordering::Relaxed), READS_MAX);
    assert!(why.contains("module m1 (says): it is bad; "), "{why}");
    for i in 1..=9 {
        world.remove(i);
    }
    let why = world.load().unwrap_err();
    assert!(why.ends_with("; and 5 more"), "{why}");
}

#[test]
fn a_file_that_one_module_names_alone_is_read_as_it_is() {
    let mut world = World::new("alone", 1, "one");
    world.write(1, "another");
    assert_eq!(world.load().unwrap(), "another");
}
