//! `detector`: finds objects in a picture. One forward for all frames of a batch; boxes decoded as the model's head
//! gives them, overlaps suppressed, sorted into groups by class name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Detection, Tensor, Value};

use crate::batch::{example_image, list, pass_over_pictures};
use crate::boxes::{Suppress, suppress};
use crate::broken_boxes::BrokenBoxes;
use crate::facts::Facts;
use crate::heads::further::Further;
use crate::heads::{Decoded, Decoder, Expected, Head};
use crate::input::InputBuffers;
use crate::labels;
use crate::letterbox::Fit;
use crate::models::Models;
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::picture::{self, FitBy};
use crate::resample::PixelFormat;

/// The type `detector`.
pub(crate) struct Detector;

const VEHICLES: [&str; 6] = ["vehicle", "car", "truck", "bus", "van", "motorcycle"];
const PEOPLE: [&str; 2] = ["person", "pedestrian"];

impl ModuleKind for Detector {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new("detector", "finds objects in a picture", ModelNeed::Required)
            .input("image", ValueType::Image, "the picture")
            .output("boxes", ValueType::Boxes, "all objects, best first")
            .output("vehicles", ValueType::Boxes, "the boxes whose class is in the option `vehicles`")
            .output("people", ValueType::Boxes, "the boxes whose class is in the option `people`")
            .output("masks", ValueType::Masks, "the outline of each of `boxes`, of a model that gives masks, else empty")
            .output("keypoints", ValueType::Keypoints, "the key points of each of `boxes`, of a model that gives them, else empty")
            .option(
                "confidence",
                OptionType::Number(0.0, 1.0),
                "least score of an object (default 0.4)",
            )
            .option(
                "iou",
                OptionType::Number(0.0, 1.0),
                "greatest overlap of two boxes (default 0.5)",
            )
            .option(
                "suppress",
                OptionType::Choice(Suppress::WORDS.map(str::to_owned).to_vec()),
                "which boxes a better one takes away when it overlaps them by more than `iou`: those of its class, all, none (default: class for \
                 the heads yolo, yolov5 and ssd, none for others)",
            )
            .option(
                "max_objects",
                OptionType::Integer(1, 1000),
                "most objects in a frame, best first (default 100)",
            )
            .option(
                "head",
                OptionType::Choice(Head::WORDS.map(str::to_owned).to_vec()),
                "how the outputs are laid out (docs/models.md; default: what the file says, else the one that fits their shapes)",
            )
            .option(
                "labels",
                OptionType::File,
                "class names, one a line (default: beside the model, road.pt has road.labels; else what the file says; else labels.txt beside it)",
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
            .option(
                "groups",
                OptionType::Groups(ValueType::Boxes),
                "further outputs, each with the boxes of these classes of the model: `{ ships: [boat, ferry] }` gives the output `ships` (default: none)",
            );
        let ty = picture::options(ty, "");
        picture::fit_options(
            ty,
            "letterbox, or stretch for the heads ssd, detr and lists",
        )
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let labels_file = options.file("labels")?;
        let groups = groups(&options)?;
        let head = options.chosen("head")?;
        let head = head.and_then(|word| Head::of(&word));
        let suppress = options.chosen("suppress")?;
        let buffers = InputBuffers::of(&*context.backend);
        let batch_max = context.module.batch.max;
        let models = Models::load(&mut context)?;
        let facts = models.facts()?;
        let all = labels::of_variants(&options, &models, &facts, labels_file.as_deref())?;
        let mut variants = Vec::new();
        for (i, (classes, facts)) in all.into_iter().zip(facts).enumerate() {
            let model = models.name(i).to_owned();
            let wrong = |why: String| OperatorError::Other(format!("{model}: {why}"));
            let heads = match head {
                Some(head) => vec![head],
                None => Head::said(&facts).map_err(wrong)?,
            };
            if let Some(answers) = facts.answers.filter(|answers| *answers < batch_max) {
                return Err(options.error(format_args!(
                    "{model} was exported with nms=True for a batch of {answers}: it finds nothing in further pictures; write batch: {{ max: \
                     {answers} }}, or export it without nms"
                )));
            }
            let stretches = heads.iter().all(|head| head.stretches());
            let fit = if stretches { "stretch" } else { "letterbox" };
            variants.push(Variant {
                size: picture::size(&options, &model, (models.input(i), &facts), None)?,
                fit: picture::fit(&options, &facts, fit)?,
                format: picture::format(&options, &facts)?,
                groups: groups_of(&options, &groups, &model, &classes)?,
                broken: BrokenBoxes::new(&context.module.name, &model),
                model,
                heads,
                facts,
                classes,
            });
        }
        let objects = Objects {
            variants,
            n_groups: groups.len(),
            confidence: options.number("confidence", 0.4)?,
            iou: options.number("iou", 0.5)?,
            max_objects: options.count("max_objects", 100)?,
            suppress: suppress.map(|word| Suppress::of(&word)),
            buffers,
        };
        Ok(Box::new(OnePassOperator::new(models, objects)))
    }
}

/// Classes whose boxes are an output of their own.
struct Group {
    /// The option that lists them.
    option: String,
    classes: Vec<String>,
    /// By the user: for one model, where the default lists are for models in general.
    is_written: bool,
}

/// How many groups are outputs of each detector.
const GROUPS_OF_TYPE: usize = 2;

