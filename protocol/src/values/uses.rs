//! Who uses the outputs of modules.

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::PortRef;

/// Who uses an output.
#[derive(Clone, Debug, Default)]
struct Use {
    /// The modules that take it as an input.
    takers: Vec<ModuleId>,
    /// The answer contains it.
    is_answer: bool,
}

/// Who uses the outputs of a pipeline's modules. A `when:` uses none: the worker says with its result which outputs are not empty.
#[derive(Clone, Debug)]
pub struct Uses {
    /// By module and ordinal of the output.
    outputs: Vec<Vec<Use>>,
}

impl Uses {
    /// Those of a pipeline.
    pub fn of(pipeline: &Pipeline) -> Self {
        let modules = &pipeline.modules;
        let mut outputs: Vec<Vec<Use>> = modules
            .iter()
            .map(|module| vec![Use::default(); module.outputs.len()])
            .collect();
        for module in modules {
            for port in module.inputs.iter().flatten() {
                let of = &mut outputs[port.module.idx()][usize::from(port.port)];
                of.takers.push(module.id);
            }
        }
        for output in &pipeline.outputs {
            outputs[output.from.module.idx()][usize::from(output.from.port)].is_answer = true;
        }
        Uses { outputs }
    }

    fn at(&self, port: PortRef) -> Option<&Use> {
        let outputs = self.outputs.get(port.module.idx())?;
        outputs.get(usize::from(port.port))
    }

    /// Whether anything uses it: a module takes it, or the answer contains it.
    pub fn is_used(&self, port: PortRef) -> bool {
        self.at(port)
            .is_some_and(|of| of.is_answer || !of.takers.is_empty())
    }

    /// Whether a module takes it.
    pub fn takes(&self, module: ModuleId, port: PortRef) -> bool {
        self.at(port).is_some_and(|of| of.takers.contains(&module))
    }

    /// Whether a process that has it since `module` ran there, and that runs the modules `here`, may need it for another of them.
    pub fn is_needed_beside(&self, port: PortRef, module: ModuleId, here: &[ModuleId]) -> bool {
        let others = |of: &Use| {
            let mut takers = of.takers.iter();
            takers.any(|taker| *taker != module && here.contains(taker))
        };
        self.at(port).is_some_and(others)
    }

    /// Whether `module` makes a value that a process may need for another of the modules `here`, which it runs.
    pub fn makes_for(&self, module: ModuleId, here: &[ModuleId]) -> bool {
        let n_outputs = self.outputs.get(module.idx()).map_or(0, Vec::len);
        let mut outputs = (0..n_outputs as u16).map(|port| PortRef { module, port });
        outputs.any(|port| self.is_needed_beside(port, module, here))
    }
}
