//! Accuracy-weighted goodput: the sum of the accuracies of what was in time.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::request::Request;

/// The accuracies of the variants of one module, and the sum over requests.
pub(crate) struct Accuracies {
    /// By variant; empty where no module states any.
    of: Vec<f64>,
    /// By variant: the side of its input.
    inputs: Vec<Option<u32>>,
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
            inputs: module.map_or(Vec::new(), |m| m.variants.iter().map(|v| v.input).collect()),
            fixed: match adapted {
                Some(_) => None,
                None => module.map(Module::served),
            },
            sum: 0.0,
        }
    }

    /// A request was in time.
    pub(crate) fn count(&mut self, request: &Request) {
        let variant = self.variant_of(request);
        self.sum += self.of.get(variant).copied().unwrap_or_default();
    }

    /// Whether variants state theirs.
    pub(crate) fn are_stated(&self) -> bool {
        !self.of.is_empty()
    }

    /// The variant that served a request.
    pub(crate) fn variant_of(&self, request: &Request) -> usize {
        self.fixed.unwrap_or(request.variant.idx())
    }

    /// What a variant sees of a frame of that longer side, in pixels.
    pub(crate) fn seen(&self, side: u32, variant: usize) -> u32 {
        let input = self.inputs.get(variant).copied().flatten();
        input.map_or(side, |input| input.min(side))
    }

    /// The accuracy of a variant for a frame of that longer side. A smaller frame shows as much as a variant of its size sees: between two
    /// variants on the line between them, below the smallest on the line from nothing.
    pub(crate) fn of_frame(&self, side: u32, variant: usize) -> f64 {
        let own = self.of.get(variant).copied().unwrap_or_default();
        let seen = self.seen(side, variant);
        if self.inputs.get(variant).copied().flatten() == Some(seen) {
            return own;
        }
        let mut below = (0.0, 0.0);
        for (input, accuracy) in self.inputs.iter().zip(&self.of) {
            let Some(input) = *input else { return own };
            let (seen, above) = (f64::from(seen), (f64::from(input), *accuracy));
            if seen <= above.0 {
                let part = (seen - below.0) / (above.0 - below.0);
                return below.1 + part * (above.1 - below.1);
            }
            below = above;
        }
        own
    }

    /// The sum over that time, by second.
    pub(crate) fn per_second(&self, time: Duration) -> Option<f64> {
        let seconds = time.as_secs_f64();
        (!self.of.is_empty() && seconds > 0.0).then(|| self.sum / seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_pipeline::pipeline::Variant;
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    #[test]
    fn a_frame_shows_no_more_than_a_variant_of_its_size_sees() {
        let mut pipeline = noop_pipeline(Duration::from_secs(1), &[&[0]], &[]);
        let variant = |(input, accuracy)| Variant {
            model: "a.pt".to_owned(),
            input: Some(input),
            accuracy: Some(accuracy),
        };
        pipeline.modules[1].variants = [(100, 0.4), (200, 0.6), (400, 0.7)].map(variant).to_vec();
        let of = Accuracies::of(&pipeline);
        let cases = [
            (400, 2, 400, 0.7),
            (800, 2, 400, 0.7),
            (400, 0, 100, 0.4),
            (150, 2, 150, 0.5),
            (50, 1, 50, 0.2),
        ];
        for (side, variant, seen, accuracy) in cases {
            assert_eq!(of.seen(side, variant), seen);
            let got = of.of_frame(side, variant);
            assert!((got - accuracy).abs() < 1e-12, "{side} {variant}: {got}");
        }
    }
}
