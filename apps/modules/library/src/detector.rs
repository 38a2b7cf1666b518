//! `detector`: finds objects in a picture. One forward for all frames of a batch, letterboxed to the
//! square input of the variant; boxes decoded, overlaps suppressed, sorted into `vehicles` and `people`
//! by class name.

use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_backend::value::{Detection, Image, Tensor, Value};
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, OptionType, ValueType};

use crate::batch::{InputBuffer, all_fail, example_image, list, on_pictures};
use crate::boxes::{BoxLayout, suppress};
use crate::labels;
use crate::letterbox::Fit;
use crate::models::Models;
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
        let models = Models::load(&mut context)?;
        let mut variants = Vec::new();
        for i in 0..models.len() {
            let Some(input) = models.input(i) else {
                return Err(options.error(format_args!(
                    "variant {} needs `input`: the side of its square input in pixels, such as 320",
                    models.name(i)
                )));
            };
            let classes = labels::read(models.path(i), labels_file.clone())?;
            let group = |name: &str| {
                let holds = |group: &[String]| group.iter().any(|g| g == name);
                (holds(&vehicles), holds(&people))
            };
            let groups = classes.iter().map(|c| group(c)).collect();
            variants.push(Variant {
                input,
                classes,
                groups,
            });
        }
        Ok(Box::new(DetectorOperator {
            models,
            variants,
            confidence,
            iou,
            max_objects,
            layout,
            buffer: InputBuffer::new(),
        }))
    }
}

struct Variant {
    input: usize,
    classes: Arc<[Arc<str>]>,
    /// By class: whether it is a vehicle, whether it is a person.
    groups: Vec<(bool, bool)>,
}

struct DetectorOperator {
    models: Models,
    variants: Vec<Variant>,
    confidence: f32,
    iou: f32,
    max_objects: usize,
    layout: BoxLayout,
    buffer: InputBuffer,
}

impl DetectorOperator {
    fn forward(
        &mut self,
        variant: usize,
        images: &[&Image],
    ) -> Result<(Vec<Fit>, Tensor), OperatorError> {
        let side = self.variants[variant].input;
        self.buffer
            .reset(images.len(), side, side, &PixelFormat::UNIT);
        let mut fits = Vec::with_capacity(images.len());
        for (i, image) in images.iter().enumerate() {
            let fit = Fit::letterbox((image.width, image.height), side, side);
            let (mut target, resampler) = self.buffer.target(i, side, side, &PixelFormat::UNIT);
            fit.paint(image, resampler, &mut target);
            fits.push(fit);
        }
        let output = self.models.forward(variant, &self.buffer.tensor)?;
        let n_classes = self.variants[variant].classes.len();
        if !self.layout.fits(&output.shape, images.len(), n_classes) {
            return Err(self.models.wrong_shape(
                variant,
                self.layout.describe(n_classes),
                &output.shape,
            ));
        }
        Ok((fits, output))
    }

    fn objects(&self, variant: usize, fit: &Fit, row: &[f32]) -> Outputs {
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

impl Operator for DetectorOperator {
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        if let Err(error) = self.models.check(variant) {
            return all_fail(batch.len(), &error);
        }
        on_pictures(batch, |images| {
            let (fits, output) = self.forward(variant, images)?;
            let rows = fits.iter().enumerate();
            Ok(rows
                .map(|(i, fit)| self.objects(variant, fit, output.row(i)))
                .collect())
        })
    }

    fn example(&self, _objects: usize) -> Inputs {
        vec![Some(example_image())]
    }
}
