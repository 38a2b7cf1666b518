//! What a model file says of itself, as far as modules use it: what exporters write into the metadata of ONNX models and into the extra
//! file `config.txt` of TorchScript archives, and what the axes of an ONNX model's input tell.
//!
//! Ultralytics writes `task`, `names`, `imgsz`, `head`, `end2end` and `kpt_shape`; `tools/export_models.py` writes the same keys for other
//! models, and `mean`, `std`, `fit`, `crop` and `color`. Values are those of Python or JSON ([`Literal`]), words stand without quotes.

use std::sync::Arc;

use spillgate_backend::description::{Description, Port};

use crate::literal::Literal;

/// Most classes of a model, and most key points of an object: the largest vocabularies have some ten thousand names.
pub(crate) const CLASSES_MAX: usize = 100_000;
/// Least deviation of a channel, in 0 to 1: a thousandth of a grey level.
pub(crate) const STD_MIN: f32 = 4e-6;
/// Longest side of a model's input in pixels.
pub(crate) const SIDE_MAX: usize = 4096;

/// What a model file says of itself. `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    /// Names of the classes, in the model's order; or why what is there is none, for when no other names are given.
    pub(crate) names: Option<Result<Arc<[Arc<str>]>, String>>,
    /// `detect`, `segment`, `pose`, `classify`, `embed`, or a word that no module knows.
    pub(crate) task: Option<String>,
    /// How the outputs are laid out, in the exporter's word.
    pub(crate) head: Option<String>,
    /// Whether the model suppresses overlaps itself.
    pub(crate) suppresses: bool,
    /// How many pictures of a batch it answers: Ultralytics' exports with `nms=True` write the suppression out for so many, and give nothing for
    /// further ones.
    pub(crate) answers: Option<u32>,
    /// How much of the shorter side of a picture a crop keeps, in 0 to 1.
    pub(crate) crop: Option<f32>,
    /// Key points of an object, and numbers of each.
    pub(crate) keypoints: Option<(usize, usize)>,
    /// Width and height of the input in pixels.
    pub(crate) size: Option<(usize, usize)>,
    /// Whether the file's text fixes the size: no other one runs.
    pub(crate) is_fixed: bool,
    /// Whether pixels are interleaved in the input: the last axis holds the colours.
    pub(crate) interleaved: Option<bool>,
    /// Whether the input takes bytes of 0 to 255.
    pub(crate) takes_bytes: bool,
    /// Taken from each channel, in 0 to 1.
    pub(crate) mean: Option<[f32; 3]>,
    /// Each channel is divided by it.
    pub(crate) std: Option<[f32; 3]>,
    /// `stretch`, `letterbox` or `crop`.
    pub(crate) fit: Option<String>,
    /// `rgb` or `bgr`.
    pub(crate) color: Option<String>,
    /// Of each output of an ONNX model.
    pub(crate) outputs: Vec<Port>,
}

impl Facts {
    /// What a description tells.
    ///
    /// # Errors
    /// The first value that is none, or that contradicts another one; and what would be right.
    pub(crate) fn of(description: &Description) -> Result<Self, String> {
        let mut facts = Facts {
            outputs: description.outputs.clone(),
            ..Facts::default()
        };
        let written = Written { description };
        let right = "names of classes, such as {0: 'person', 1: 'car'}";
        facts.names = written.get("names", right, names).transpose();
        facts.task = written.word("task");
        facts.head = written.word("head");
        let is_true = |value: &Literal| match value {
            Literal::Truth(is) => Some(*is),
            Literal::Nothing => Some(false),
            _ => None,
        };
        facts.suppresses = written
            .get("end2end", "True or False", is_true)?
            .unwrap_or(false);
        let args = written.literal("args");
        let has_nms = args.as_ref().and_then(|args| args.get("nms")) == Some(&Literal::Truth(true));
        if has_nms {
            let batch = written.get("batch", "a whole number", Literal::as_count)?;
            facts.answers = batch.and_then(|n| u32::try_from(n).ok());
        }
        facts.crop = written.get("crop", "a number from 0.1 to 1", |value| {
            value
                .as_number()
                .map(|part| part as f32)
                .filter(|part| (0.1..=1.0).contains(part))
        })?;
        facts.keypoints =
            written.get("kpt_shape", "two whole numbers, such as [17, 3]", |value| {
                let [n, each] = whole(value)?;
                (n <= CLASSES_MAX && (2..=3).contains(&each)).then_some((n, each))
            })?;
        let sides = |value: &Literal| {
            // Height comes first; one number is both.
            let [height, width] = whole(value).or_else(|| {
                let side = value.as_count()? as usize;
                Some([side, side])
            })?;
            let is_side = |side| (1..=SIDE_MAX).contains(&side);
            (is_side(width) && is_side(height)).then_some((width, height))
        };
        facts.size = written.get(
            "imgsz",
            "height and width in pixels, such as [640, 640]",
            sides,
        )?;
        facts.mean = written.get("mean", "three numbers in 0 to 1", three)?;
        facts.std = written.get("std", "three numbers above 0", |value| {
            three(value).filter(|std| std.iter().all(|v| *v >= STD_MIN))
        })?;
        facts.fit = written.word("fit");
        facts.color = written.word("color");
        facts.input(&description.inputs)?;
        Ok(facts)
    }

