//! On a GPU, where there is one: elsewhere these tests say so and check nothing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tch::{CModule, Device, Kind};

use super::super::archive::Archive;
use super::super::recorded::Recorded;
use super::super::{TorchBackend, devices, network};
use super::GpuModel;
use crate::cuda::{Urgency, enter};
use crate::description::Description;
use crate::{Backend, Input, Model};
use spillgate_process::value::Tensor;

const GPU: &str = "cuda:0";

fn has_gpu() -> bool {
    let has = devices().iter().any(|d| d == GPU);
    if !has {
        println!("no GPU here: nothing is checked");
    }
    has
}

/// A model file that goes with its test.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn traced(name: &str, f: impl Fn(&tch::Tensor) -> Vec<tch::Tensor>) -> File {
    let file = std::env::temp_dir().join(format!("spillgate-gpu-{}-{name}", std::process::id()));
    let example = tch::Tensor::ones([2, 3, 16, 16], (Kind::Float, Device::Cpu));
    let mut f = |x: &[tch::Tensor]| f(&x[0]);
    CModule::create_by_tracing("test", "forward", &[example], &mut f)
        .and_then(|module| module.save(&file))
        .expect("tracing");
    File(file)
}

/// Convolutions and a matrix product with random weights.
fn network(name: &str, seed: i64) -> File {
    let mut weights = Vec::new();
    tch::manual_seed(seed);
    for shape in [[8, 3, 3, 3], [16, 8, 3, 3]] {
        weights.push(tch::Tensor::randn(shape, (Kind::Float, Device::Cpu)) * 0.2);
    }
    let last = tch::Tensor::randn([16 * 16 * 16, 5], (Kind::Float, Device::Cpu)) * 0.05;
    traced(name, move |x| {
        let mut x = x.shallow_clone();
        for weight in &weights {
            let none: Option<tch::Tensor> = None;
            x = x.conv2d(weight, none, [1, 1], [1, 1], [1, 1], 1).relu();
        }
        vec![x.flatten(1, -1).matmul(&last)]
    })
}

fn load(file: &File, device: &str) -> Box<dyn Model> {
    let mut backend = TorchBackend::new(device).expect("the device is there");
    backend.load(&file.0).expect("a model")
}

/// The same, to look into.
fn on_gpu(path: &Path) -> GpuModel {
    TorchBackend::new(GPU).expect("the device is there");
    enter(0, Urgency::Loading).expect("a stream");
    let bytes = std::fs::read(path).expect("a file");
    let lent = network::load_apart(&Archive::new(&bytes), Device::Cuda(0)).expect("a model");
    GpuModel::new(path, lent, Description::default(), 0)
}

fn records(model: &mut GpuModel) -> &mut Recorded {
    model.lent.recorded.as_mut().expect("each model has them")
}

fn input(n: usize, seed: usize) -> Tensor {
    let data = (0..n * 3 * 256).map(|i| ((i * 31 + seed * 17) % 101) as f32 / 101.0);
    Tensor::new(vec![n as i64, 3, 16, 16], data.collect())
}

fn assert_close(given: &Tensor, expected: &Tensor, of: &str) {
    assert_eq!(given.shape, expected.shape, "{of}");
    for (a, b) in given.data.iter().zip(&expected.data) {
        assert!((a - b).abs() <= 1e-3 + 1e-2 * b.abs(), "{of}: {a} and {b}");
    }
}

fn on_cpu(file: &File, tensor: &Tensor) -> Tensor {
    let outputs = load(file, "cpu:0").forward(std::slice::from_ref(tensor));
    outputs.expect("it runs").remove(0)
}

fn executed(model: &mut dyn Model, input: &Input) -> Tensor {
    let output = model.execute(input, 1).expect("it runs");
    output.on_host().expect("a copy").remove(0)
}

#[test]
fn a_gpu_gives_what_the_cpu_gives_recorded_or_not() {
    if !has_gpu() {
        return;
    }
    let file = network("same", 1);
    let mut model = on_gpu(&file.0);
    for round in 0..6 {
        for n in [1, 4, 2] {
            let tensor = input(n, round);
            let expected = on_cpu(&file, &tensor);
            let of = format!("round {round}, {n} pictures");
            let given = model
                .forward(std::slice::from_ref(&tensor))
                .expect("it runs");
            assert_close(&given[0], &expected, &of);
            assert_close(&executed(&mut model, &tensor.into()), &expected, &of);
        }
    }
    assert_eq!(records(&mut model).count(), 3, "one for each size");
}

