//! Ways to choose variants that are compared in one run of `simulate`.

use std::sync::Arc;

use crate::files::LoadedPipeline;
use spillgate_pipeline::id::VariantId;
use spillgate_pipeline::policy::{Adapt, AdaptName};

/// A way to choose variants, as given: a name, or `fixed:N` with the ordinal of the variant that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Adapting {
    name: AdaptName,
    variant: Option<VariantId>,
}

/// Reads one.
pub(super) fn adapting(text: &str) -> Result<Adapting, String> {
    let (name, variant) = match text.split_once(':') {
        Some((name, variant)) => (name, Some(variant)),
        None => (text, None),
    };
    let known = AdaptName::ALL.into_iter().find(|a| a.name() == name);
    let known = known.ok_or_else(|| {
        let names = AdaptName::ALL.map(AdaptName::name);
        format!("give one of {}, or fixed:N", names.join(", "))
    })?;
    let variant = match variant {
        None => None,
        Some(_) if known != AdaptName::Fixed => {
            return Err(format!("{name} chooses the variant of each request"));
        }
        Some(ordinal) => {
            let ordinal = ordinal.parse();
            Some(VariantId(ordinal.map_err(
                |_| "give the ordinal of a variant, counted from 0, like fixed:0",
            )?))
        }
    };
    Ok(Adapting {
        name: known,
        variant,
    })
}

/// The pipeline with each of these ways, and its name; as it is where none is given.
///
/// # Errors
/// When the pipeline has no variants to choose from.
pub(super) fn each(
    given: &[Adapting],
    loaded: &LoadedPipeline,
) -> anyhow::Result<Vec<(Option<String>, LoadedPipeline)>> {
    if given.is_empty() {
        return Ok(vec![(None, loaded.clone())]);
    }
    given.iter().map(|way| one(way, loaded)).collect()
}

fn one(
    way: &Adapting,
    loaded: &LoadedPipeline,
) -> anyhow::Result<(Option<String>, LoadedPipeline)> {
    let mut loaded = loaded.clone();
    let pipeline = Arc::make_mut(&mut loaded.pipeline);
    let module = pipeline.modules.iter_mut().find(|m| m.variants.len() > 1);
    let Some(module) = module else {
        anyhow::bail!(
            "--adapt: no module of {} has several variants",
            pipeline.name
        );
    };
    let (id, count) = (module.id, module.variants.len());
    if let Some(variant) = way.variant {
        anyhow::ensure!(
            variant.idx() < count,
            "--adapt: {} has {count} variants, and there is no {}, counted from 0",
            module.name,
            variant.idx()
        );
        module.fixed = Some(variant);
    }
    anyhow::ensure!(
        way.name == AdaptName::Fixed || module.variants.iter().all(|v| v.accuracy.is_some()),
        "--adapt: a variant of {} has no accuracy:, and variants are chosen by it",
        module.name
    );
    pipeline.adapt = (way.name != AdaptName::Fixed).then(|| Adapt::new(id, way.name));
    let name = match way.variant {
        Some(variant) => format!("fixed:{}", variant.idx()),
        None => way.name.name().to_owned(),
    };
    Ok((Some(name), loaded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_a_name_and_fixed_may_name_a_variant() {
        let fixed = adapting("fixed:3").unwrap();
        assert_eq!(
            (fixed.name, fixed.variant),
            (AdaptName::Fixed, Some(VariantId(3)))
        );
        assert_eq!(adapting("greedy").unwrap().variant, None);
        for wrong in ["", "fixd", "fixed:", "fixed:x", "greedy:1", "fixed:-1"] {
            assert!(adapting(wrong).is_err(), "{wrong}");
        }
    }
}
