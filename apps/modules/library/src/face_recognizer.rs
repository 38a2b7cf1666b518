//! `face_recognizer`: says who the person in each box is. The face is cut out at a fixed part of the
//! box; all people of all frames of a batch are one forward.

use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Label, LeftOut, Tensor, Value};

use crate::batch::{Crops, example_boxes, example_image, frames_with_boxes, list, only};
use crate::input::InputBuffers;
use crate::labels;
use crate::models::{Models, wrong_shape};
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::scores::{Activation, best, is_class_scores};

/// The type `face_recognizer`.
pub(crate) struct FaceRecognizer;

/// Where the face is in a person's box.
const REGION: [f32; 4] = [0.0, 0.0, 1.0, 0.42];
/// Side of a cut-out face.
const SIDE: f32 = 40.0;
/// Name of an unknown face.
const UNKNOWN: &str = "unknown";

impl ModuleKind for FaceRecognizer {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new(
            "face_recognizer",
            "says who the person in each box is",
            ModelNeed::Required,
        )
        .input(
            "image",
            ValueType::Image,
            "the picture that the boxes refer to",
        )
        .input("boxes", ValueType::Boxes, "people")
        .output(
            "id",
            ValueType::Labels,
            "one name a box; `unknown` below the option `confidence`, or when the frame's bound \
                 left the box out",
        )
        .option(
            "region",
            OptionType::Numbers(4),
            "part of the box that is the face: [left, top, right, bottom] in fractions of it \
                 (default [0.0, 0.0, 1.0, 0.42])",
        )
        .option(
            "size",
            OptionType::Numbers(2),
            "[width, height] of the model's input in pixels (default [40, 40])",
        )
        .option(
            "confidence",
            OptionType::Number(0.0, 1.0),
            "least probability of a name (default 0.5)",
        )
        .option(
            "labels",
            OptionType::File,
            "names, one a line (default: beside the model, face.pt has face.labels)",
        )
        .time(ExecutionTime::VariesWith("boxes".to_owned()));
        Activation::option(ty)
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let part = options.part("region", REGION)?;
        let size = options.size("size", [SIDE, SIDE])?;
        let confidence = options.number("confidence", 0.5)?;
        let labels_file = options.file("labels")?;
        let buffers = InputBuffers::of(&*context.backend);
        let crops = Crops::new(part, size, context.limits.objects, buffers);
        let models = Models::load(&mut context)?;
        let facts = models.facts()?;
        let activation = Activation::read(&options, &facts)?;
        let all = labels::of_variants(&options, &models, &facts, labels_file.as_deref())?;
        let named = |(i, names): (usize, _)| (models.name(i).to_owned(), names);
        let variants = all.into_iter().enumerate().map(named).collect();
        let unknown = Label {
            label: Arc::from(UNKNOWN),
            score: 0.0,
            left_out: None,
        };
        let faces = Faces {
            crops,
            variants,
            unknown,
            confidence,
            activation,
        };
        Ok(Box::new(OnePassOperator::new(models, faces)))
    }
}

struct Faces {
    crops: Crops,
    /// File and names of each variant.
    variants: Vec<(String, Arc<[Arc<str>]>)>,
    unknown: Label,
    confidence: f32,
    activation: Activation,
}

impl Faces {
    /// The name of each row of scores.
    fn names(
        &self,
        variant: usize,
        n: usize,
        mut scores: Tensor,
    ) -> Result<Vec<Label>, OperatorError> {
        let (model, names) = &self.variants[variant];
        if !is_class_scores(&scores, n, names.len()) {
            let expected = format!("[{n}, {}] (one score a name)", names.len());
            return Err(wrong_shape(model, expected, &scores.shape));
        }
        let name = |row: &mut [f32]| {
            self.activation.apply(row);
            let Some((class, score)) = best(row) else {
                return Label {
                    left_out: Some(LeftOut::NoNumber),
                    ..self.unknown.clone()
                };
            };
            let known = score >= self.confidence;
            let label = if known {
                &names[class]
            } else {
                &self.unknown.label
            };
            Label {
                label: Arc::clone(label),
                score,
                left_out: None,
            }
        };
        let rows = scores.data.chunks_exact_mut(names.len());
        Ok(rows.map(name).collect())
    }
}

impl Prepare for Faces {
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass {
        let faces = self.clone();
        let unknown = faces.unknown.clone();
        faces.crops.pass(
            frames_with_boxes(batch),
            move |why| Label {
                left_out: Some(why),
                ..unknown.clone()
            },
            move |n, outputs| self.names(variant, n, only(outputs)?),
            |names| vec![Value::Labels(list(names))],
        )
    }
}

impl OnePass for Faces {
    fn example(&self, objects: usize) -> Inputs {
        vec![Some(example_image()), Some(example_boxes(objects))]
    }
}