#[test]
fn what_a_model_gave_stays_while_others_run_in_the_same_memory() {
    if !has_gpu() {
        return;
    }
    let (a, b) = (network("stays-a", 2), network("stays-b", 3));
    let (mut model_a, mut model_b) = (load(&a, GPU), load(&b, GPU));
    let copier = TorchBackend::new(GPU)
        .unwrap()
        .copier()
        .expect("a GPU has one");
    for round in 0..5 {
        let (first, second) = (input(3, round), input(3, round + 50));
        let (expected_a, expected_b) = (on_cpu(&a, &first), on_cpu(&b, &second));
        let given = Input {
            copied: Some(copier.copy(&first).expect("a copy")),
            tensor: first,
        };
        let of_a = model_a.execute(&given, 1).unwrap();
        let of_b = model_b.execute(&second.into(), 1).unwrap();
        let again = model_a.execute(&input(3, 99).into(), 1).unwrap();
        assert_close(&of_a.on_host().unwrap()[0], &expected_a, "a");
        assert_close(&of_b.on_host().unwrap()[0], &expected_b, "b");
        drop(again);
    }
}

#[test]
fn a_model_that_cannot_be_recorded_runs_and_so_do_others() {
    if !has_gpu() {
        return;
    }
    let looks = traced("looks", |x| vec![x.nonzero().sum(Kind::Float).reshape([1])]);
    let sound = network("beside", 4);
    for round in 0..3 {
        let mut model = on_gpu(&looks.0);
        let mut other = on_gpu(&sound.0);
        for seed in 0..4 {
            let tensor = input(2, seed);
            let of = format!("round {round}, seed {seed}");
            let expected = on_cpu(&looks, &tensor);
            assert_close(
                &executed(&mut model, &tensor.clone().into()),
                &expected,
                &of,
            );
            let expected = on_cpu(&sound, &tensor);
            assert_close(&executed(&mut other, &tensor.into()), &expected, &of);
        }
    }
}

#[test]
fn models_are_loaded_recorded_and_dropped_while_another_one_runs() {
    if !has_gpu() {
        return;
    }
    let (file, others) = (network("runs", 5), network("come-and-go", 6));
    let tensors: Vec<Tensor> = (0..4).map(|seed| input(2, seed)).collect();
    let expected: Vec<Tensor> = tensors.iter().map(|t| on_cpu(&file, t)).collect();
    let of_others: Vec<Tensor> = tensors.iter().map(|t| on_cpu(&others, t)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loads = scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                let mut model = load(&others, GPU);
                for (tensor, expected) in tensors.iter().zip(&of_others) {
                    let given = executed(&mut *model, &tensor.clone().into());
                    assert_close(&given, expected, "one that comes and goes");
                }
                n += 1;
            }
            n
        });
        let mut model = load(&file, GPU);
        for round in 0..3000 {
            let seed = round % tensors.len();
            let given = executed(&mut *model, &tensors[seed].clone().into());
            assert_close(&given, &expected[seed], "the one that runs");
        }
        is_over.store(true, Ordering::Relaxed);
        let n = loads.join().expect("no panic");
        println!("{n} loads beside 3000 executions");
        assert!(n > 3);
    });
}

#[test]
fn wrong_inputs_are_errors_of_one_line_and_the_model_lives_on() {
    if !has_gpu() {
        return;
    }
    let file = network("wrong", 7);
    let mut model = load(&file, GPU);
    for _ in 0..3 {
        let tensor = Tensor::new(vec![1, 3, 8, 8], vec![0.0; 192]);
        let error = model.forward(&[tensor]).expect_err("too small").to_string();
        assert!(
            !error.contains('\n') && error.contains("[1, 3, 8, 8]"),
            "{error}"
        );
        model.forward(&[input(1, 0)]).expect("it runs");
    }
}

