//! Operators of modules: they are built, and their models run until they take as long as they will.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate_backend::operator::{BuildContext, Inputs, Library, Operator, OperatorError};
use spillgate_backend::{Backend, BackendError};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::id::{MemberId, ModuleId, WorkerId};

use crate::members::Members;

/// Most time for which a model runs on its own example before it serves, if it is loaded when its device starts. It
/// runs at least [`FIRST_RUNS`] times. A model that is loaded while others serve runs just so many times.
pub const WARM_UP_MAX: Duration = Duration::from_secs(2);
/// libtorch prepares a graph in its first run, which takes several times as long as the others.
pub const FIRST_RUNS: usize = 2;
/// Objects of an example frame, for modules that work on objects.
pub const EXAMPLE_OBJECTS: usize = 3;

/// A worker to be built: one module of one pipeline.
#[derive(Clone)]
pub struct WorkerSpec {
    /// Its id.
    pub worker: WorkerId,
    /// Its pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Folder of the pipeline's file.
    pub base_dir: PathBuf,
    /// Its module; `ModuleId::SOURCE` decodes frames.
    pub module: ModuleId,
    /// Expected execution times by variant and batch size.
    pub execution: ModuleExecution,
    /// It is loaded when its device starts. Other workers are loaded when a controller asks for them.
    pub from_start: bool,
    /// The files of its module's family, if it has one. `None`: any of them may be loaded.
    pub members: Option<Arc<dyn Members>>,
    /// How long reading a model takes, as the profile says.
    pub load: Option<Duration>,
}

/// Makes the backend of a device on the device's own thread.
pub type BackendFactory = Box<dyn FnOnce() -> Result<Box<dyn Backend>, BackendError> + Send>;

/// The backend of an emulated device has no models.
pub(crate) struct NoModels;

impl Backend for NoModels {
    fn device_kind(&self) -> &'static str {
        "emulated"
    }

    fn load(
        &mut self,
        path: &std::path::Path,
    ) -> Result<Box<dyn spillgate_backend::Model>, BackendError> {
        Err(BackendError::Load {
            path: path.to_owned(),
            detail: "an emulated device runs no models".to_owned(),
        })
    }
}

/// Whether a member of the module's family may be loaded.
pub(crate) fn may_load(spec: &WorkerSpec, member: MemberId) -> Result<(), OperatorError> {
    let module = &spec.pipeline.modules[spec.module.idx()];
    let (Some(family), Some(members)) = (&module.family, &spec.members) else {
        return Ok(());
    };
    members.may_load(member).map_err(|why| {
        let name = family.name(member).unwrap_or("?");
        OperatorError::Other(format!("module {}: model {name}: {why}", module.name))
    })
}

/// Builds the operator of one module, for that member of its family if it has one.
///
/// # Errors
/// When a model or another file is missing or does not fit.
pub fn build_operator(
    spec: &WorkerSpec,
    member: MemberId,
    library: &Library,
    backend: &mut dyn Backend,
) -> Result<Box<dyn Operator>, OperatorError> {
    let all = &spec.pipeline.modules[spec.module.idx()];
    let one;
    let module = match &all.family {
        None => all,
        Some(family) if family.name(member).is_none() => {
            let (name, n) = (&all.name, family.members.len());
            return Err(OperatorError::Other(format!(
                "module {name}: its family has no model {}, counted from 0; it has {n}",
                member.idx()
            )));
        }
        Some(_) => {
            one = all.of_member(member);
            &one
        }
    };
    let kind = library.get(&module.op).ok_or_else(|| {
        OperatorError::Other(format!(
            "module {}: no type \"{}\" in this server",
            module.name, module.op
        ))
    })?;
    let context = BuildContext {
        module,
        base_dir: &spec.base_dir,
        limits: &spec.pipeline.limits,
        backend,
    };
    kind.build(context)
        .map_err(|e| OperatorError::Other(format!("module {} ({}): {e}", module.name, module.op)))
}

/// The same while requests wait for the model: ready to run. It has run alone where its first runs would take longer
/// ([`Backend::take_cold`]).
///
/// # Errors
/// As [`build_operator`].
pub fn serving_operator(
    spec: &WorkerSpec,
    member: MemberId,
    library: &Library,
    backend: &mut dyn Backend,
) -> Result<Box<dyn Operator>, OperatorError> {
    backend.take_cold();
    let mut operator = build_operator(spec, member, library, backend)?;
    if backend.take_cold() {
        warm_up(spec, &mut *operator, 0);
    }
    Ok(operator)
}

