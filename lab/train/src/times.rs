//! Measures the time of modules whose work differs from input to input: of single requests, and of batches.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_backend::operator::{Inputs, Operator};
use spillgate_backend::torch::TorchBackend;

use crate::data::{Sample, any};
use crate::dynamic;
use crate::fit::{Point, error, fit};

/// Runs of the same work. The least time counts, because other work on the machine only adds time.
const RUNS: usize = 3;
/// Requests run before the first that counts.
const WARM_UP: usize = 100;
/// Sizes of batches, each of random members.
const SIZES: [usize; 5] = [1, 2, 4, 8, 16];
/// Batches of each size: one half to fit, one to tell the error.
const BATCHES: usize = 40;
/// Bars of a histogram.
const BINS: usize = 96;

/// One module with requests.
struct Subject {
    name: &'static str,
    operator: Box<dyn Operator>,
    requests: Vec<Inputs>,
    /// What the work of each request is counted in: exits, steps, objects.
    lengths: Vec<usize>,
    /// What the time of a batch is a sum over, from the lengths of its members.
    stages: fn(&[usize]) -> Vec<f64>,
}

/// Measures, prints Markdown tables, and writes the histograms as `NAME.svg` into a folder where one is given.
pub(crate) fn report(
    models: &Path,
    samples: &[Sample],
    n_requests: usize,
    svg: Option<&PathBuf>,
) -> anyhow::Result<()> {
    let mut subjects = subjects(models, samples, n_requests)?;
    println!("| module | requests | least | p10 | p50 | mean | p90 | p99 | most |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut alone = Vec::new();
    for subject in &mut subjects {
        let times = times_alone(subject)?;
        println!("{}", quantiles(subject.name, &times));
        if let Some(folder) = svg {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
            let path = folder.join(format!("{}.svg", subject.name));
            spillgate_output::write(&path, histogram(subject.name, &times))?;
        }
        alone.push(times);
    }
    println!(
        "\n| module | c0 + c1 k max(l): c0, c1 | error | c1 max(l) + c2 sum(l): c1, c2 | error | sum over stages | error |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (subject, alone) in subjects.iter_mut().zip(&alone) {
        let batches = batches(subject, alone)?;
        let forms = [batches.paper, batches.served, batches.stages];
        let [paper, served, stages] = forms.map(|points| {
            let (known, unknown): (Vec<_>, Vec<_>) =
                (points.into_iter().enumerate()).partition(|(i, _)| i % 2 == 0);
            let strip = |points: Vec<(usize, Point)>| -> Vec<Point> {
                points.into_iter().map(|(_, p)| p).collect()
            };
            let coefficients = fit(&strip(known));
            let error = error(&coefficients, &strip(unknown));
            let all: Vec<String> = coefficients.iter().map(|c| format!("{c:.3}")).collect();
            format!("{} | {:.1} %", all.join(", "), 100.0 * error)
        });
        println!("| {} | {paper} | {served} | {stages} |", subject.name);
    }
    Ok(())
}

fn subjects(models: &Path, samples: &[Sample], n: usize) -> anyhow::Result<Vec<Subject>> {
    let mut backend = TorchBackend::new("cpu:0")?;
    let (pictures, _): (Vec<Inputs>, Vec<usize>) =
        dynamic::pictures(samples, n).into_iter().unzip();
    let (numbers, _): (Vec<Inputs>, Vec<String>) = dynamic::numbers(n).into_iter().unzip();
    let vehicles = dynamic::vehicles(samples);
    let mut who = dynamic::who(models, dynamic::THRESHOLD, &mut backend)?;
    let mut say = dynamic::say(models, &mut backend)?;
    let mut exits = Vec::with_capacity(n);
    let mut steps = Vec::with_capacity(n);
    for (picture, number) in pictures.iter().zip(&numbers) {
        exits.push(dynamic::named(&crate::modules::run(&mut *who, 0, picture.clone())?)?.1);
        let text = crate::modules::run(&mut *say, 0, number.clone())?;
        // One more step says that the text ends.
        steps.push(dynamic::written(&text)?.len() + 1);
    }
    let n_vehicles = (samples.iter().map(|s| s.truth.vehicles.len()))
        .filter(|n| *n > 0)
        .collect();
    Ok(vec![
        Subject {
            name: "early_exit_classifier",
            operator: who,
            requests: pictures,
            lengths: exits,
            stages: segments,
        },
        Subject {
            name: "text_generator",
            operator: say,
            requests: numbers,
            lengths: steps,
            stages: letters,
        },
        Subject {
            name: "text_reader",
            operator: dynamic::plates(models, &mut backend)?,
            requests: vehicles,
            lengths: n_vehicles,
            stages: objects,
        },
    ])
}

/// For each segment: whether it runs, and on how many.
fn segments(exits: &[usize]) -> Vec<f64> {
    (1..=crate::who::N_EXITS)
        .flat_map(|segment| {
            let n = exits.iter().filter(|exit| **exit >= segment).count();
            [f64::from(u8::from(n > 0)), n as f64]
        })
        .collect()
}

/// The reader: once, and for each text; the step: how often, and for how many texts in all.
fn letters(steps: &[usize]) -> Vec<f64> {
    let longest = steps.iter().max().copied().unwrap_or(0);
    let all: usize = steps.iter().sum();
    vec![1.0, steps.len() as f64, longest as f64, all as f64]
}

/// Once, for each frame, and for each object.
fn objects(n_objects: &[usize]) -> Vec<f64> {
    vec![
        1.0,
        n_objects.len() as f64,
        n_objects.iter().sum::<usize>() as f64,
    ]
}

/// Least time of [`RUNS`] runs of a batch.
fn least(operator: &mut dyn Operator, batch: &[Inputs]) -> anyhow::Result<Duration> {
    let mut least = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        let results = operator.run(0, batch);
        least = least.min(start.elapsed());
        for result in results {
            result?;
        }
    }
    Ok(least)
}

