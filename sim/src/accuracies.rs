//! Accuracy-weighted goodput: the sum of the accuracies of what was in time.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::request::Request;

/// The accuracies of the variants of one module, and the sum over requests.
pub(crate) struct Accuracies {
    /// By variant; empty where no module states any.
    of: Vec<f64>,
    /// The variant of all requests; `None`: each has its own.
    fixed: Option<usize>,
    sum: f64,
}

impl Accuracies {
    /// Those of the module whose variants are chosen, else of the first module that states them.
    pub(crate) fn of(pipeline: &Pipeline) -> Self {
        let states =
            |m: &&Module| !m.variants.is_empty() && m.variants.iter().all(|v| v.accuracy.is_some());
        let adapted = pipeline.adapted().map(|m| &pipeline.modules[m.idx()]);
        let module = adapted.or_else(|| pipeline.modules.iter().find(states));
        Accuracies {
            of: module.map_or(Vec::new(), |m| {
                m.variants.iter().filter_map(|v| v.accuracy).collect()
            }),
            fixed: match adapted {
                Some(_) => None,
                None => module.map(Module::served),
            },
            sum: 0.0,
        }
    }

    /// A request was in time.
    pub(crate) fn count(&mut self, request: &Request) {
        let variant = self.fixed.unwrap_or(request.variant.idx());
        self.sum += self.of.get(variant).copied().unwrap_or_default();
    }

    /// The sum over that time, by second.
    pub(crate) fn per_second(&self, time: Duration) -> Option<f64> {
        let seconds = time.as_secs_f64();
        (!self.of.is_empty() && seconds > 0.0).then(|| self.sum / seconds)
    }
}
