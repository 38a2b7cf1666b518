//! `detector`: finds objects in a picture. One forward for all frames of a batch, letterboxed to the
//! square input of the variant; boxes decoded, overlaps suppressed, sorted into `vehicles` and `people`
//! by class name.

use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Detection, Value};

use crate::batch::{example_image, list, pass_over_pictures};
use crate::boxes::{BoxLayout, suppress};
use crate::input::InputBuffers;
use crate::labels;
use crate::letterbox::Fit;
use crate::models::{Models, wrong_shape};
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::resample::PixelFormat;

/// The type `detector`.
pub(crate) struct Detector;

const VEHICLES: [&str; 6] = ["vehicle", "car", "truck", "bus", "van", "motorcycle"];
const PEOPLE: [&str; 2] = ["person", "pedestrian"];

impl ModuleKind for Detector {
    fn module_type(&self) -> ModuleType {
        ModuleType::new("detector", "finds objects in a picture", ModelNeed::Required)
            .input("image", ValueType::Image, "the picture")
            .output("boxes", ValueType::Boxes, "all objects, best first")
            .output("vehicles", ValueType::Boxes, "the boxes whose class is in the option `vehicles`")
            .output("people", ValueType::Boxes, "the boxes whose class is in the option `people`")
            .option(
                "confidence",
                OptionType::Number(0.0, 1.0),
                "least score of an object (default 0.4)",
            )
            .option(
                "iou",
                OptionType::Number(0.0, 1.0),
                "greatest overlap of two boxes of one class (default 0.5)",
            )
            .option(
                "max_objects",
                OptionType::Integer(1, 1000),
                "most objects in a frame, best first (default 100)",
            )
            .option(
                "layout",
                OptionType::Choice(BoxLayout::WORDS.map(str::to_owned).to_vec()),
                "of the output: yolo is [batch, 4 + classes, n], xyxy is [batch, n, 6] (default yolo)",
            )
            .option(
                "labels",
                OptionType::File,
                "class names, one a line (default: beside the model, road.pt has road.labels)",
            )
            .option(
                "vehicles",
                OptionType::Texts,
                "classes that go to the output `vehicles` (default: vehicle, car, truck, bus, van, motorcycle)",
            )
            .option(
                "people",
                OptionType::Texts,
                "classes that go to the output `people` (default: person, pedestrian)",
            )
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let labels_file = options.file("labels")?;
        let vehicles = options.texts("vehicles", &VEHICLES)?;
        let people = options.texts("people", &PEOPLE)?;
        let confidence = options.number("confidence", 0.4)?;
        let iou = options.number("iou", 0.5)?;
        let max_objects = options.count("max_objects", 100)?;
        let layout = BoxLayout::of(&options.text("layout", BoxLayout::WORDS[0])?);
        let buffers = InputBuffers::of(&*context.backend);
        let models = Models::load(&mut context)?;
        let all = labels::of_variants(&options, &models, labels_file.as_deref())?;
        let mut variants = Vec::new();
        for (i, classes) in all.into_iter().enumerate() {
            let Some(input) = models.input(i) else {
                return Err(options.error(format_args!(
                    "variant {} needs `input`: the side of its square input in pixels, such as 320",
                    models.name(i)
                )));
            };
            let group = |name: &str| {
                let holds = |group: &[String]| group.iter().any(|g| g == name);
                (holds(&vehicles), holds(&people))
            };
            let groups = classes.iter().map(|c| group(c)).collect();
            variants.push(Variant {
                model: models.name(i).to_owned(),
                input,
                classes,
                groups,
            });
        }
        let objects = Objects {
            variants,
            confidence,
            iou,
            max_objects,
            layout,
            buffers,
        };
        Ok(Box::new(OnePassOperator::new(models, objects)))
    }
}

struct Variant {
    /// Its file.
    model: String,
    input: usize,
    classes: Arc<[Arc<str>]>,
    /// By class: whether it is a vehicle, whether it is a person.
    groups: Vec<(bool, bool)>,
}

struct Objects {
    variants: Vec<Variant>,
    confidence: f32,
    iou: f32,
    max_objects: usize,
    layout: BoxLayout,
    buffers: InputBuffers,
}

impl Objects {
    fn of(&self, variant: usize, fit: &Fit, row: &[f32]) -> Outputs {
        let Variant {
            classes, groups, ..
        } = &self.variants[variant];
        let candidates = self.layout.decode(row, classes.len(), self.confidence);
        let (mut all, mut vehicles, mut people) = (Vec::new(), Vec::new(), Vec::new());
        for candidate in suppress(candidates, self.iou, self.max_objects) {
            let [x0, y0, x1, y1] = fit.to_source(candidate.corners);
            if x1 <= x0 || y1 <= y0 {
                // Wholly in the letterbox's bars.
                continue;
            }
            let detection = Detection {
                x0,
                y0,
                x1,
                y1,
                class: candidate.class as u32,
                label: Arc::clone(&classes[candidate.class]),
                score: candidate.score.clamp(0.0, 1.0),
            };
            let (is_vehicle, is_person) = groups[candidate.class];
            if is_vehicle {
                vehicles.push(detection.clone());
            }
            if is_person {
                people.push(detection.clone());
            }
            all.push(detection);
        }
        vec![
            Value::Boxes(list(all)),
            Value::Boxes(list(vehicles)),
            Value::Boxes(list(people)),
        ]
    }
}

impl Prepare for Objects {
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass {
        let side = self.variants[variant].input;
        let input = ((side, side), &PixelFormat::UNIT);
        let buffers = self.buffers.clone();
        pass_over_pictures(
            &buffers,
            input,
            batch,
            |image, target, resampler| {
                let fit = Fit::letterbox((image.width, image.height), side, side);
                fit.paint(image, resampler, target);
                fit
            },
            move |fits, output| {
                let Variant { model, classes, .. } = &self.variants[variant];
                if !self.layout.fits(&output.shape, fits.len(), classes.len()) {
                    let expected = self.layout.describe(classes.len());
                    return Err(wrong_shape(model, expected, &output.shape));
                }
                let rows = fits.iter().enumerate();
                Ok(rows
                    .map(|(i, fit)| self.of(variant, fit, output.row(i)))
                    .collect())
            },
        )
    }
}

impl OnePass for Objects {
    fn example(&self, _objects: usize) -> Inputs {
        vec![Some(example_image())]
    }
}
