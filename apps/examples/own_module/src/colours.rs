//! `colours`: how alike objects are by their colour. A module type that works on boxes, and tells which of them it did not look at.

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, ValueType};
use spillgate_process::value::{Detection, Embedding, Image, LeftOut, Value};

/// The type.
pub(crate) struct Colours;

impl ModuleKind for Colours {
    fn module_type(&self) -> ModuleType {
        ModuleType::new("colours", "compares objects by colour", ModelNeed::None)
            .input("image", ValueType::Image, "the picture")
            .input("boxes", ValueType::Boxes, "the objects")
            .output(
                "embeddings",
                ValueType::Embeddings,
                "the mean colour of each box: red, green, blue",
            )
            .time(ExecutionTime::VariesWith("boxes".to_owned()))
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        Ok(Box::new(ColoursOperator {
            limit: context.limits.objects,
        }))
    }
}

struct ColoursOperator {
    /// Most objects of a frame.
    limit: usize,
}

impl Operator for ColoursOperator {
    fn run(&mut self, _variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let one = |inputs: &Inputs| match inputs.as_slice() {
            [Some(Value::Image(image)), Some(Value::Boxes(boxes))] => {
                Ok(vec![Value::Embeddings(self.embeddings(image, boxes))])
            }
            _ => Err(OperatorError::Other(
                "expected a picture and boxes".to_owned(),
            )),
        };
        batch.iter().map(one).collect()
    }

    fn example(&self, objects: usize) -> Inputs {
        let image = Image {
            width: 640,
            height: 360,
            rgb: vec![128; 640 * 360 * 3].into(),
        };
        let object = Detection {
            x0: 0.0,
            y0: 0.0,
            x1: 100.0,
            y1: 100.0,
            class: 0,
            label: "object".into(),
            score: 1.0,
        };
        let boxes = vec![object; objects];
        vec![
            Some(Value::Image(image.into())),
            Some(Value::Boxes(boxes.into())),
        ]
    }
}

impl ColoursOperator {
    /// One a box, in the order of the boxes. They are best first, so that those over the limit are the last ones.
    fn embeddings(&self, image: &Image, boxes: &[Detection]) -> std::sync::Arc<[Embedding]> {
        let mut looked_at = 0;
        let one = |of: &Detection| {
            let values = match mean(image, of) {
                None => Err(LeftOut::NoArea),
                Some(_) if looked_at == self.limit => Err(LeftOut::OverLimit),
                Some(values) => Ok(values),
            };
            looked_at += usize::from(values.is_ok());
            Embedding {
                left_out: values.as_ref().err().copied(),
                values: values.unwrap_or_default(),
            }
        };
        boxes.iter().map(one).collect()
    }
}

/// The mean colour of the pixels in a box as a vector of length 1; `None` where there are none.
fn mean(image: &Image, of: &Detection) -> Option<Vec<f32>> {
    let columns = of.x0.max(0.0) as usize..(of.x1 as usize).min(image.width as usize);
    let rows = of.y0.max(0.0) as usize..(of.y1 as usize).min(image.height as usize);
    let mut sum = [0.0f32; 3];
    let pixels = image.rgb.as_chunks().0;
    for y in rows.clone() {
        for x in columns.clone() {
            let [r, g, b] = pixels[y * image.width as usize + x].map(f32::from);
            sum = [sum[0] + r, sum[1] + g, sum[2] + b];
        }
    }
    if columns.is_empty() || rows.is_empty() {
        return None;
    }
    let length = sum.iter().map(|v| v * v).sum::<f32>().sqrt();
    // Black is no more like one colour than like another.
    let unit = match length {
        0.0 => [1.0f32 / 3.0; 3].map(f32::sqrt),
        length => sum.map(|v| v / length),
    };
    Some(unit.to_vec())
}
