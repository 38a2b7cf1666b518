//! `torchscript`: any TorchScript model that takes one picture, described in YAML. Nothing has to be compiled: options
//! say how a picture becomes the input and what the output means. Where boxes are wired, each box is cut out and
//! becomes a picture: all objects of all frames of a batch are one forward, and each object has one result.

use std::sync::{Arc, OnceLock};

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Detection, Label, Tensor, Value};

use crate::batch::{Crops, Parts, example_boxes, example_image, list, pass_over_pictures};
use crate::boxes::{BoxLayout, suppress};
use crate::input::InputBuffers;
use crate::labels;
use crate::letterbox::Fit;
use crate::models::{Models, wrong_shape};
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::resample::PixelFormat;
use crate::scores::{Activation, best, is_class_scores, top};

/// The type `torchscript`.
pub(crate) struct TorchScript;

const DECODES: [&str; 3] = ["tensor", "classes", "boxes"];

fn words(words: &[&str]) -> OptionType {
    OptionType::Choice(words.iter().map(|w| (*w).to_owned()).collect())
}

impl ModuleKind for TorchScript {
    fn module_type(&self) -> ModuleType {
        ModuleType::new("torchscript", "runs your TorchScript or ONNX model on a picture or on each box", ModelNeed::Required)
            .input("image", ValueType::Image, "the picture")
            .optional_input(
                "boxes",
                ValueType::Boxes,
                "run on these parts instead of the whole picture, each cut out and stretched to `size`: one result a box",
            )
            .output(
                "tensor",
                ValueType::Tensor,
                "the output as it is, with `decode: tensor`, else empty; with boxes a row a box, zeros for a box that \
                 has no area or that the frame's bound left out",
            )
            .output(
                "labels",
                ValueType::Labels,
                "with `decode: classes`, else empty; with boxes one a box, `unknown` for a box that has no area or \
                 that the frame's bound left out",
            )
            .output("boxes", ValueType::Boxes, "with `decode: boxes`, else empty")
            .option(
                "region",
                OptionType::Numbers(4),
                "part of each box to look at: [left, top, right, bottom] in fractions of it (default [0, 0, 1, 1])",
            )
            .option(
                "size",
                OptionType::Numbers(2),
                "[width, height] of the input (default: the variant's `input`, square; else [224, 224])",
            )
            .option("fit", words(&["stretch", "letterbox"]), "how a picture gets that size (default stretch)")
            .option("layout", words(&["nchw", "nhwc"]), "order of the input's dimensions (default nchw)")
            .option("color", words(&["rgb", "bgr"]), "order of the colours (default rgb)")
            .option(
                "scale",
                OptionType::Number(1e-6, 1e6),
                "a pixel of 0..255 is multiplied by it (default 0.003921569, that is 1/255)",
            )
            .option("mean", OptionType::Numbers(3), "taken from each channel after `scale` (default [0, 0, 0])")
            .option("std", OptionType::Numbers(3), "each channel is divided by it, last (default [1, 1, 1])")
            .option(
                "decode",
                words(&DECODES),
                "what the output is: tensor (as it is), classes ([batch, classes]), boxes (default tensor)",
            )
            .option(
                "labels",
                OptionType::File,
                "class names, one a line (default: beside the model, net.pt has net.labels)",
            )
            .option(
                "activation",
                words(&Activation::WORDS),
                "for classes: softmax when they are logits, none when probabilities (default softmax)",
            )
            .option("top", OptionType::Integer(1, 100), "for classes: how many to name (default 1)")
            .option(
                "boxes",
                words(&BoxLayout::WORDS),
                "for boxes: yolo is [batch, 4 + classes, n], xyxy is [batch, n, 6] (default yolo)",
            )
            .option("confidence", OptionType::Number(0.0, 1.0), "for boxes: least score (default 0.4)")
            .option(
                "iou",
                OptionType::Number(0.0, 1.0),
                "for boxes: greatest overlap of two boxes of one class (default 0.5)",
            )
            .option(
                "max_objects",
                OptionType::Integer(1, 1000),
                "for boxes: most in a frame, best first (default 100)",
            )
            .time(ExecutionTime::VariesWith("boxes".to_owned()))
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let size = match context.module.options.get("size") {
            Some(_) => Some(options.size("size", [0.0; 2])?),
            None => None,
        };
        let letterbox = options.text("fit", "stretch")? == "letterbox";
        let format = pixel_format(&options)?;
        let labels_file = options.file("labels")?;
        let decode = match options.text("decode", DECODES[0])?.as_str() {
            "classes" => Decode::Classes {
                activation: Activation::read(&options)?,
                k: options.count("top", 1)?,
            },
            "boxes" => Decode::Boxes {
                layout: BoxLayout::of(&options.text("boxes", BoxLayout::WORDS[0])?),
                confidence: options.number("confidence", 0.4)?,
                iou: options.number("iou", 0.5)?,
                max: options.count("max_objects", 100)?,
            },
            _ => Decode::Tensor,
        };
        let with_boxes = context.module.inputs.get(1).is_some_and(Option::is_some);
        let region = region(&options, with_boxes, letterbox, decode)?;
        let limit = context.limits.objects;
        let buffers = InputBuffers::of(&*context.backend);
        let models = Models::load(&mut context)?;
        let all = match decode {
            Decode::Tensor => vec![Arc::from([]); models.len()],
            _ => labels::of_variants(&options, &models, labels_file.as_deref())?,
        };
        let mut variants = Vec::new();
        for (i, classes) in all.into_iter().enumerate() {
            let square = models.input(i).unwrap_or(224);
            let size = size.unwrap_or((square, square));
            let crops = with_boxes.then(|| {
                let mut crops = Crops::new(region, size, limit, buffers.clone());
                crops.format = format.clone();
                crops
            });
            variants.push(Variant {
                model: models.name(i).to_owned(),
                size,
                classes,
                crops,
            });
        }
        let network = Network {
            variants,
            letterbox,
            format,
            decode,
            buffers,
            unknown: Label {
                label: Arc::from("unknown"),
                score: 0.0,
            },
        };
        Ok(Box::new(OnePassOperator::new(models, network)))
    }
}