    /// What the axes of the one input tell: `[batch, 3, height, width]` or `[batch, height, width, 3]`.
    fn input(&mut self, inputs: &[Port]) -> Result<(), String> {
        let [input] = inputs else { return Ok(()) };
        self.takes_bytes = input.kind == "uint8";
        let Some([batch, axes @ ..]) = input.axes.as_deref() else {
            return Ok(());
        };
        if batch.is_some() {
            // It runs in pieces of that size.
            self.answers = None;
        }
        let (height, width) = match axes {
            [Some(3), height, width] => (height, width),
            [height, width, Some(3)] => {
                self.interleaved = Some(true);
                (height, width)
            }
            _ => return Ok(()),
        };
        let (Some(height), Some(width)) = (height, width) else {
            return Ok(());
        };
        let side = |side: &i64| {
            usize::try_from(*side)
                .ok()
                .filter(|s| (1..=SIDE_MAX).contains(s))
        };
        let (Some(width), Some(height)) = (side(width), side(height)) else {
            return Err(format!(
                "its input has {width}x{height} pixels; a side may have 1 to {SIDE_MAX}"
            ));
        };
        let own = (width, height);
        if let Some(written) = self.size.filter(|written| *written != own) {
            return Err(format!(
                "its metadata names an input of {}x{} pixels (imgsz), and its input is of {}x{}; export it again",
                written.0, written.1, own.0, own.1
            ));
        }
        (self.size, self.is_fixed) = (Some(own), true);
        Ok(())
    }
}

/// What the exporter wrote.
struct Written<'a> {
    description: &'a Description,
}

impl Written<'_> {
    /// A value, as `read` takes it.
    fn get<T>(
        &self,
        key: &str,
        right: &str,
        read: impl Fn(&Literal) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(text) = self.description.metadata.get(key) else {
            return Ok(None);
        };
        match self.literal(key).as_ref().and_then(read) {
            Some(value) => Ok(Some(value)),
            None => Err(format!(
                "its metadata has {key}: {}, which is not {right}; write that, or leave the key out",
                shown(text)
            )),
        }
    }

    fn literal(&self, key: &str) -> Option<Literal> {
        Literal::parse(self.description.metadata.get(key)?)
    }

    /// A text as it stands; nothing where it is empty.
    fn word(&self, key: &str) -> Option<String> {
        let text = self.description.metadata.get(key)?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// The beginning of a text, on one line.
fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let escaped = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    let mut line: String = text.chars().take(SHOWN_MAX).map(escaped).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        line.push_str("...");
    }
    line
}

/// Names by their numbers, which count from 0, or in a list.
fn names(value: &Literal) -> Option<Arc<[Arc<str>]>> {
    let name = |value: &Literal| match value {
        Literal::Text(text) => Some(Arc::from(text.as_str())),
        Literal::Number(number) => Some(Arc::from(number.to_string())),
        _ => None,
    };
    let mut names: Vec<(usize, Arc<str>)> = match value {
        Literal::List(list) => {
            let list = list.iter().map(name).enumerate();
            list.map(|(i, name)| Some((i, name?)))
                .collect::<Option<_>>()?
        }
        Literal::Map(all) => {
            let number = |key: &Literal| match key {
                Literal::Text(text) => text.parse().ok(),
                key => usize::try_from(key.as_count()?).ok(),
            };
            let all = all
                .iter()
                .map(|(key, value)| Some((number(key)?, name(value)?)));
            all.collect::<Option<_>>()?
        }
        _ => return None,
    };
    names.sort_unstable_by_key(|(number, _)| *number);
    let counted = names
        .iter()
        .enumerate()
        .all(|(i, (number, _))| i == *number);
    let right = counted && !names.is_empty() && names.len() <= CLASSES_MAX;
    right.then(|| names.into_iter().map(|(_, name)| name).collect())
}

