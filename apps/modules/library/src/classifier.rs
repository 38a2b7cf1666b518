//! `classifier`: names the class of the whole picture or, where boxes are wired, of each box. All
//! cut-outs of a batch are one forward.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Label, LeftOut, Tensor, Value};

use crate::batch::{Crops, Parts, example_boxes, example_image, list, only, pass_over_pictures};
use crate::input::InputBuffers;
use crate::labels;
use crate::models::{Models, wrong_shape};
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::picture::{self, FitBy};
use crate::scores::{Activation, is_class_scores, top};

/// The type `classifier`.
pub(crate) struct Classifier;

/// The input of most classifiers trained on ImageNet.
pub(crate) const SIDE: usize = 224;

impl ModuleKind for Classifier {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new(
            "classifier",
            "names the class of a picture or of each box",
            ModelNeed::Required,
        )
        .input("image", ValueType::Image, "the picture")
        .optional_input(
            "boxes",
            ValueType::Boxes,
            "classify these parts instead of the whole picture",
        )
        .output(
            "labels",
            ValueType::Labels,
            "the best `top` classes of the picture, or of each box one after the other",
        )
        .option(
            "top",
            OptionType::Integer(1, 100),
            "how many classes to name, best first (default 1)",
        )
        .option(
            "labels",
            OptionType::File,
            "class names, one a line (default: beside the model, light.pt has light.labels)",
        )
        .option(
            "region",
            OptionType::Numbers(4),
            "part of each box to look at: [left, top, right, bottom] in fractions of it (default [0, 0, 1, 1])",
        )
        .option(
            "confidence",
            OptionType::Number(0.0, 1.0),
            "least score of a class; a box without such a class is `unknown` (default 0)",
        )
        .option(
            "thresholds",
            OptionType::NumberByText(0.0, 1.0),
            "least scores of single classes in place of `confidence`: `{ cat: 0.7, dog: 0.4 }` (default: none)",
        )
        .time(ExecutionTime::VariesWith("boxes".to_owned()));
        let ty = picture::options(ty, ", else [224, 224]");
        let ty = picture::fit_options(ty, "stretch");
        Activation::option(ty)
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let k = options.count("top", 1)?;
        let labels_file = options.file("labels")?;
        let with_boxes = context.module.inputs.get(1).is_some_and(Option::is_some);
        let region = picture::region(&options, with_boxes)?;
        let limit = context.limits.objects;
        let buffers = InputBuffers::of(&*context.backend);
        let models = Models::load(&mut context)?;
        let facts = models.facts()?;
        let all = labels::of_variants(&options, &models, &facts, labels_file.as_deref())?;
        let activation = Activation::read(&options, &facts)?;
        let mut variants = Vec::new();
        for (i, (classes, facts)) in all.into_iter().zip(&facts).enumerate() {
            let model = models.name(i).to_owned();
            let size = picture::size(&options, &model, (models.input(i), facts), Some(SIDE))?;
            let least = least(&options, &model, &classes)?;
            let mut crops = Crops::new(region, size, limit, buffers.clone());
            crops.format = picture::format(&options, facts)?;
            variants.push(Variant {
                model,
                fit: picture::fit(&options, facts, "stretch")?,
                crops,
                classes,
                least,
            });
        }
        let is_said = !options.has("activation") && activation == Activation::None;
        let best = Best {
            is_said,
            variants,
            with_boxes,
            k,
            activation,
            buffers,
        };
        Ok(Box::new(OnePassOperator::new(models, best)))
    }
}

/// The least score of each class of `model`.
///
/// # Errors
/// When `thresholds` has a class that the model does not have.
fn least(
    options: &Options<'_>,
    model: &str,
    classes: &[Arc<str>],
) -> Result<Vec<f32>, OperatorError> {
    let given = options.numbers_by_text("thresholds")?;
    let names: BTreeSet<&str> = classes.iter().map(|class| &**class).collect();
    if let Some((class, _)) = given.iter().find(|(class, _)| !names.contains(class)) {
        return Err(labels::unknown(
            options,
            "thresholds",
            class,
            (model, classes),
        ));
    }
    let confidence = options.number("confidence", 0.0)?;
    let given: BTreeMap<&str, f32> = given.into_iter().collect();
    let of = |class: &Arc<str>| given.get(&**class).copied().unwrap_or(confidence);
    Ok(classes.iter().map(of).collect())
}