/// The part of each box to look at. Refuses what has no meaning for one result a box.
fn region(
    options: &Options<'_>,
    with_boxes: bool,
    letterbox: bool,
    decode: Decode,
) -> Result<[f32; 4], OperatorError> {
    const ALL: [f32; 4] = [0.0, 0.0, 1.0, 1.0];
    let region = options.part("region", ALL)?;
    let wrong = match decode {
        _ if !with_boxes => (region != ALL)
            .then_some("options.region: it is of boxes; wire them: inputs: { boxes: ... }"),
        _ if letterbox => {
            Some("options.fit: what is cut out of boxes is stretched; leave `letterbox` out")
        }
        Decode::Boxes { .. } => Some(
            "options.decode: boxes are found in whole pictures; for `inputs.boxes` choose classes or tensor",
        ),
        Decode::Classes { k: 2.., .. } => {
            Some("options.top: each box of `inputs.boxes` has one label; choose 1")
        }
        _ => None,
    };
    match wrong {
        Some(wrong) => Err(options.error(wrong)),
        None => Ok(region),
    }
}

fn pixel_format(options: &Options<'_>) -> Result<PixelFormat, OperatorError> {
    let scale = options.number("scale", 1.0 / 255.0)?;
    let mean = options.numbers("mean", [0.0; 3])?;
    let std = options.numbers("std", [1.0; 3])?;
    if std.iter().any(|v| *v <= 0.0) {
        return Err(options.error(format_args!("options.std: {std:?} must be above 0")));
    }
    Ok(PixelFormat {
        interleaved: options.text("layout", "nchw")? == "nhwc",
        bgr: options.text("color", "rgb")? == "bgr",
        mul: std.map(|s| scale / s),
        add: std::array::from_fn(|c| -mean[c] / std[c]),
    })
}

struct Variant {
    /// Its file.
    model: String,
    /// Width and height.
    size: (usize, usize),
    classes: Arc<[Arc<str>]>,
    /// Where boxes are wired.
    crops: Option<Crops>,
}

#[derive(Clone, Copy)]
enum Decode {
    Tensor,
    Classes {
        activation: Activation,
        k: usize,
    },
    Boxes {
        layout: BoxLayout,
        confidence: f32,
        iou: f32,
        max: usize,
    },
}

struct Network {
    variants: Vec<Variant>,
    letterbox: bool,
    format: PixelFormat,
    decode: Decode,
    buffers: InputBuffers,
    /// Of a box that was not looked at.
    unknown: Label,
}

impl Network {
    /// The outputs of whole pictures.
    fn of_pictures(
        &self,
        variant: usize,
        fits: &[Fit],
        output: &Tensor,
    ) -> Result<Vec<Outputs>, OperatorError> {
        let Variant { model, classes, .. } = &self.variants[variant];
        let (n, n_classes) = (fits.len(), classes.len());
        let (fitting, expected) = match self.decode {
            Decode::Tensor => (
                output.shape.first() == Some(&(n as i64)),
                format!("[{n}, ...] (one row a picture)"),
            ),
            Decode::Classes { .. } => (
                is_class_scores(output, n, n_classes),
                format!("[{n}, {n_classes}] (one score a class)"),
            ),
            Decode::Boxes { layout, .. } => (
                layout.fits(&output.shape, n, n_classes),
                layout.describe(n_classes),
            ),
        };
        if !fitting {
            return Err(wrong_shape(model, expected, &output.shape));
        }
        let rows = fits.iter().enumerate();
        Ok(rows
            .map(|(i, fit)| self.outputs(variant, fit, &output.shape, output.row(i)))
            .collect())
    }

    /// The label of each box.
    fn labels(
        &self,
        variant: usize,
        activation: Activation,
        n: usize,
        mut scores: Tensor,
    ) -> Result<Vec<Label>, OperatorError> {
        let Variant { model, classes, .. } = &self.variants[variant];
        if !is_class_scores(&scores, n, classes.len()) {
            let expected = format!("[{n}, {}] (one score a class)", classes.len());
            return Err(wrong_shape(model, expected, &scores.shape));
        }
        let label = |row: &mut [f32]| {
            activation.apply(row);
            let (class, score) = best(row);
            Label {
                label: Arc::clone(&classes[class]),
                score,
            }
        };
        let rows = scores.data.chunks_exact_mut(classes.len());
        Ok(rows.map(label).collect())
    }

