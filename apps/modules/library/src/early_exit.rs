//! `early_exit_classifier`: names the class of the whole picture or, where boxes are wired, of each box, with a network
//! that gives class scores after each of its segments. A cut-out leaves at the first exit with a sufficient score. Only
//! the other cut-outs go on to the next segment, so the time of a batch depends on its content.
//!
//! Each segment is a TorchScript file of its own, because a trace holds no decisions: `who.pt`, `who.2.pt`, ... The
//! first takes cut-outs, `[n, 3, side, side]`, RGB 0 to 1. Each gives one matrix: a score for each class, then the
//! features that the next segment takes, `[n, features]`; the last gives scores alone.

use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Label, LeftOut, Tensor, Value};

use crate::batch::{Crops, Parts, all_fail, example_boxes, example_image, list};
use crate::input::InputBuffers;
use crate::labels;
use crate::models::Models;
use crate::options::Options;
use crate::rows::keep_rows;
use crate::scores::{Activation, best};

/// The type `early_exit_classifier`.
pub(crate) struct EarlyExitClassifier;

/// Input of the shipped `who.pt`.
const SIDE: u32 = 128;
/// Most segments of a network: more exits than this decide nothing that fewer do not.
pub(crate) const EXITS_MAX: i64 = 8;
const EXITS: usize = 3;
/// See MODELS.md for the results of the shipped network at other sizes.
const THRESHOLD: f32 = 0.9;
/// The whole box.
const REGION: [f32; 4] = [0.0, 0.0, 1.0, 1.0];

impl ModuleKind for EarlyExitClassifier {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new(
            "early_exit_classifier",
            "names the class of a picture or of each box, and takes longer where it is hard to tell",
            ModelNeed::Required,
        )
        .input("image", ValueType::Image, "the picture")
        .optional_input("boxes", ValueType::Boxes, "classify these parts instead of the whole picture")
        .output("labels", ValueType::Labels, "the best class of the picture, or of each box in order")
        .output(
            "exits",
            ValueType::Tensor,
            "[n], for each label the exit that gave it, counted from 1; 0 where the frame's bound left the box out",
        )
        .option(
            "exits",
            OptionType::Integer(1, EXITS_MAX),
            "segments of the network; those after the first lie beside it as NAME.2.pt, NAME.3.pt, ... (default 3)",
        )
        .option(
            "threshold",
            OptionType::Number(0.0, 1.0),
            "leave at the first exit whose best class has at least this probability (default 0.9)",
        )
        .option(
            "region",
            OptionType::Numbers(4),
            "part of the box to look at: [left, top, right, bottom] in fractions of it (default [0, 0, 1, 1])",
        )
        .option(
            "labels",
            OptionType::File,
            "class names, one a line (default: beside the model, who.pt has who.labels)",
        )
        .time(ExecutionTime::Varies);
        Activation::option(ty)
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let n_exits = options.count("exits", EXITS)?;
        let threshold = options.number("threshold", THRESHOLD)?;
        let region = options.part("region", REGION)?;
        let labels_file = options.file("labels")?;
        let with_boxes = context.module.inputs.get(1).is_some_and(Option::is_some);
        let limit = context.limits.objects;
        let further: Vec<String> = (2..=n_exits).map(|k| k.to_string()).collect();
        let why = format!(
            "modules.{}: options.exits: {n_exits} segments are {n_exits} files",
            context.module.name
        );
        let buffers = InputBuffers::of(&*context.backend);
        let models = Models::load_parts(&mut context, &further, &why)?;
        let facts = models.facts()?;
        let activation = Activation::read(&options, &facts)?;
        let all = labels::of_variants(&options, &models, &facts, labels_file.as_deref())?;
        let mut variants = Vec::new();
        for (i, classes) in all.into_iter().enumerate() {
            let side = models.input(i).unwrap_or(SIDE as usize);
            variants.push(Variant {
                crops: Crops::new(region, (side, side), limit, buffers.clone()),
                classes,
            });
        }
        Ok(Box::new(EarlyExitOperator {
            models,
            variants,
            with_boxes,
            exits: Exits {
                n: n_exits,
                threshold,
                activation,
            },
        }))
    }
}

struct Variant {
    crops: Crops,
    classes: Arc<[Arc<str>]>,
}

/// Who leaves where.
#[derive(Clone, Copy)]
struct Exits {
    n: usize,
    threshold: f32,
    activation: Activation,
}

