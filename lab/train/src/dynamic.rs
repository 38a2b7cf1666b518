//! The modules whose work differs from input to input, with requests to measure them: their accuracy, and how many
//! requests leave at which exit. [`crate::times`] measures their times.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_backend::Backend;
use spillgate_backend::operator::{Inputs, Operator};
use spillgate_process::value::{Detection, Value};
use spillgate_scenes::score::Hits;

use crate::data::{HELD_OUT, Sample};
use crate::modules::{build, run};
use crate::{say, who};

/// Thresholds measured, in rising order.
const THRESHOLDS: [f32; 6] = [0.5, 0.7, 0.8, 0.9, 0.95, 0.99];
/// The module's default.
pub(crate) const THRESHOLD: f32 = 0.9;
/// Requests to each module for accuracy.
const N_REQUESTS: usize = 1500;

/// The classifier with early exits.
pub(crate) fn who(
    models: &Path,
    threshold: f32,
    backend: &mut dyn Backend,
) -> anyhow::Result<Box<dyn Operator>> {
    let text = format!(
        "name: measure
slo: 1s
modules:
  who:
    op: early_exit_classifier
    model: who.pt
    inputs: {{ image: $source.frame }}
    options: {{ threshold: {threshold} }}
outputs: {{ who: $who.labels }}
"
    );
    build(&text, "who", models, backend)
}

/// The sequence model.
pub(crate) fn say(models: &Path, backend: &mut dyn Backend) -> anyhow::Result<Box<dyn Operator>> {
    let text = "name: measure
slo: 1s
source: { payload: bytes }
modules:
  say:
    op: text_generator
    model: say.pt
    inputs: { payload: $source.payload }
outputs: { say: $say.text }
";
    build(text, "say", models, backend)
}

/// The text reader, on boxes of vehicles.
pub(crate) fn plates(
    models: &Path,
    backend: &mut dyn Backend,
) -> anyhow::Result<Box<dyn Operator>> {
    let text = "name: measure
slo: 1s
modules:
  detect:
    op: detector
    variants: [{ model: road.pt, input: 192 }]
    inputs: { image: $source.frame }
  plates:
    op: text_reader
    model: plate.pt
    inputs: { image: $source.frame, boxes: $detect.vehicles }
outputs: { plates: $plates.text }
";
    build(text, "plates", models, backend)
}

/// Pictures of people as requests, each with the person's number, from scenes held out.
pub(crate) fn pictures(samples: &[Sample], n: usize) -> Vec<(Inputs, usize)> {
    let mut rng = ChaCha8Rng::seed_from_u64(HELD_OUT);
    let one = |_| {
        let (picture, identity) = who::draw(samples, &mut rng);
        (vec![Some(Value::Image(Arc::new(picture))), None], identity)
    };
    (0..n).map(one).collect()
}

/// Numbers as requests, each with its digits.
pub(crate) fn numbers(n: usize) -> Vec<(Inputs, String)> {
    let mut rng = ChaCha8Rng::seed_from_u64(HELD_OUT);
    let one = |_| {
        let digits = say::draw(&mut rng);
        let payload = Value::Bytes(digits.clone().into_bytes().into());
        (vec![Some(payload), None], digits)
    };
    (0..n).map(one).collect()
}

/// Frames with the boxes of their vehicles as requests. Frames without any are left out: pipelines skip the reader
/// on them (`when:`).
pub(crate) fn vehicles(samples: &[Sample]) -> Vec<Inputs> {
    let found = |r: &spillgate_scenes::Rect| Detection {
        x0: r.x0,
        y0: r.y0,
        x1: r.x1,
        y1: r.y1,
        class: 0,
        label: Arc::from("vehicle"),
        score: 1.0,
    };
    let one = |sample: &Sample| {
        let boxes: Vec<Detection> = sample
            .truth
            .vehicles
            .iter()
            .map(|v| found(&v.bbox))
            .collect();
        let image = Value::Image(Arc::clone(&sample.image));
        vec![Some(image), Some(Value::Boxes(boxes.into()))]
    };
    let some = samples.iter().filter(|s| !s.truth.vehicles.is_empty());
    some.map(one).collect()
}

/// Name and exit, counted from 1, of one picture.
pub(crate) fn named(outputs: &[Value]) -> anyhow::Result<(&str, usize)> {
    match outputs {
        [Value::Labels(labels), Value::Tensor(exits)] if labels.len() == 1 => {
            Ok((&labels[0].label, exits.data[0] as usize))
        }
        other => bail!("expected one label and its exit, got {other:?}"),
    }
}

/// The one text.
pub(crate) fn written(outputs: &[Value]) -> anyhow::Result<&str> {
    match outputs {
        [Value::Texts(texts)] if texts.len() == 1 => Ok(&texts[0].text),
        other => bail!("expected one text, got {other:?}"),
    }
}

/// The number of members that leave at each exit, and the part of them that is right.
pub(crate) fn exits(
    operator: &mut dyn Operator,
    requests: &[(Inputs, usize)],
) -> anyhow::Result<[Hits; who::N_EXITS]> {
    let mut exits = [Hits::default(); who::N_EXITS];
    for (inputs, identity) in requests {
        let outputs = run(operator, 0, inputs.clone())?;
        let (name, exit) = named(&outputs)?;
        exits[exit - 1].count(name == spillgate_scenes::IDENTITIES[*identity]);
    }
    Ok(exits)
}

/// How many numbers get their right name.
pub(crate) fn names(
    operator: &mut dyn Operator,
    requests: &[(Inputs, String)],
) -> anyhow::Result<Hits> {
    let mut hits = Hits::default();
    for (inputs, digits) in requests {
        let outputs = run(operator, 0, inputs.clone())?;
        hits.count(written(&outputs)? == say::name(digits.parse()?));
    }
    Ok(hits)
}

/// Measures both and prints Markdown tables.
pub(crate) fn report(
    models: &Path,
    samples: &[Sample],
    backend: &mut dyn Backend,
) -> anyhow::Result<()> {
    let share = |v: f64| format!("{:.1} %", 100.0 * v);
    let requests = pictures(samples, N_REQUESTS);
    println!("{N_REQUESTS} pictures of people, worn by none to much\n");
    println!("| threshold | right | at exit 1: share, right | at exit 2 | at exit 3 |");
    println!("|---|---|---|---|---|");
    for threshold in THRESHOLDS {
        let exits = exits(&mut *who(models, threshold, backend)?, &requests)?;
        let mut all = Hits::default();
        exits.iter().for_each(|hits| all.add(*hits));
        let exits = exits.map(|hits| {
            let part = hits.all as f64 / all.all as f64;
            format!("{}, {}", share(part), share(hits.rate()))
        });
        println!(
            "| {threshold} | {} | {} |",
            share(all.rate()),
            exits.join(" | ")
        );
    }
    let requests = numbers(N_REQUESTS);
    let hits = names(&mut *say(models, backend)?, &requests)?;
    println!(
        "\nNames of {N_REQUESTS} numbers of 1 to 9 digits right: {}",
        share(hits.rate())
    );
    Ok(())
}

#[cfg(test)]
mod tests;
