//! Which module's variants are chosen request by request, and how.

use crate::diagnostic::{Place, Sink};
use crate::id::VariantId;
use crate::pipeline::Module;
use crate::policy::{Adapt, AdaptName};
use crate::problem::Problem;
use crate::schedule::SchedulePolicy;
use crate::spec::{AdaptSpec, Located};

/// Resolves `policy: { adapt: ... }`. Without it, ours chooses where every variant of the first module with several states its
/// accuracy; else the most accurate variant serves. Under `fixed` the named variant serves.
pub(super) fn resolve(
    sink: &mut Sink,
    modules: &mut [Module],
    written: Option<&Located<AdaptSpec>>,
) -> Option<Adapt> {
    let module = modules.iter_mut().find(|m| m.variants.len() > 1);
    let Some(Located { value, place }) = written else {
        let module = module.filter(|m| is_adaptable(m).is_ok())?;
        warn_dominated(sink, module);
        return Some(Adapt::new(module.id, AdaptName::Spillgate));
    };
    let Some(module) = module else {
        sink.error(place, Problem::NothingAdapts);
        return None;
    };
    if let Some(variant) = &value.variant {
        fix(sink, module, value.name, variant);
    }
    if value.name == AdaptName::Fixed {
        return None;
    }
    if let Err(problem) = is_adaptable(module) {
        sink.error(place, problem);
        return None;
    }
    warn_dominated(sink, module);
    Some(Adapt::new(module.id, value.name))
}

fn fix(sink: &mut Sink, module: &mut Module, name: AdaptName, variant: &Located<u32>) {
    let count = module.variants.len();
    if name != AdaptName::Fixed {
        let name = name.name();
        sink.error(&variant.place, Problem::VariantIsChosen { name });
    } else if variant.value as usize >= count {
        let (module, ordinal) = (module.name.clone(), variant.value);
        let problem = Problem::NoSuchVariant {
            module,
            ordinal,
            count,
        };
        sink.error(&variant.place, problem);
    } else {
        module.fixed = Some(VariantId(variant.value as u16));
    }
}

/// Whether the variants of a module can be chosen request by request; if not, why.
fn is_adaptable(module: &Module) -> Result<(), Problem> {
    let name = module.name.clone();
    if module.variants.iter().any(|v| v.accuracy.is_none()) {
        return Err(Problem::VariantWithoutAccuracy { module: name });
    }
    match module.schedule {
        None | Some(SchedulePolicy::STATIC) => Ok(()),
        Some(schedule) => Err(Problem::ScheduledVariants {
            module: name,
            schedule: schedule.name(),
        }),
    }
}

/// Variants are in order of accuracy: one whose input is larger than that of a more accurate one is never the better choice.
fn warn_dominated(sink: &mut Sink, module: &Module) {
    for pair in module.variants.windows(2) {
        if let (Some(input), Some(better)) = (pair[0].input, pair[1].input)
            && input > better
        {
            let place = Place {
                line: module.line,
                path: format!("modules.{}", module.name),
            };
            sink.warn(&place, Problem::DominatedVariant { input, better });
        }
    }
}
