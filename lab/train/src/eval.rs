//! Measures the models on held-out scenes: the whole chain of detector, plates on vehicles found and faces on
//! people found, through the module library and the torch backend, exactly as serving runs them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate_backend::operator::Operator;
use spillgate_backend::torch::TorchBackend;
use spillgate_backend::{Backend, Model};
use spillgate_process::value::{Detection, Image, Tensor, Value};
use spillgate_scenes::Rect;
use spillgate_scenes::score::{Findings, Hits, IOU, MeanF1, Score};

use crate::data::Sample;
use crate::dynamic;
use crate::modules::{build, run};

/// Input sizes measured, in rising order.
pub(crate) const SIZES: [u32; 4] = [128, 192, 256, 320];

/// All shipped models as the modules of one pipeline.
pub(crate) struct Chain {
    detect: Box<dyn Operator>,
    plates: Box<dyn Operator>,
    faces: Box<dyn Operator>,
    light: Box<dyn Operator>,
}

fn pipeline() -> String {
    let variants: Vec<String> = SIZES
        .iter()
        .map(|s| format!("{{ model: road.pt, input: {s} }}"))
        .collect();
    format!(
        "name: measure
slo: 1s
modules:
  detect:
    op: detector
    variants: [{}]
    inputs: {{ image: $source.frame }}
  plates:
    op: text_reader
    model: plate.pt
    inputs: {{ image: $source.frame, boxes: $detect.vehicles }}
  faces:
    op: face_recognizer
    model: face.pt
    inputs: {{ image: $source.frame, boxes: $detect.people }}
  light:
    op: classifier
    variants: [{{ model: light.pt, input: 64 }}]
    inputs: {{ image: $source.frame }}
outputs: {{ plates: $plates.text, people: $faces.id, light: $light.labels }}
",
        variants.join(", ")
    )
}

impl Chain {
    /// Loads the models of a folder.
    pub(crate) fn load(models: &Path, backend: &mut dyn Backend) -> anyhow::Result<Self> {
        let text = pipeline();
        let mut build = |name: &str| build(&text, name, models, &mut *backend);
        Ok(Chain {
            detect: build("detect")?,
            plates: build("plates")?,
            faces: build("faces")?,
            light: build("light")?,
        })
    }

    /// All that the modules find in one picture, with the detector at `SIZES[variant]`; and the name of its
    /// light. The durations are those of the detector and of the rest.
    pub(crate) fn find(&mut self, variant: usize, image: &Arc<Image>) -> anyhow::Result<Found> {
        let picture = Value::Image(Arc::clone(image));
        let start = Instant::now();
        let found = run(&mut *self.detect, variant, vec![Some(picture.clone())])?;
        let detecting = start.elapsed();
        let [_, vehicles, people, ..] = &found[..] else {
            anyhow::bail!(
                "the detector has three outputs at least, got {}",
                found.len()
            )
        };
        let mut findings = Findings {
            vehicles: rects(vehicles),
            people: rects(people),
            ..Findings::default()
        };
        let read = run(
            &mut *self.plates,
            0,
            vec![Some(picture.clone()), Some(vehicles.clone())],
        )?;
        if let [Value::Texts(texts)] = &read[..] {
            findings.plates = texts.iter().map(|t| t.text.clone()).collect();
        }
        let named = run(
            &mut *self.faces,
            0,
            vec![Some(picture.clone()), Some(people.clone())],
        )?;
        if let [Value::Labels(labels)] = &named[..] {
            findings.faces = labels.iter().map(|l| l.label.to_string()).collect();
        }
        let reading = start.elapsed() - detecting;
        let light = match &run(&mut *self.light, 0, vec![Some(picture)])?[..] {
            [Value::Labels(labels)] => labels.first().map(|l| l.label.to_string()),
            _ => None,
        };
        let light = light.unwrap_or_default();
        Ok(Found {
            findings,
            light,
            detecting,
            reading,
        })
    }
}

/// What [`Chain::find`] gives.
pub(crate) struct Found {
    findings: Findings,
    light: String,
    detecting: Duration,
    reading: Duration,
}

fn rects(value: &Value) -> Vec<(Rect, f32)> {
    let rect = |d: &Detection| (Rect::new(d.x0, d.y0, d.x1, d.y1), d.score);
    match value {
        Value::Boxes(boxes) => boxes.iter().map(rect).collect(),
        _ => Vec::new(),
    }
}

/// Quality and time at one input size of the detector.
pub(crate) struct Measure {
    pub(crate) score: Score,
    pub(crate) mean_f1: MeanF1,
    pub(crate) light: Hits,
    /// Medians of pre-processing, forward and post-processing of one frame: detector, then the rest.
    pub(crate) detecting: Duration,
    pub(crate) reading: Duration,
}