/// Time of each request alone.
fn times_alone(subject: &mut Subject) -> anyhow::Result<Vec<Duration>> {
    for inputs in subject.requests.iter().take(WARM_UP) {
        least(&mut *subject.operator, std::slice::from_ref(inputs))?;
    }
    let alone = subject.requests.iter();
    alone
        .map(|inputs| least(&mut *subject.operator, std::slice::from_ref(inputs)))
        .collect()
}

/// The same batches, described in three ways. Times in milliseconds.
struct Batches {
    /// 1 and `k max(l)`.
    paper: Vec<Point>,
    /// `max(l)` and `sum(l)`: the form that a scheduler in serve uses.
    served: Vec<Point>,
    /// What the subject's stages depend on.
    stages: Vec<Point>,
}

fn batches(subject: &mut Subject, alone: &[Duration]) -> anyhow::Result<Batches> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let all: Vec<usize> = (0..subject.requests.len()).collect();
    let mut batches = Batches {
        paper: Vec::new(),
        served: Vec::new(),
        stages: Vec::new(),
    };
    for size in SIZES {
        for _ in 0..BATCHES {
            let members: Vec<usize> = (0..size).map(|_| *any(&all, &mut rng)).collect();
            let inputs: Vec<Inputs> = (members.iter())
                .map(|i| subject.requests[*i].clone())
                .collect();
            let time = ms(least(&mut *subject.operator, &inputs)?);
            let longest = members.iter().map(|i| alone[*i]).max().unwrap_or_default();
            batches.paper.push(Point {
                features: vec![1.0, size as f64 * ms(longest)],
                time,
            });
            let sum: Duration = members.iter().map(|i| alone[*i]).sum();
            batches.served.push(Point {
                features: vec![ms(longest), ms(sum)],
                time,
            });
            let lengths: Vec<usize> = members.iter().map(|i| subject.lengths[*i]).collect();
            batches.stages.push(Point {
                features: (subject.stages)(&lengths),
                time,
            });
        }
    }
    Ok(batches)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A row of the table.
fn quantiles(name: &str, times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |q: f64| ms(sorted[((sorted.len() - 1) as f64 * q).round() as usize]);
    let mean = times.iter().copied().map(ms).sum::<f64>() / times.len() as f64;
    let all = [at(0.0), at(0.1), at(0.5), mean, at(0.9), at(0.99), at(1.0)];
    let all = all.map(|v| format!("{v:.2} ms"));
    format!("| {name} | {} | {} |", times.len(), all.join(" | "))
}

/// Bars from 0 to the 99.5th percentile, so that one preempted run does not squeeze the rest.
fn histogram(name: &str, times: &[Duration]) -> String {
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 200.0;
    const LEFT: f64 = 30.0;
    let mut sorted: Vec<f64> = times.iter().copied().map(ms).collect();
    sorted.sort_by(f64::total_cmp);
    let most = sorted[(sorted.len() - 1) * 995 / 1000];
    let mut counts = [0usize; BINS];
    for time in sorted.iter().filter(|time| **time <= most) {
        counts[((time / most * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    let highest = *counts.iter().max().expect("bins") as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<text x=\"8\" y=\"16\">{name}: {} requests, each alone</text>\n",
        WIDTH + 2.0 * LEFT,
        HEIGHT + 60.0,
        times.len()
    );
    let bar = WIDTH / BINS as f64;
    for (i, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let h = HEIGHT * *count as f64 / highest;
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{h:.1}\" fill=\"#3b6ea5\"/>",
            LEFT + i as f64 * bar,
            28.0 + HEIGHT - h,
            bar - 1.0
        );
    }
    for i in 0..=4 {
        let part = f64::from(i) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{:.2} ms</text>",
            LEFT + part * WIDTH,
            HEIGHT + 46.0,
            part * most
        );
    }
    svg.push_str("</svg>\n");
    svg
}