fn whole<const N: usize>(value: &Literal) -> Option<[usize; N]> {
    let numbers = value
        .as_list()?
        .iter()
        .map(|v| usize::try_from(v.as_count()?).ok());
    numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

fn three(value: &Literal) -> Option<[f32; 3]> {
    let numbers = value.as_list()?.iter().map(|v| Some(v.as_number()? as f32));
    numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(metadata: &[(&str, &str)], axes: &[Option<i64>]) -> Description {
        let input = Port {
            name: "images".to_owned(),
            kind: "float32",
            axes: Some(axes.to_vec()),
        };
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Description {
            metadata: metadata.iter().map(text).collect(),
            inputs: vec![input],
            outputs: Vec::new(),
        }
    }

    fn names_of(facts: &Facts) -> Vec<&str> {
        let names = facts.names.as_ref().expect("names").as_ref();
        names.expect("names").iter().map(|name| &**name).collect()
    }

    #[test]
    fn what_ultralytics_writes_is_read_in_both_of_its_forms() {
        let free = [None, Some(3), None, None];
        for (names, kpt_shape, end2end) in [
            ("{0: 'person', 1: \"driver's car\"}", "[17, 3]", "True"),
            (
                "{\"1\":\"driver's car\",\"0\":\"person\"}",
                "[17,3]",
                "true",
            ),
        ] {
            let all = [
                ("names", names),
                ("task", "pose"),
                ("head", "Pose"),
                ("imgsz", "[480, 640]"),
                ("kpt_shape", kpt_shape),
                ("end2end", end2end),
                ("stride", "32"),
                ("args", "{'nms': None, 'dynamic': True}"),
            ];
            let facts = Facts::of(&described(&all, &free)).unwrap();
            let names = names_of(&facts);
            assert_eq!(names, ["person", "driver's car"]);
            assert_eq!(facts.task.as_deref(), Some("pose"));
            assert_eq!(facts.size, Some((640, 480)));
            assert_eq!(facts.keypoints, Some((17, 3)));
            assert!(facts.suppresses && !facts.is_fixed);
        }
    }

    #[test]
    fn names_that_are_none_are_told_where_they_are_needed() {
        for wrong in [
            "{0: 'a', 2: 'b'}",
            "{}",
            "person",
            "person,car",
            "{0: {1: 2}}",
            "{0: 'a'",
            "[&a 'x', *a]",
        ] {
            let facts = Facts::of(&described(&[("names", wrong)], &[])).unwrap();
            let error = facts.names.unwrap().unwrap_err();
            assert!(error.contains("its metadata has names: "), "{error}");
        }
        // A batch matters with nms alone.
        assert!(Facts::of(&described(&[("batch", "dynamic")], &[])).is_ok());
    }

    #[test]
    fn an_export_with_nms_answers_as_many_pictures_as_it_was_exported_for() {
        let of = |args: &str, batch| {
            let all = [("args", args), ("batch", "4")];
            let axes = [batch, Some(3), Some(64), Some(64)];
            Facts::of(&described(&all, &axes)).unwrap().answers
        };
        assert_eq!(of("{'nms': True, 'opset': None}", None), Some(4));
        // A fixed batch runs in pieces.
        assert_eq!(of("{'nms': True}", Some(4)), None);
        assert_eq!(of("{'nms': None}", None), None);
        assert_eq!(of("{'nms': False}", None), None);
    }

    #[test]
    fn names_may_be_numbers() {
        let all = [("names", "{0: 'yes', 1: \"None\", 2: 3}")];
        let facts = Facts::of(&described(&all, &[])).unwrap();
        let names = names_of(&facts);
        assert_eq!(names, ["yes", "None", "3"]);
    }

    #[test]
    fn the_input_tells_its_size_and_where_the_colours_are() {
        let of = |axes: &[Option<i64>]| Facts::of(&described(&[], axes)).unwrap();
        let facts = of(&[Some(1), Some(3), Some(320), Some(640)]);
        assert_eq!((facts.size, facts.is_fixed), (Some((640, 320)), true));
        assert_eq!(facts.interleaved, None);
        let facts = of(&[None, Some(320), Some(640), Some(3)]);
        assert_eq!(
            (facts.size, facts.interleaved),
            (Some((640, 320)), Some(true))
        );
        for axes in [&[None, Some(3), None, None][..], &[None, Some(128)], &[]] {
            assert_eq!(of(axes).size, None);
        }
    }

    #[test]
    fn what_is_no_value_or_contradicts_another_one_is_refused_with_its_key() {
        let free = [None, Some(3), None, None];
        for (key, value) in [
            ("imgsz", "[0, 640]"),
            ("imgsz", "[640, 640, 3]"),
            ("imgsz", "[1000000, 640]"),
            ("kpt_shape", "[17, 9]"),
            ("mean", "[nan, 0, 0]"),
            ("std", "[1, 1, 0]"),
            ("std", "[1e-44, 1, 1]"),
            ("crop", "1e-30"),
            ("end2end", "perhaps"),
        ] {
            let error = Facts::of(&described(&[(key, value)], &free)).unwrap_err();
            assert!(
                error.contains(&format!("its metadata has {key}: ")),
                "{error}"
            );
        }
        let fixed = [Some(1), Some(3), Some(320), Some(320)];
        let error = Facts::of(&described(&[("imgsz", "[640, 640]")], &fixed)).unwrap_err();
        assert!(
            error.contains("640x640") && error.contains("320x320"),
            "{error}"
        );
        let huge = [Some(1), Some(3), Some(320), Some(1 << 40)];
        assert!(Facts::of(&described(&[], &huge)).is_err());
    }
}