/// Runs the chain over the samples.
pub(crate) fn measure(
    chain: &mut Chain,
    variant: usize,
    samples: &[Sample],
) -> anyhow::Result<Measure> {
    let mut score = Score::default();
    let mut mean_f1 = MeanF1::default();
    let mut light = Hits::default();
    let (mut detecting, mut reading) = (Vec::new(), Vec::new());
    for sample in samples {
        let found = chain.find(variant, &sample.image)?;
        score.add_frame(&sample.truth, &found.findings, IOU);
        mean_f1.add_frame(&sample.truth, &found.findings);
        light.count(found.light == sample.truth.condition.name());
        detecting.push(found.detecting);
        reading.push(found.reading);
    }
    Ok(Measure {
        score,
        mean_f1,
        light,
        detecting: median(detecting),
        reading: median(reading),
    })
}

pub(crate) fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Measures all sizes and prints Markdown tables.
pub(crate) fn report(models: &Path, samples: &[Sample]) -> anyhow::Result<()> {
    let mut backend = TorchBackend::new("cpu:0")?;
    let mut chain = Chain::load(models, &mut backend)?;
    let share = |v: f64| format!("{:.1} %", 100.0 * v);
    let ms = |d: Duration| format!("{:.1} ms", d.as_secs_f64() * 1e3);
    println!("{} held-out frames of 640x360\n", samples.len());
    println!(
        "| input | F1 | mean F1, 0.5 to 0.95 | vehicles: precision, recall | people: precision, recall | plates right | faces right \
         | detector, one frame | plates and faces of it |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut light = Hits::default();
    for (variant, size) in SIZES.iter().enumerate() {
        let Measure {
            score,
            mean_f1,
            light: l,
            detecting,
            reading,
        } = measure(&mut chain, variant, samples)?;
        light.add(l);
        println!(
            "| {size} | {:.3} | {:.3} | {}, {} | {}, {} | {} | {} | {} | {} |",
            score.detection().f1(),
            mean_f1.value(),
            share(score.vehicles.precision()),
            share(score.vehicles.recall()),
            share(score.people.precision()),
            share(score.people.recall()),
            share(score.plates.rate()),
            share(score.faces.rate()),
            ms(detecting),
            ms(reading),
        );
    }
    println!("\nLight and weather right: {}\n", share(light.rate()));
    println!("| model | input | batch 1 | batch 4 | batch 8 |");
    println!("|---|---|---|---|---|");
    let mut inputs: Vec<(&str, i64, i64)> = SIZES
        .iter()
        .map(|s| ("road.pt", i64::from(*s), i64::from(*s)))
        .collect();
    inputs.extend([
        ("plate.pt", 48, 160),
        ("face.pt", 40, 40),
        ("light.pt", 64, 64),
    ]);
    for (name, height, width) in inputs {
        let mut model = backend.load(&models.join(name))?;
        let times: Vec<String> = [1, 4, 8]
            .into_iter()
            .map(|n| forward_time(&mut *model, [n, 3, height, width]).map(ms))
            .collect::<anyhow::Result<_>>()?;
        println!("| {name} | {width}x{height} | {} |", times.join(" | "));
    }
    println!();
    dynamic::report(models, samples, &mut backend)
}

/// Median time of a forward pass alone.
fn forward_time(model: &mut dyn Model, shape: [i64; 4]) -> anyhow::Result<Duration> {
    let n: i64 = shape.iter().product();
    let input = [Tensor::new(shape.to_vec(), vec![0.5; n as usize])];
    let mut times = Vec::new();
    for round in 0..25 {
        let start = Instant::now();
        model.forward(&input)?;
        // The first ones pay for optimisation.
        if round >= 5 {
            times.push(start.elapsed());
        }
    }
    Ok(median(times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    /// The shipped models hold what MODELS.md claims, with room for other processors' rounding.
    #[test]
    fn shipped_models_meet_their_floors() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/modules/models");
        let mut backend = TorchBackend::new("cpu:0").expect("a CPU");
        let mut chain = Chain::load(&models, &mut backend).expect("the shipped models load");
        let samples = data::held_out(12, Some(85)).expect("frames");
        let largest = measure(&mut chain, SIZES.len() - 1, &samples).expect("runs");
        let smallest = measure(&mut chain, 0, &samples).expect("runs");
        let (best, worst) = (
            largest.score.detection().f1(),
            smallest.score.detection().f1(),
        );
        assert!(
            best >= 0.95,
            "F1 of the detector at {}: {best}",
            SIZES[SIZES.len() - 1]
        );
        assert!(
            worst < best,
            "a smaller input must cost accuracy: {worst} at {}, {best}",
            SIZES[0]
        );
        let score = largest.score;
        assert!(
            score.plates.all >= 50,
            "{} plates are too few to tell",
            score.plates.all
        );
        assert!(score.plates.rate() >= 0.9, "plates: {:?}", score.plates);
        assert!(score.faces.rate() >= 0.95, "faces: {:?}", score.faces);
        assert!(largest.light.rate() >= 0.9, "light: {:?}", largest.light);
    }
}