struct Variant {
    /// Its file.
    model: String,
    /// Of whole pictures.
    fit: FitBy,
    crops: Crops,
    classes: Arc<[Arc<str>]>,
    /// The least score of each class.
    least: Vec<f32>,
}

/// The best classes of pictures.
struct Best {
    variants: Vec<Variant>,
    with_boxes: bool,
    k: usize,
    activation: Activation,
    /// The file says that its scores are probabilities.
    is_said: bool,
    buffers: InputBuffers,
}

impl Best {
    /// Those of each row of scores: the best `k` of the classes that reach their least score, fewer where fewer do.
    fn of(
        &self,
        variant: usize,
        n: usize,
        mut scores: Tensor,
    ) -> Result<Vec<Vec<Label>>, OperatorError> {
        let Variant {
            model,
            classes,
            least,
            ..
        } = &self.variants[variant];
        if !is_class_scores(&scores, n, classes.len()) {
            let expected = format!("[{n}, {}] (one score a class)", classes.len());
            return Err(wrong_shape(model, expected, &scores.shape));
        }
        let is_none = |v: &f32| v.is_finite() && !(-0.01..=1.01).contains(v);
        if let Some(v) = scores.data.iter().find(|v| self.is_said && is_none(v)) {
            return Err(OperatorError::Unfit(format!(
                "{model}: by its metadata (task: classify) it gives probabilities, and a score is {v}; write options: {{ activation: softmax }}"
            )));
        }
        let labels = |row: &mut [f32]| -> Vec<Label> {
            self.activation.apply(row);
            let reach = |(class, score): &(usize, f32)| *score >= least[*class];
            let label = |(class, score): (usize, f32)| Label {
                label: Arc::clone(&classes[class]),
                score,
                left_out: None,
            };
            let sorted = top(row, row.len()).into_iter();
            sorted.filter(reach).take(self.k).map(label).collect()
        };
        let rows = scores.data.chunks_exact_mut(classes.len());
        Ok(rows.map(labels).collect())
    }

    /// The same, each with as many labels as a box has.
    fn of_boxes(
        &self,
        variant: usize,
        n: usize,
        scores: Tensor,
    ) -> Result<Vec<Vec<Label>>, OperatorError> {
        let missing = self.missing(variant);
        let rows = scores
            .data
            .chunks_exact(self.variants[variant].classes.len());
        let is_none: Vec<bool> = rows.map(|row| row.iter().all(|v| v.is_nan())).collect();
        let mut all = self.of(variant, n, scores)?;
        for (labels, is_none) in all.iter_mut().zip(is_none) {
            let there = labels.len();
            let unknown = missing(is_none.then_some(LeftOut::NoNumber));
            labels.extend_from_slice(&unknown[there..]);
        }
        Ok(all)
    }

    /// The labels of a box of which no class is known, perhaps since it was not looked at.
    fn missing(&self, variant: usize) -> impl Fn(Option<LeftOut>) -> Vec<Label> + Send + use<> {
        let n = self.k.min(self.variants[variant].classes.len());
        move |why| {
            let unknown = Label {
                label: Arc::from("unknown"),
                score: 0.0,
                left_out: why,
            };
            vec![unknown; n]
        }
    }
}

impl Prepare for Best {
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass {
        let best = self.clone();
        let Variant { crops, fit, .. } = &best.variants[variant];
        if best.with_boxes {
            let missing = best.missing(variant);
            return crops.pass(
                Parts::of(batch, true).frames(),
                move |why| missing(Some(why)),
                move |n, outputs| self.of_boxes(variant, n, only(outputs)?),
                |labels| vec![Value::Labels(list(labels.concat()))],
            );
        }
        let size = (crops.width, crops.height);
        pass_over_pictures(
            &best.buffers,
            (size, &crops.format),
            batch,
            |image, target, resampler| fit.fit(image, size).paint(image, resampler, target),
            move |pictures, outputs| {
                let scores = only(outputs)?;
                let all = self.of(variant, pictures.len(), scores)?;
                Ok(all
                    .into_iter()
                    .map(|labels| vec![Value::Labels(list(labels))])
                    .collect())
            },
        )
    }
}

impl OnePass for Best {
    fn example(&self, objects: usize) -> Inputs {
        vec![
            Some(example_image()),
            self.with_boxes.then(|| example_boxes(objects)),
        ]
    }
}