    /// The row of each box.
    fn rows(&self, variant: usize, n: usize, output: &Tensor) -> Result<Vec<Row>, OperatorError> {
        if output.shape.first() != Some(&(n as i64)) {
            let expected = format!("[{n}, ...] (one row a box)");
            let model = &self.variants[variant].model;
            return Err(wrong_shape(model, expected, &output.shape));
        }
        Ok((0..n).map(|i| Some(output.row(i).to_vec())).collect())
    }

    fn outputs(&self, variant: usize, fit: &Fit, shape: &[i64], row: &[f32]) -> Outputs {
        let classes = &self.variants[variant].classes;
        match self.decode {
            Decode::Tensor => {
                let tensor = Tensor {
                    shape: shape[1..].to_vec(),
                    data: row.to_vec(),
                };
                outputs_with(0, Value::Tensor(Arc::new(tensor)))
            }
            Decode::Classes { activation, k } => {
                let mut row = row.to_vec();
                activation.apply(&mut row);
                let labels = top(&row, k).into_iter().map(|(class, score)| Label {
                    label: Arc::clone(&classes[class]),
                    score,
                });
                outputs_with(1, Value::Labels(list(labels.collect())))
            }
            Decode::Boxes {
                layout,
                confidence,
                iou,
                max,
            } => {
                let found = suppress(layout.decode(row, classes.len(), confidence), iou, max);
                let boxes = found.into_iter().filter_map(|candidate| {
                    let [x0, y0, x1, y1] = fit.to_source(candidate.corners);
                    (x1 > x0 && y1 > y0).then(|| Detection {
                        x0,
                        y0,
                        x1,
                        y1,
                        class: candidate.class as u32,
                        label: Arc::clone(&classes[candidate.class]),
                        score: candidate.score,
                    })
                });
                outputs_with(2, Value::Boxes(list(boxes.collect())))
            }
        }
    }
}

impl Prepare for Network {
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass {
        let network = self.clone();
        let of = &network.variants[variant];
        let Some(crops) = &of.crops else {
            let (width, height) = of.size;
            return pass_over_pictures(
                &network.buffers,
                (of.size, &network.format),
                batch,
                |image, target, resampler| {
                    let source = (image.width, image.height);
                    let fit = match network.letterbox {
                        true => Fit::letterbox(source, width, height),
                        false => Fit::stretch(source, width, height),
                    };
                    fit.paint(image, resampler, target);
                    fit
                },
                move |fits, output| self.of_pictures(variant, fits, output),
            );
        };
        let parts = Parts::of(batch, true);
        match self.decode {
            Decode::Classes { activation, .. } => crops.pass(
                parts.frames(),
                network.unknown.clone(),
                move |n, scores| self.labels(variant, activation, n, scores),
                |labels| outputs_with(1, Value::Labels(list(labels))),
            ),
            _ => {
                // The shape of one row is known once the model has run.
                let shape = Arc::new(OnceLock::new());
                let known = shape.clone();
                crops.pass(
                    parts.frames(),
                    None,
                    move |n, output| {
                        let rows = self.rows(variant, n, &output)?;
                        let _ = known.set(output.shape[1..].to_vec());
                        Ok(rows)
                    },
                    move |rows| {
                        let shape = shape.get().map_or(&[0][..], Vec::as_slice);
                        outputs_with(0, stacked(&rows, shape))
                    },
                )
            }
        }
    }
}

impl OnePass for Network {
    fn example(&self, objects: usize) -> Inputs {
        let with_boxes = self.variants.iter().any(|v| v.crops.is_some());
        vec![
            Some(example_image()),
            with_boxes.then(|| example_boxes(objects)),
        ]
    }
}

/// The three outputs, of which one is filled.
fn outputs_with(idx: usize, value: Value) -> Outputs {
    let mut outputs = vec![
        Value::empty(ValueType::Tensor),
        Value::empty(ValueType::Labels),
        Value::empty(ValueType::Boxes),
    ];
    outputs[idx] = value;
    outputs
}

/// The numbers of a row; `None` for a box that was not looked at.
type Row = Option<Vec<f32>>;

/// Rows of one shape as one tensor, zeros where there is none.
fn stacked(rows: &[Row], shape: &[i64]) -> Value {
    let n_row = shape.iter().product::<i64>() as usize;
    let mut data = Vec::with_capacity(rows.len() * n_row);
    for row in rows {
        match row {
            Some(row) => data.extend_from_slice(row),
            None => data.resize(data.len() + n_row, 0.0),
        }
    }
    let shape = std::iter::once(rows.len() as i64).chain(shape.iter().copied());
    Value::Tensor(Arc::new(Tensor {
        shape: shape.collect(),
        data,
    }))
}
