//! `daylight`: says whether a picture was taken by day. A module type of one's own, from its entry in the catalogue to
//! its code.

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_pipeline::pipeline::OptionValue;
use spillgate_process::value::{Image, Label, Value};

/// Mean of the bytes of a picture from which it is day, unless the pipeline file says otherwise.
const THRESHOLD_DEFAULT: f64 = 80.0;

/// The type. One of these is registered in a `Library`.
pub(crate) struct Daylight;

impl ModuleKind for Daylight {
    /// The description of the type: pipeline files are checked against it, and `spillgate modules` prints it.
    fn module_type(&self) -> ModuleType {
        ModuleType::new("daylight", "tells day from night", ModelNeed::None)
            .input("image", ValueType::Image, "the picture")
            .output("labels", ValueType::Labels, "one label: day or night")
            .option(
                "threshold",
                OptionType::Number(0.0, 255.0),
                "mean of the picture's bytes from which it is day (default 80)",
            )
    }

    /// Called once for each worker, on the thread of its device. Models are loaded here, by `context.backend`.
    fn build(&self, context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let threshold = match context.module.options.get("threshold") {
            Some(OptionValue::Number(threshold)) => *threshold,
            _ => THRESHOLD_DEFAULT,
        };
        Ok(Box::new(DaylightOperator { threshold }))
    }
}

struct DaylightOperator {
    threshold: f64,
}

impl Operator for DaylightOperator {
    /// Runs a batch. A request that cannot be computed fails alone.
    fn run(&mut self, _variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let one = |inputs: &Inputs| match inputs.as_slice() {
            [Some(Value::Image(image))] => Ok(vec![self.label(image)]),
            _ => Err(OperatorError::Other(
                "input 0 (image): expected a picture".to_owned(),
            )),
        };
        batch.iter().map(one).collect()
    }

    /// The inputs with which batches of each size are measured.
    fn example(&self, _objects: usize) -> Inputs {
        let image = Image {
            width: 640,
            height: 360,
            rgb: vec![128; 640 * 360 * 3].into(),
        };
        vec![Some(Value::Image(image.into()))]
    }
}

impl DaylightOperator {
    fn label(&self, image: &Image) -> Value {
        let sum: u64 = image.rgb.iter().map(|&byte| u64::from(byte)).sum();
        let mean = sum as f64 / image.rgb.len().max(1) as f64;
        let label = if mean >= self.threshold {
            "day"
        } else {
            "night"
        };
        let label = Label {
            label: label.into(),
            score: 1.0,
            left_out: None,
        };
        Value::Labels([label].into())
    }
}
