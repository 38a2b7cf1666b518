//! A family of models for experiments: many files of three architectures, with random weights. They are real TorchScript with real
//! costs; what they say of a picture means nothing.

use std::path::Path;

use anyhow::Context;
use tch::nn::{self, Module};
use tch::{CModule, Device, Kind, Tensor};

/// Side of the square input in pixels.
const SIDE: i64 = 64;
/// Classes that they tell apart.
const CLASSES: i64 = 4;

/// Channels of the convolutions, each of which halves the picture, and width of the layer before the last.
struct Architecture {
    name: &'static str,
    channels: &'static [i64],
    width: i64,
}

/// From kilobytes of weights to 15 MB, which is just below a page of a weight cache.
const ARCHITECTURES: [Architecture; 3] = [
    Architecture {
        name: "small",
        channels: &[16, 32, 64],
        width: 16,
    },
    Architecture {
        name: "medium",
        channels: &[32, 64, 128, 256],
        width: 192,
    },
    Architecture {
        name: "large",
        channels: &[48, 96, 192, 384],
        width: 384,
    },
];

/// Writes that many models, the architectures in turn, and the names of their classes.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn write(out: &Path, count: usize) -> anyhow::Result<()> {
    let folder = out.join("models");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let labels: Vec<String> = (0..CLASSES).map(|i| format!("class-{i}\n")).collect();
    spillgate_output::write(out.join("classes.labels"), labels.concat())?;
    tch::manual_seed(19);
    for i in 0..count {
        let architecture = &ARCHITECTURES[i % ARCHITECTURES.len()];
        let path = folder.join(format!("{}-{i:03}.pt", architecture.name));
        crate::training::save(&architecture.module()?, &path)?;
    }
    Ok(())
}

impl Architecture {
    fn module(&self) -> anyhow::Result<CModule> {
        let vars = nn::VarStore::new(Device::Cpu);
        let root = vars.root();
        let mut network = nn::seq();
        let mut inputs = 3;
        for &outputs in self.channels {
            let halves = nn::ConvConfig {
                stride: 2,
                padding: 1,
                ..Default::default()
            };
            let conv = nn::conv2d(&root, inputs, outputs, 3, halves);
            network = network.add(conv).add_fn(|x| x.relu());
            inputs = outputs;
        }
        let side = SIDE >> self.channels.len();
        let flat = inputs * side * side;
        let wide = nn::linear(&root, flat, self.width, Default::default());
        let last = nn::linear(&root, self.width, CLASSES, Default::default());
        network = network.add_fn(|x| x.flatten(1, -1)).add(wide);
        network = network.add_fn(|x| x.relu()).add(last);
        // A trace takes in no weights that still want gradients.
        let mut vars = vars;
        vars.freeze();
        let example = Tensor::zeros([1, 3, SIDE, SIDE], (Kind::Float, Device::Cpu));
        let mut forward = |x: &[Tensor]| vec![network.forward(&x[0])];
        Ok(CModule::create_by_tracing(
            "Model",
            "forward",
            &[example],
            &mut forward,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_runs_batches_and_differs_from_file_to_file() {
        let out =
            std::env::temp_dir().join(format!("spillgate-family-files-{}", std::process::id()));
        write(&out, 4).unwrap();
        let picture = Tensor::ones([2, 3, SIDE, SIDE], (Kind::Float, Device::Cpu));
        let run = |name: &str| {
            let module = CModule::load(out.join("models").join(name)).unwrap();
            module.forward_ts(&[&picture]).unwrap()
        };
        let outputs = [
            "small-000.pt",
            "medium-001.pt",
            "large-002.pt",
            "small-003.pt",
        ]
        .map(run);
        std::fs::remove_dir_all(&out).unwrap();
        for output in &outputs {
            assert_eq!(output.size(), [2, CLASSES]);
        }
        assert_ne!(
            outputs[0], outputs[3],
            "the weights are drawn for each file"
        );
    }
}
