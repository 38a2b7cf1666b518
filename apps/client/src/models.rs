//! Which model of a family the frames are for: `--model MODULE=NAME`.

use std::collections::HashMap;

use anyhow::{Result, bail};
use indexmap::IndexMap;
use spillgate_proto::pb;

/// Most payloads of a run after each was repeated for every model.
pub(crate) const PAYLOADS_MAX: usize = 1 << 20;

/// A module and the name of one of its models.
pub(crate) fn choice(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((module, name)) if !module.is_empty() && !name.is_empty() => {
            Ok((module.to_owned(), name.to_owned()))
        }
        _ => Err("write MODULE=NAME, like faces=cam-17".to_owned()),
    }
}

/// One model for each module.
pub(crate) fn of_each(choices: &[(String, String)]) -> Result<HashMap<String, String>> {
    let mut of = HashMap::new();
    for (module, name) in choices {
        if let Some(other) = of.insert(module.clone(), name.clone()) {
            bail!("--model: {module} is to run {other} and {name}; name one model a module");
        }
    }
    Ok(of)
}

/// The frames, each as often as the module with the most models named has models, with these models in turn.
pub(crate) fn in_turn(
    choices: &[(String, String)],
    frames: Vec<pb::Frame>,
) -> Result<Vec<pb::Frame>> {
    let mut by_module: IndexMap<&str, Vec<&str>> = IndexMap::new();
    for (module, name) in choices {
        by_module.entry(module).or_default().push(name);
    }
    let most = by_module.values().map(Vec::len).max().unwrap_or(1);
    if frames.len().saturating_mul(most) > PAYLOADS_MAX {
        bail!(
            "--model: {} payloads for {most} models each are more than {PAYLOADS_MAX}; give less of one",
            frames.len()
        );
    }
    let mut all = Vec::with_capacity(frames.len() * most);
    for frame in frames {
        for turn in 0..most {
            let of = |(module, names): (&&str, &Vec<&str>)| {
                ((*module).to_owned(), names[turn % names.len()].to_owned())
            };
            all.push(pb::Frame {
                models: by_module.iter().map(of).collect(),
                ..frame.clone()
            });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_one_model() {
        let choices = ["m=a", "n=a"].map(|text| choice(text).unwrap());
        assert_eq!(of_each(&choices).unwrap().len(), 2);
        let choices = ["m=a", "m=b"].map(|text| choice(text).unwrap());
        let error = of_each(&choices).unwrap_err().to_string();
        assert_eq!(
            error,
            "--model: m is to run a and b; name one model a module"
        );
    }

    #[test]
    fn a_choice_is_a_module_and_a_name() {
        let of = |module: &str, name: &str| Ok((module.to_owned(), name.to_owned()));
        assert_eq!(choice("faces=cam-17"), of("faces", "cam-17"));
        assert_eq!(choice("faces=a=b"), of("faces", "a=b"));
        for wrong in ["", "faces", "=a", "faces="] {
            assert!(choice(wrong).is_err(), "{wrong}");
        }
    }
}
