//! Which module serves a model file, as far as the file says: for people who bring one.

use spillgate_backend::description::{Description, Port};

use crate::facts::Facts;
use crate::heads::Head;

/// Tasks that are known, and what is said of those that no module serves.
const KNOWN: [&str; 7] = [
    "detect", "segment", "pose", "classify", "embed", "obb", "semantic",
];

/// A module for a model file.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// Its type.
    pub op: &'static str,
    /// Its outputs that people look at first.
    pub outputs: &'static [&'static str],
    /// Its options, as YAML writes them; empty where the file says all.
    pub options: Vec<(&'static str, String)>,
    /// The batch, where the file bounds it.
    pub batch_max: Option<u32>,
    /// Why, and what is to be known besides: a sentence each.
    pub because: Vec<String>,
}

impl Suggestion {
    /// Of a model that no module serves, for this reason: for people who know better.
    pub fn of_none(why: String) -> Self {
        Suggestion {
            op: "model",
            outputs: &["tensor"],
            options: Vec::new(),
            batch_max: None,
            because: vec![why],
        }
    }
}

/// The module that serves a model with this description. `named` says whether a file beside it names its classes.
///
/// # Errors
/// What contradicts itself, or is served by no module.
pub fn suggest(description: &Description, named: bool) -> Result<Suggestion, String> {
    let facts = Facts::of(description)?;
    let mut suggestion = Suggestion {
        op: "model",
        outputs: &["tensor"],
        options: Vec::new(),
        batch_max: facts.answers,
        because: Vec::new(),
    };
    let said = facts.task.as_deref();
    let task = said.filter(|word| KNOWN.contains(word));
    let head = facts.head.as_deref();
    let is_vector = |port: &Port| port.name.contains("embed") || port.name.contains("pool");
    let outputs = &description.outputs;
    let rank = |port: &Port| port.axes.as_ref().map(Vec::len);
    let because = &mut suggestion.because;
    match said {
        Some(word) if !KNOWN.contains(&word) => because.push(format!(
            "its metadata has task: {word}, which is not known, so this goes by its outputs"
        )),
        Some("classify") => because.push("its metadata has task: classify".to_owned()),
        Some("embed") => because.push("its metadata has task: embed".to_owned()),
        Some(task) => {
            // What is none is refused, with what it is.
            Head::said(&facts)?;
            because.push(format!("its metadata has task: {task}"));
        }
        None => because.push("its metadata names no task, so this goes by its outputs".to_owned()),
    }
    let is_classes = head.is_some_and(|head| head.starts_with("classes"));
    let finds = match task {
        Some(task) => !matches!(task, "classify" | "embed"),
        None => {
            !is_classes
                && outputs.first().is_some_and(|port| {
                    rank(port) == Some(3) || outputs.len() > 1 && !is_vector(port)
                })
        }
    };
    let has_names = facts.names.is_some() || named;
    if task == Some("embed") || task.is_none() && outputs.iter().any(is_vector) {
        (suggestion.op, suggestion.outputs) = ("embedder", &["embeddings"]);
    } else if task == Some("classify") || is_classes || !finds && has_names {
        (suggestion.op, suggestion.outputs) = ("classifier", &["labels"]);
        if facts.mean.is_none() && head != Some("Classify") {
            because.push(
                "it does not say mean and deviation: most models trained on ImageNet have mean: [0.485, 0.456, 0.406] and std: [0.229, 0.224, \
                 0.225]"
                    .to_owned(),
            );
        }
    } else if finds {
        (suggestion.op, suggestion.outputs) = ("detector", outputs_of(task));
        let two =
            outputs.len() == 2 && task.is_none() && Head::of(head.unwrap_or_default()).is_none();
        if two {
            suggestion.options.push(("head", "detr".to_owned()));
            because.push("of its two outputs it does not say whether they are those of the head detr or ssd (docs/models.md)".to_owned());
        }
    } else {
        because.push(
            "it does not say what its numbers mean: for boxes write op: detector, for classes op: classifier, for vectors op: embedder, and name \
             its classes in a file beside it"
                .to_owned(),
        );
    }
    let names_classes = matches!(suggestion.op, "detector" | "classifier");
    if names_classes && !has_names {
        because.push("it does not name its classes: write them into a file beside it, one a line in its order".to_owned());
    }
    if facts.size.is_none() {
        let side = if suggestion.op == "detector" {
            640
        } else {
            224
        };
        suggestion
            .options
            .push(("size", format!("[{side}, {side}]")));
        because.push(format!(
            "it does not say how large its input is: {side} is a guess"
        ));
    }
    Ok(suggestion)
}

fn outputs_of(task: Option<&str>) -> &'static [&'static str] {
    match task {
        Some("segment") => &["boxes", "masks"],
        Some("pose") => &["boxes", "keypoints"],
        _ => &["boxes"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(metadata: &[(&str, &str)], outputs: &[(&str, usize)]) -> Description {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let port = |(name, rank): &(&str, usize)| Port {
            name: (*name).to_owned(),
            kind: "float32",
            axes: Some(vec![None; *rank]),
        };
        Description {
            metadata: metadata.iter().map(text).collect(),
            inputs: Vec::new(),
            outputs: outputs.iter().map(port).collect(),
        }
    }

    #[test]
    fn the_type_follows_from_the_task_or_the_outputs() {
        for (metadata, outputs, named, op, options) in [
            (
                &[("task", "detect"), ("imgsz", "[64, 64]")][..],
                &[("output0", 3)][..],
                false,
                "detector",
                &[][..],
            ),
            (
                &[("task", "segment"), ("imgsz", "[64, 64]")],
                &[("output0", 3), ("output1", 4)],
                false,
                "detector",
                &[],
            ),
            (
                &[("task", "classify"), ("imgsz", "[64, 64]")],
                &[("output0", 2)],
                false,
                "classifier",
                &[],
            ),
            (&[], &[("logits", 2)], true, "classifier", &["size"]),
            (&[], &[("logits", 2)], false, "model", &["size"]),
            (&[], &[("output", 3)], true, "detector", &["size"]),
            (
                &[],
                &[("logits", 3), ("pred_boxes", 3)],
                true,
                "detector",
                &["head", "size"],
            ),
            (
                &[],
                &[("boxes", 2), ("labels", 1), ("scores", 1)],
                true,
                "detector",
                &["size"],
            ),
            (
                &[],
                &[("last_hidden_state", 3), ("pooler_output", 2)],
                false,
                "embedder",
                &["size"],
            ),
            (&[], &[], false, "model", &["size"]),
        ] {
            let suggestion = suggest(&described(metadata, outputs), named).unwrap();
            let names: Vec<&str> = suggestion.options.iter().map(|(name, _)| *name).collect();
            assert_eq!(
                (suggestion.op, names.as_slice()),
                (op, options),
                "{outputs:?}"
            );
        }
        let error = suggest(&described(&[("task", "obb")], &[]), false).unwrap_err();
        assert!(error.contains("oriented boxes"), "{error}");
    }
}