/// Median and 99th percentile.
fn times(model: &mut GpuModel, tensor: &Tensor) -> [Duration; 2] {
    let given = super::copy(tensor, 0).expect("a copy");
    let mut times: Vec<Duration> = (0..2000)
        .map(|_| {
            let begun = Instant::now();
            let outputs = tch::no_grad(|| model.outputs(vec![given.shallow_clone()]));
            outputs.expect("it runs");
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    [times[1000], times[1980]]
}

#[test]
fn a_recorded_execution_takes_less_time_than_one_kernel_after_another() {
    if !has_gpu() {
        return;
    }
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/modules/models");
    for (name, shape) in [
        ("road.pt", vec![1, 3, 320, 320]),
        ("road.pt", vec![8, 3, 320, 320]),
        ("road.pt", vec![1, 3, 128, 128]),
        ("face.pt", vec![1, 3, 40, 40]),
    ] {
        let n = shape.iter().product::<i64>() as usize;
        let tensor = Tensor::new(shape, (0..n).map(|i| (i % 97) as f32 / 97.0).collect());
        let path = models.join(name);
        let mut plain = on_gpu(&path);
        records(&mut plain).record_nothing();
        let mut recorded = on_gpu(&path);
        let begun = |model: &mut GpuModel| {
            let begun = Instant::now();
            executed(model, &tensor.clone().into());
            begun.elapsed()
        };
        begun(&mut plain);
        let firsts = [begun(&mut recorded), begun(&mut recorded)];
        let (plain, recorded) = (times(&mut plain, &tensor), times(&mut recorded, &tensor));
        println!(
            "{name} {:?}: p50 and p99 {plain:?}, recorded {recorded:?}; first run and the one that records {firsts:?}",
            tensor.shape
        );
        assert!(recorded[0] < plain[0]);
    }
}

#[test]
fn a_model_takes_the_place_of_another_of_its_form_with_its_records() {
    if !has_gpu() {
        return;
    }
    let files = [
        network("place-a", 8),
        network("place-b", 9),
        network("place-c", 10),
    ];
    for round in 0..4 {
        let file = &files[round % files.len()];
        let mut backend = TorchBackend::new(GPU).expect("the device is there");
        let begun = Instant::now();
        let mut model = backend.load(&file.0).expect("a model");
        println!("round {round}: loaded in {:?}", begun.elapsed());
        for n in [1, 4, 1, 4, 1, 4] {
            let tensor = input(n, round);
            let given = executed(&mut *model, &tensor.clone().into());
            assert_close(
                &given,
                &on_cpu(file, &tensor),
                &format!("round {round}, {n} pictures"),
            );
        }
    }
}

#[test]
fn a_trace_that_names_the_cpu_runs_on_a_gpu() {
    if !has_gpu() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    for name in [
        "traced-1",
        "traced-2",
        "frozen-1",
        "frozen-2",
        "scripted-1",
        "scripted-2",
    ] {
        let path = folder.join(format!("{name}.pt"));
        let load = |device| TorchBackend::new(device).unwrap().load(&path).unwrap();
        let (mut on_cpu, mut model) = (load("cpu:0"), load(GPU));
        for round in 0..4 {
            let tensor = input(2, round);
            let expected = on_cpu.forward(std::slice::from_ref(&tensor)).unwrap();
            assert_close(&executed(&mut *model, &tensor.into()), &expected[0], name);
        }
    }
    // It reads numbers of characters.
    let path = folder.join("../../../apps/modules/models/say.pt");
    let load = |device| TorchBackend::new(device).unwrap().load(&path).unwrap();
    let (mut on_cpu, mut model) = (load("cpu:0"), load(GPU));
    let tensor = Tensor::new(vec![3, 9], (0..27).map(|i| (i % 9) as f32).collect());
    let expected = on_cpu.forward(std::slice::from_ref(&tensor)).unwrap();
    assert_close(&executed(&mut *model, &tensor.into()), &expected[0], "say");
}

/// Medians of what it takes to load, and of the first two runs.
fn load_times(load: &mut dyn FnMut(usize) -> GpuModel, tensor: &Tensor) -> [Duration; 3] {
    let mut all = [const { Vec::new() }; 3];
    for i in 0..40 {
        let begun = Instant::now();
        let mut model = load(i);
        all[0].push(begun.elapsed());
        for run in &mut all[1..] {
            let begun = Instant::now();
            executed(&mut model, &tensor.clone().into());
            run.push(begun.elapsed());
        }
    }
    all.map(|mut times| {
        times.sort_unstable();
        times[20]
    })
}

#[test]
fn a_further_archive_of_a_form_takes_less_time_to_load() {
    if !has_gpu() {
        return;
    }
    let archives = [1, 2].map(|seed| network::tests::traced(384, seed));
    let tensor = Tensor::new(vec![1, 3, 32, 32], vec![0.5; 3 * 1024]);
    TorchBackend::new(GPU).expect("the device is there");
    enter(0, Urgency::Loading).expect("a stream");
    let path = Path::new("none.pt");
    let load = |i: usize, apart: bool| {
        let archive = Archive::new(&archives[i % 2]);
        let lent = match apart {
            true => network::load_apart(&archive, Device::Cuda(0)),
            false => network::load(&archive, Device::Cuda(0)),
        };
        GpuModel::new(path, lent.expect("a model"), Description::default(), 0)
    };
    let apart = load_times(&mut |i| load(i, true), &tensor);
    // None is given back, so each is a copy.
    let mut kept = Vec::new();
    let mut copied = Vec::new();
    for i in 0..40 {
        let begun = Instant::now();
        kept.push(load(i, false));
        copied.push(begun.elapsed());
    }
    copied.sort_unstable();
    drop(kept);
    let exchanged = load_times(&mut |i| load(i, false), &tensor);
    println!("{} bytes: load, first and second run", archives[0].len());
    println!(
        "compiled {apart:?}; copied {:?}; exchanged {exchanged:?}",
        copied[20]
    );
    assert!(exchanged[0] < apart[0]);
}
