//! `noop`: passes bytes on, without a model and without a copy. The time of a pipeline of such modules is the overhead
//! of the framework.

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, ValueType};
use spillgate_process::value::Value;

/// The type `noop`.
pub(crate) struct Noop;

impl ModuleKind for Noop {
    fn module_type(&self) -> ModuleType {
        ModuleType::new(
            "noop",
            "passes bytes on without touching them",
            ModelNeed::None,
        )
        .input("payload", ValueType::Bytes, "anything")
        .optional_input(
            "also",
            ValueType::Bytes,
            "waited for, then left aside: joins two branches",
        )
        .output("payload", ValueType::Bytes, "the same")
    }

    fn build(&self, _context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        Ok(Box::new(NoopOperator))
    }
}

struct NoopOperator;

impl Operator for NoopOperator {
    fn run(&mut self, _variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        batch
            .iter()
            .map(|inputs| match inputs.first() {
                Some(Some(payload @ Value::Bytes(_))) => Ok(vec![payload.clone()]),
                _ => Err(OperatorError::Other(
                    "input 0 (payload): expected bytes".to_owned(),
                )),
            })
            .collect()
    }

    fn example(&self, _objects: usize) -> Inputs {
        vec![Some(Value::Bytes(bytes::Bytes::from_static(&[0; 1024])))]
    }
}
