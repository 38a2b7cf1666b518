//! Operators are built, and their models run until they take as long as they will.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use spillgate_backend::Backend;
use spillgate_backend::operator::{BuildContext, Inputs, Library, Operator, OperatorError};
use spillgate_pipeline::id::MemberId;

use super::WorkerSpec;

/// Most time for which a model runs on its own example before it serves, if it is loaded when its device starts. It
/// runs at least [`FIRST_RUNS`] times. A model that is loaded while others serve runs just so many times.
pub(crate) const WARM_UP_MAX: Duration = Duration::from_secs(2);
/// libtorch prepares a graph in its first run, which takes several times as long as the others.
pub(crate) const FIRST_RUNS: usize = 2;
/// Objects of an example frame, for modules that work on objects.
pub const EXAMPLE_OBJECTS: usize = 3;

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