/// Runs a model on its own example, each variant that may serve at each batch size that it may have to serve. The first run of a size
/// allocates memory and makes kernels and plans of execution, and requests should not wait for that. Larger sizes than 1 run `of_larger` times
/// each ([`Backend::first_runs`]): none where requests wait for the model. A model that fails or panics
/// on its example serves all the same, because real requests may differ.
pub fn warm_up(spec: &WorkerSpec, operator: &mut dyn Operator, of_larger: usize) {
    let module = &spec.pipeline.modules[spec.module.idx()];
    if module.variants.is_empty() {
        return;
    }
    let start = Instant::now();
    let most = match of_larger > 0 && module.family.is_none() {
        true => module.batch.max,
        false => 1,
    };
    let served = module.served();
    let variants = match spec.pipeline.adapted() == Some(spec.module) {
        true => 0..module.variants.len(),
        false => served..served + 1,
    };
    let first = variants.clone().flat_map(|v| [(v, 1); FIRST_RUNS]);
    let larger = (2..=most).flat_map(|size| {
        let each = variants.clone().map(move |v| (v, size));
        each.flat_map(|run| std::iter::repeat_n(run, of_larger))
    });
    let n_first = FIRST_RUNS * variants.len();
    for (run, (variant, size)) in first.chain(larger).enumerate() {
        if run >= n_first && start.elapsed() > WARM_UP_MAX {
            return;
        }
        let inputs: Vec<Inputs> = (0..size)
            .map(|_| operator.example(EXAMPLE_OBJECTS))
            .collect();
        let results = AssertUnwindSafe(|| operator.run(variant, &inputs));
        let error = match std::panic::catch_unwind(results) {
            Ok(results) => results
                .into_iter()
                .find_map(Result::err)
                .map(|e| e.to_string()),
            Err(_) => Some("it panicked".to_owned()),
        };
        if let Some(error) = error {
            tracing::warn!(module = module.name, error, "fails on its own example");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use spillgate_backend::operator::{BuildContext, ModuleKind, Outputs};
    use spillgate_pipeline::catalog::{ModelNeed, ModuleType, ValueType};
    use spillgate_pipeline::compile::compile;
    use spillgate_process::value::Value;

    use super::*;
    use crate::weights::loader::{Source, WeightsSpec};

    /// Notes the sizes of its batches; fails from a size on, and panics from one.
    #[derive(Clone)]
    struct Noted {
        sizes: Arc<Mutex<Vec<usize>>>,
        fails_from: usize,
        panics_from: usize,
    }

    impl ModuleKind for Noted {
        fn module_type(&self) -> ModuleType {
            ModuleType::new("noted", "notes its batches", ModelNeed::Required)
                .input("image", ValueType::Image, "what comes in")
                .output("payload", ValueType::Bytes, "what goes out")
        }

        fn build(&self, _: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Operator for Noted {
        fn run(&mut self, _: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
            self.sizes.lock().push(batch.len());
            assert!(batch.len() < self.panics_from, "told to");
            let result = |_| match batch.len() < self.fails_from {
                true => Ok(vec![Value::Bytes("x".into())]),
                false => Err(OperatorError::Other("does not fit".to_owned())),
            };
            batch.iter().map(result).collect()
        }

        fn example(&self, objects: usize) -> Inputs {
            assert!(objects > 0);
            vec![Some(Value::Bytes("x".into()))]
        }
    }

    /// Sizes that a module with batches of four has run once it is loaded, when its device starts or later.
    fn warmed(fails_from: usize, panics_from: usize, from_start: bool) -> Vec<usize> {
        const YAML: &str =
            "{ name: p, slo: 1s, modules: { m: { op: noted, model: m.pt, batch: { max: 4 },
            inputs: { image: $source.frame } } }, outputs: { payload: $m.payload } }";
        let noted = Noted {
            sizes: Arc::default(),
            fails_from,
            panics_from,
        };
        let mut library = Library::new();
        library.register(noted.clone());
        let compiled =
            compile(YAML, "p.yaml", &library.catalog(), None).unwrap_or_else(|e| panic!("{e}"));
        let worker = WorkerSpec {
            worker: WorkerId(0),
            pipeline: Arc::new(compiled.pipeline.clone()),
            base_dir: PathBuf::new(),
            module: ModuleId(1),
            execution: ModuleExecution::default(),
            from_start,
            members: None,
            load: None,
        };
        let source = Source {
            worker,
            member: MemberId::default(),
            files: Vec::new(),
        };
        let weights = WeightsSpec {
            sources: vec![source],
        };
        let built = weights.build(&library, &mut NoModels, !from_start);
        built.expect("it loads");
        noted.sizes.lock().clone()
    }

    #[test]
    fn a_model_that_was_loaded_has_run_at_each_size() {
        assert_eq!(warmed(100, 100, true), [1, 1, 2, 3, 4]);
        assert_eq!(warmed(100, 100, false), [1, 1], "beside others that serve");
    }

    #[test]
    fn a_model_that_fails_on_its_example_is_loaded() {
        assert_eq!(warmed(3, 100, true), [1, 1, 2, 3]);
        assert_eq!(warmed(100, 2, true), [1, 1, 2]);
    }
}
