//! Which model of each family a request is for: the one that its frame names, else the default of the family.

use std::sync::Arc;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::MemberId;

use crate::refusal::Refusal;

/// The member of each module of a pipeline, by the module's ordinal. `None` where no module has a family.
pub type Members = Option<Arc<[MemberId]>>;

/// The members that a frame asks for, which names models by module.
///
/// # Errors
/// When it names a module that has no family, or a model that is not in the family; or names none where the family has no
/// default.
pub fn choose<'n>(
    pipeline: &Pipeline,
    named: impl ExactSizeIterator<Item = (&'n str, &'n str)> + Clone,
) -> Result<Members, Refusal> {
    if named.len() > 0 {
        let is_family = |module: &str| pipeline.families().any(|(m, _)| m.name == module);
        if let Some((module, _)) = named.clone().find(|(module, _)| !is_family(module)) {
            return Err(Refusal::NoFamily {
                module: module.to_owned(),
                families: pipeline.families().map(|(m, _)| m.name.clone()).collect(),
            });
        }
    }
    let mut chosen: Vec<MemberId> = Vec::new();
    for (module, family) in pipeline.families() {
        chosen.resize(pipeline.modules.len(), MemberId::default());
        let name = named.clone().find(|(of, _)| *of == module.name);
        let name = name.map(|(_, name)| name).filter(|name| !name.is_empty());
        chosen[module.id.idx()] = match name {
            Some(name) => family.find(name).ok_or_else(|| Refusal::UnknownModel {
                module: module.name.clone(),
                name: name.to_owned(),
                near: family.near(name),
                n_members: family.members.len(),
            })?,
            None => family.default.ok_or_else(|| Refusal::UnnamedModel {
                module: module.name.clone(),
                example: family.name(MemberId(0)).unwrap_or("NAME").to_owned(),
            })?,
        };
    }
    Ok((!chosen.is_empty()).then(|| chosen.into()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_pipeline::family::{Family, FamilyModel};
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    /// Three modules in a chain: the first without a family, the second has the models a and b and no default, the third c
    /// and d and the default d.
    fn pipeline() -> Pipeline {
        let mut pipeline = noop_pipeline(Duration::from_secs(1), &[&[0], &[1], &[2]], &[]);
        let family = |names: [&str; 2], default| {
            let member = |name: &str| FamilyModel {
                name: name.to_owned(),
                file: format!("{name}.pt"),
            };
            Some(Arc::new(Family {
                pattern: "*.pt".to_owned(),
                default,
                members: names.map(member).to_vec(),
            }))
        };
        pipeline.modules[2].family = family(["a", "b"], None);
        pipeline.modules[3].family = family(["c", "d"], Some(MemberId(1)));
        pipeline
    }

    fn chosen(named: &[(&str, &str)]) -> Result<Vec<u16>, String> {
        let members = choose(&pipeline(), named.iter().copied());
        let members = members.map_err(|refusal| refusal.explain())?;
        Ok(members.expect("families").iter().map(|m| m.0).collect())
    }

    #[test]
    fn a_frame_names_members_and_defaults_fill_the_rest() {
        assert_eq!(chosen(&[("m2", "b")]), Ok(vec![0, 0, 1, 1]));
        assert_eq!(chosen(&[("m3", "c"), ("m2", "a")]), Ok(vec![0, 0, 0, 0]));
        // A client that fills the field from an empty flag names none.
        assert_eq!(chosen(&[("m3", ""), ("m2", "a")]), Ok(vec![0, 0, 0, 1]));
    }

    #[test]
    fn a_pipeline_without_families_has_no_members() {
        let plain = noop_pipeline(Duration::from_secs(1), &[&[0]], &[]);
        assert_eq!(choose(&plain, [].into_iter()), Ok(None));
        let error = choose(&plain, [("m1", "a")].into_iter()).unwrap_err();
        let text = "models: \"m1\" has no family of models, nor has any other module of the pipeline; leave models out";
        assert_eq!(error.explain(), text);
    }

    #[test]
    fn what_is_unknown_or_missing_is_named() {
        let error = |named: &[(&str, &str)]| chosen(named).unwrap_err();
        assert_eq!(
            error(&[("m2", "a"), ("m4", "x")]),
            "models: \"m4\" has no family of models; modules with one: m2, m3"
        );
        assert_eq!(
            error(&[("m2", "cam")]),
            "models: m2 has no model named \"cam\"; its family has 2"
        );
        assert_eq!(
            error(&[("m2", "a"), ("m3", "dd")]),
            "models: m3 has no model named \"dd\"; did you mean \"d\"? Its family has 2"
        );
        assert_eq!(
            error(&[]),
            "models: the frame names no model for m2, whose family has no default_model; name one, like m2: a"
        );
    }
}