/// The result for one cut-out.
#[derive(Clone)]
struct Named {
    label: Label,
    /// Counted from 1.
    exit: usize,
}

struct EarlyExitOperator {
    models: Models,
    variants: Vec<Variant>,
    with_boxes: bool,
    exits: Exits,
}

impl Exits {
    /// Runs cut-outs, `[n, 3, height, width]`, segment by segment. One result each, in order.
    fn run(
        self,
        models: &mut Models,
        variant: usize,
        classes: &[Arc<str>],
        input: &Tensor,
    ) -> Result<Vec<Named>, OperatorError> {
        let mut named: Vec<Option<Named>> = vec![None; input.shape[0] as usize];
        // The members that are still in the batch, by ordinal.
        let mut staying: Vec<usize> = (0..named.len()).collect();
        let n_classes = classes.len();
        let mut features: Option<Tensor> = None;
        for segment in 0..self.n {
            let taken = std::slice::from_ref(features.as_ref().unwrap_or(input));
            let n = staying.len();
            let is_last = segment + 1 == self.n;
            let mut output = models.forward_part(variant, segment, taken)?;
            let n_row = match output.shape[..] {
                [rows, columns] if rows == n as i64 => columns as usize,
                _ => 0,
            };
            let fits = if is_last {
                n_row == n_classes
            } else {
                n_row > n_classes
            };
            if !fits {
                let expected = if is_last {
                    format!("[{n}, {n_classes}] (one score a class)")
                } else {
                    format!(
                        "[{n}, {n_classes} + features] (one score a class, then what the next segment takes)"
                    )
                };
                return Err(models.wrong_shape_of(variant, segment, expected, &output.shape));
            }
            let mut stays = vec![false; n];
            for (i, row) in output.data.chunks_exact_mut(n_row).enumerate() {
                let scores = &mut row[..n_classes];
                self.activation.apply(scores);
                let best = best(scores);
                stays[i] = !is_last && best.is_none_or(|(_, score)| score < self.threshold);
                if !stays[i] {
                    let label = match best {
                        Some((class, score)) => Label {
                            label: Arc::clone(&classes[class]),
                            score,
                            left_out: None,
                        },
                        None => unknown(LeftOut::NoNumber),
                    };
                    named[staying[i]] = Some(Named {
                        label,
                        exit: segment + 1,
                    });
                }
            }
            staying = (staying.iter().zip(&stays))
                .filter_map(|(ordinal, stays)| stays.then_some(*ordinal))
                .collect();
            if staying.is_empty() {
                break;
            }
            features = Some(keep_rows(&output, n_classes, &stays));
        }
        let all = named.into_iter();
        Ok(all
            .map(|one| one.expect("all leave at the last exit"))
            .collect())
    }
}

impl Operator for EarlyExitOperator {
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let EarlyExitOperator {
            models,
            variants,
            with_boxes,
            exits,
        } = self;
        if let Err(error) = models.check(variant) {
            return all_fail(batch.len(), &error);
        }
        let Variant { crops, classes } = &variants[variant];
        // Boxes over the frame's bound keep their place.
        let missing = |why| Named {
            label: unknown(why),
            exit: 0,
        };
        let parts = Parts::of(batch, *with_boxes);
        let results = crops.run(parts.frames(), missing, |input| {
            exits.run(models, variant, classes, input)
        });
        results.into_iter().map(|r| r.map(outputs)).collect()
    }

    fn example(&self, objects: usize) -> Inputs {
        vec![
            Some(example_image()),
            self.with_boxes.then(|| example_boxes(objects)),
        ]
    }
}

/// The label of a part of which no class is known, and why.
fn unknown(why: LeftOut) -> Label {
    Label {
        label: Arc::from("unknown"),
        score: 0.0,
        left_out: Some(why),
    }
}

fn outputs(named: Vec<Named>) -> Outputs {
    let mut exits = Tensor::new(
        vec![named.len() as i64],
        named.iter().map(|one| one.exit as f32).collect(),
    );
    let all = (0..).zip(&named);
    exits.left_out = all
        .filter_map(|(row, one)| one.label.left_out.map(|_| row))
        .collect();
    let labels = named.into_iter().map(|one| one.label).collect();
    vec![Value::Labels(list(labels)), Value::Tensor(Arc::new(exits))]
}
