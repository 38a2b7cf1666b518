//! The families of models: their files are listed and named.

use std::sync::Arc;

use crate::diagnostic::Sink;
use crate::family::{BadPattern, Family, FamilyModel, Files, MEMBERS_MAX, Pattern};
use crate::near::known;
use crate::problem::Problem;
use crate::spec::FamilySpec;

/// The family of a module; `None` when something is wrong with it, which is noted. Without a way to list files it has
/// no members.
pub(super) fn list(
    sink: &mut Sink,
    spec: &FamilySpec,
    files: Option<Files<'_>>,
) -> Option<Arc<Family>> {
    let (pattern, place) = (&spec.models.value, &spec.models.place);
    let read = match Pattern::read(pattern) {
        Ok(read) => read,
        Err(BadPattern(why)) => {
            let pattern = pattern.clone();
            sink.error(place, Problem::BadPattern { pattern, why });
            return None;
        }
    };
    let mut family = Family {
        pattern: pattern.clone(),
        default: None,
        members: Vec::new(),
    };
    let Some(files) = files else {
        return Some(Arc::new(family));
    };
    let names = match files(read.folder, &|name| read.matches(name)) {
        Ok(names) => names,
        Err(why) => {
            let folder = match read.folder {
                "" => ".".to_owned(),
                folder => folder.to_owned(),
            };
            sink.error(place, Problem::NoFolder { folder, why });
            return None;
        }
    };
    if names.is_empty() {
        let pattern = pattern.clone();
        sink.error(place, Problem::NoMatch { pattern });
        return None;
    }
    if names.len() > MEMBERS_MAX {
        let (what, count, limit) = ("models of a family", names.len(), MEMBERS_MAX);
        sink.error(place, Problem::TooMany { what, count, limit });
        return None;
    }
    family.members = names
        .iter()
        .map(|file| FamilyModel {
            name: file
                .rsplit_once('.')
                .map_or(file.as_str(), |(stem, _)| stem)
                .to_owned(),
            file: read.path(file),
        })
        .collect();
    family
        .members
        .sort_unstable_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    if let Some(pair) = family.members.windows(2).find(|p| p[0].name == p[1].name) {
        let problem = Problem::EqualNames {
            name: pair[0].name.clone(),
            first: pair[0].file.clone(),
            second: pair[1].file.clone(),
        };
        sink.error(place, problem);
        return None;
    }
    if let Some(default) = &spec.default {
        family.default = family.find(&default.value);
        if family.default.is_none() {
            let problem = Problem::UnknownMember {
                name: default.value.clone(),
                near: family.near(&default.value),
                known: known(family.members.iter().map(|m| m.name.as_str())),
            };
            sink.error(&default.place, problem);
        }
    }
    Some(Arc::new(family))
}