/// Those of the outputs `vehicles` and `people`, then those of the option `groups`.
fn groups(options: &Options<'_>) -> Result<Vec<Group>, OperatorError> {
    let of_type = |name: &str, default: &[&str]| -> Result<Group, OperatorError> {
        Ok(Group {
            option: name.to_owned(),
            classes: options.texts(name, default)?,
            is_written: options.has(name),
        })
    };
    let of_type: [_; GROUPS_OF_TYPE] =
        [of_type("vehicles", &VEHICLES)?, of_type("people", &PEOPLE)?];
    let named = options.groups("groups")?.into_iter();
    let named = named.map(|(name, classes)| Group {
        option: format!("groups.{name}"),
        classes: classes.to_vec(),
        is_written: true,
    });
    Ok(of_type.into_iter().chain(named).collect())
}

/// By class of `model`: ordinals of the groups that it is in.
///
/// # Errors
/// When the user lists a class that the model does not have.
fn groups_of(
    options: &Options<'_>,
    groups: &[Group],
    model: &str,
    classes: &[Arc<str>],
) -> Result<Vec<Vec<usize>>, OperatorError> {
    let there: BTreeSet<&str> = classes.iter().map(|class| &**class).collect();
    let mut groups_of: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (ordinal, group) in groups.iter().enumerate() {
        for class in &group.classes {
            if group.is_written && !there.contains(class.as_str()) {
                return Err(labels::unknown(
                    options,
                    &group.option,
                    class,
                    (model, classes),
                ));
            }
            groups_of.entry(class).or_default().insert(ordinal);
        }
    }
    let of = |class: &Arc<str>| groups_of.get(&**class).into_iter().flatten().copied();
    Ok(classes.iter().map(|class| of(class).collect()).collect())
}

struct Variant {
    /// Its file.
    model: String,
    /// Width and height of its input.
    size: (usize, usize),
    fit: FitBy,
    format: PixelFormat,
    /// Heads that it may have.
    heads: Vec<Head>,
    facts: Facts,
    classes: Arc<[Arc<str>]>,
    /// By class: ordinals of the groups that it is in.
    groups: Vec<Vec<usize>>,
    broken: BrokenBoxes,
}

struct Objects {
    variants: Vec<Variant>,
    n_groups: usize,
    confidence: f32,
    iou: f32,
    max_objects: usize,
    /// Where the user says so.
    suppress: Option<Suppress>,
    buffers: InputBuffers,
}

impl Objects {
    /// What decodes these outputs of `n` pictures.
    fn decoder(
        &self,
        variant: &Variant,
        n: usize,
        outputs: &[Tensor],
    ) -> Result<Decoder, OperatorError> {
        let expected = Expected {
            heads: &variant.heads,
            names: &variant.classes,
            facts: &variant.facts,
        };
        let (head, layout) = expected
            .layout(outputs, n)
            .map_err(|why| OperatorError::Unfit(format!("{}: {why}", variant.model)))?;
        Ok(Decoder {
            head,
            layout,
            n_classes: variant.classes.len(),
            size: variant.size,
            confidence: self.confidence,
        })
    }

    /// What was found in picture `i`.
    fn of(
        &self,
        variant: &Variant,
        fit: &Fit,
        decoder: &Decoder,
        (outputs, i): (&[Tensor], usize),
    ) -> Outputs {
        let by = self.suppress.unwrap_or(match decoder.head.overlaps() {
            true => Suppress::Class,
            false => Suppress::None,
        });
        let Decoded {
            candidates,
            mut left_out,
        } = decoder.decode(outputs, i);
        let mut all = Vec::new();
        let mut groups = vec![Vec::new(); self.n_groups];
        let mut further = Further::of(decoder, outputs, i);
        for candidate in suppress(candidates, by, self.iou, self.max_objects) {
            let [x0, y0, x1, y1] = fit.to_source(candidate.corners);
            if x1 <= x0 || y1 <= y0 {
                // Wholly in the letterbox's bars.
                left_out += 1;
                continue;
            }
            let detection = Detection {
                x0,
                y0,
                x1,
                y1,
                class: candidate.class as u32,
                label: Arc::clone(&variant.classes[candidate.class]),
                score: candidate.score.clamp(0.0, 1.0),
            };
            for group in &variant.groups[candidate.class] {
                groups[*group].push(detection.clone());
            }
            all.push(detection);
            further.add(&candidate, fit);
        }
        variant.broken.count(left_out);
        let mut groups = groups.into_iter().map(|boxes| Value::Boxes(list(boxes)));
        let mut values = vec![Value::Boxes(list(all))];
        values.extend(groups.by_ref().take(GROUPS_OF_TYPE));
        values.push(Value::Masks(list(further.masks)));
        values.push(Value::Keypoints(list(further.keypoints)));
        values.extend(groups);
        values
    }
}

impl Prepare for Objects {
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass {
        let Variant {
            size, fit, format, ..
        } = &self.variants[variant];
        let (size, fit, format) = (*size, *fit, format.clone());
        let buffers = self.buffers.clone();
        pass_over_pictures(
            &buffers,
            (size, &format),
            batch,
            |image, target, resampler| {
                let fit = fit.fit(image, size);
                fit.paint(image, resampler, target);
                fit
            },
            move |fits, outputs| {
                let variant = &self.variants[variant];
                let decoder = self.decoder(variant, fits.len(), &outputs)?;
                let rows = fits.iter().enumerate();
                Ok(rows
                    .map(|(i, fit)| self.of(variant, fit, &decoder, (&outputs, i)))
                    .collect())
            },
        )
    }
}

impl OnePass for Objects {
    /// The most that a head has: boxes, scores and classes.
    fn outputs(&self) -> usize {
        3
    }

    fn example(&self, _objects: usize) -> Inputs {
        vec![Some(example_image())]
    }
}
