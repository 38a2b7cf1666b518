use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use tch::Kind;

use super::super::{call, configure};
use super::*;

const CPU: Device = Device::Cpu;

pub(super) fn fixture(name: &str) -> Vec<u8> {
    configure();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    std::fs::read(folder.join(format!("{name}.pt"))).expect("a fixture")
}

/// The archive of a traced network: convolutions with their biases, and a matrix product. Its form follows from `width`. Its numbers are
/// constants.
pub(in super::super) fn traced(width: i64, seed: i64) -> Vec<u8> {
    configure();
    let number = |shape: &[i64]| tch::Tensor::randn(shape, (Kind::Float, CPU)) * 0.2;
    tch::manual_seed(seed);
    let first = (number(&[width, 3, 3, 3]), number(&[width]));
    let second = (number(&[width, width, 3, 3]), number(&[width]));
    let last = number(&[width * 64, 5]);
    let mut run = |x: &[tch::Tensor]| {
        let mut x = x[0].shallow_clone();
        for (weight, bias) in [&first, &second] {
            x = x
                .conv2d(weight, Some(bias), [2, 2], [1, 1], [1, 1], 1)
                .relu();
        }
        vec![x.flatten(1, -1).matmul(&last)]
    };
    let example = tch::Tensor::ones([2, 3, 32, 32], (Kind::Float, CPU));
    let module = CModule::create_by_tracing("test", "forward", &[example], &mut run);
    let path = std::env::temp_dir().join(format!(
        "spillgate-network-{}-{width}-{seed}.pt",
        std::process::id()
    ));
    module
        .and_then(|module| module.save(&path))
        .expect("a trace");
    let bytes = std::fs::read(&path).expect("it was written");
    std::fs::remove_file(&path).expect("it is there");
    bytes
}

fn random(shape: &[i64]) -> tch::Tensor {
    tch::Tensor::randn(shape, (Kind::Float, CPU))
}

fn pictures(n: i64, side: i64) -> tch::Tensor {
    tch::manual_seed(n);
    random(&[n, 3, side, side])
}

fn given(lent: &Lent, input: &tch::Tensor) -> Vec<tch::Tensor> {
    let run = || call(lent.network.module(), vec![input.shallow_clone()]);
    tch::no_grad(run).expect("it runs")
}

/// What libtorch makes of an archive by itself.
fn expected(bytes: &[u8], input: &tch::Tensor) -> Vec<tch::Tensor> {
    given(
        &load_apart(&Archive::new(bytes), CPU).expect("a model"),
        input,
    )
}

fn loaded(bytes: &[u8]) -> Lent {
    super::load(&Archive::new(bytes), CPU).expect("a model")
}

fn is_exchangeable(lent: &Lent) -> bool {
    lent.network.exchange.is_some()
}

fn id(bytes: &[u8]) -> FormId {
    Archive::new(bytes).form().expect("a form").id
}

fn n_spares(bytes: &[u8]) -> usize {
    let form = id(bytes);
    let spares = SPARES.lock();
    spares
        .iter()
        .filter(|(_, spare)| spare.form() == Some(form))
        .count()
}

#[test]
fn archives_of_one_form_give_what_each_gives_alone() {
    let archives = [1, 2, 3].map(|seed| traced(9, seed));
    assert_eq!(id(&archives[0]), id(&archives[1]));
    for round in 0..3 {
        let lent: Vec<Lent> = archives.iter().map(|bytes| loaded(bytes)).collect();
        let cold: Vec<bool> = lent.iter().map(|lent| lent.is_cold).collect();
        assert_eq!(cold, [round == 0, false, false], "the first of the form");
        for n in [1, 4, 1, 4] {
            let input = pictures(n, 32);
            for (lent, bytes) in lent.iter().zip(&archives) {
                assert!(is_exchangeable(lent));
                assert_eq!(
                    given(lent, &input),
                    expected(bytes, &input),
                    "round {round}"
                );
            }
        }
    }
    let spares = n_spares(&archives[0]);
    assert_eq!(spares, SPARES_MAX, "three were given back");
    let input = pictures(2, 32);
    let lent: Vec<Lent> = archives.iter().rev().map(|bytes| loaded(bytes)).collect();
    assert_eq!(n_spares(&archives[0]), 0, "they serve again");
    for (lent, bytes) in lent.iter().zip(archives.iter().rev()) {
        assert_eq!(given(lent, &input), expected(bytes, &input));
    }
}

#[test]
fn scripted_traced_and_frozen_modules_of_pytorch_exchange_their_numbers() {
    let input = pictures(3, 16);
    for kind in ["scripted", "traced", "frozen"] {
        let archives = [1, 2].map(|number| fixture(&format!("{kind}-{number}")));
        for _ in 0..2 {
            for bytes in &archives {
                let lent = loaded(bytes);
                assert!(is_exchangeable(&lent), "{kind}");
                assert_eq!(given(&lent, &input), expected(bytes, &input), "{kind}");
                assert_eq!(
                    given(&lent, &input),
                    expected(bytes, &input),
                    "{kind} again"
                );
            }
        }
        if kind != "frozen" {
            assert_eq!(id(&archives[0]), id(&archives[1]), "{kind}");
        }
    }
}

#[test]
fn what_a_model_did_to_itself_is_gone_when_it_is_loaded_again() {
    let input = tch::Tensor::zeros([1, 3, 4, 4], (Kind::Float, CPU));
    for (name, exchanges, is_kept) in [
        // It sets an attribute.
        ("stateful", false, false),
        // A part of it does.
        ("nested", false, false),
        // It adds to numbers in their place.
        ("counting", true, true),
        // Its numbers get other memory.
        ("moving", true, false),
        // It has a list of tensors.
        ("listed", false, false),
    ] {
        let bytes = fixture(name);
        for round in 0..3 {
            let lent = loaded(&bytes);
            assert_eq!(is_exchangeable(&lent), exchanges, "{name}");
            let first: Vec<f64> = given(&lent, &input)
                .iter()
                .map(|t| t.double_value(&[0]))
                .collect();
            let fresh: Vec<f64> = expected(&bytes, &input)
                .iter()
                .map(|t| t.double_value(&[0]))
                .collect();
            assert_eq!(first, fresh, "{name}, round {round}");
            drop(lent);
            assert_eq!(n_spares(&bytes), usize::from(is_kept), "{name}");
        }
    }
}

#[test]
fn what_cannot_be_exchanged_is_compiled_each_time() {
    let input = pictures(2, 4);
    for name in ["forked", "complex"] {
        let bytes = fixture(name);
        for _ in 0..2 {
            let lent = loaded(&bytes);
            assert!(!is_exchangeable(&lent), "{name}");
            assert!(lent.is_cold, "{name}");
            assert_eq!(given(&lent, &input), expected(&bytes, &input), "{name}");
        }
    }
}

#[test]
fn a_model_whose_numbers_are_read_elsewhere_is_no_spare() {
    let bytes = fixture("viewing");
    let input = pictures(1, 4);
    let lent = loaded(&bytes);
    let output = given(&lent, &input);
    drop(lent);
    assert_eq!(n_spares(&bytes), 0, "an output is a view of its numbers");
    assert_eq!(output[0].double_value(&[0]), 4.0);
    let lent = loaded(&bytes);
    drop(given(&lent, &input));
    drop(lent);
    assert_eq!(n_spares(&bytes), 1);
}

#[test]
fn spares_have_a_bound_in_bytes_and_the_oldest_give_way() {
    // 9.4 MB each, and no two of one form.
    let archives: Vec<Vec<u8>> = (0..16).map(|i| traced(500 + i, 1)).collect();
    for bytes in &archives {
        drop(loaded(bytes));
        let spares = SPARES.lock();
        let here = spares.iter().filter(|(on, _)| *on == CPU);
        let bytes: usize = here.map(|(_, spare)| spare.bytes()).sum();
        assert!(bytes <= SPARE_BYTES_MAX_CPU, "{bytes}");
    }
    assert_eq!(n_spares(&archives[15]), 1);
    assert_eq!(n_spares(&archives[0]), 0);
}

#[test]
fn where_memory_is_short_that_of_spares_is_given_up() {
    // Other tests count the spares of the CPU.
    let elsewhere = Device::Vulkan;
    let n_spares = || {
        let spares = SPARES.lock();
        spares.iter().filter(|(on, _)| *on == elsewhere).count()
    };
    let spare = loaded(&traced(11, 1)).loaded.take().expect("it is there");
    give_back(spare, elsewhere);
    assert_eq!(n_spares(), 1);
    // What is given back after a first try that fails with this text, and how many tries there are.
    let tried = |why: &str| {
        let n_tries = Cell::new(0);
        let made = with_room(elsewhere, || {
            n_tries.set(n_tries.get() + 1);
            match n_tries.get() {
                1 => Err(why.to_owned()),
                _ => Ok(()),
            }
        });
        (made, n_tries.get())
    };
    assert_eq!(tried("not a model"), (Err("not a model".to_owned()), 1));
    assert_eq!(n_spares(), 1, "another error frees nothing");
    assert_eq!(tried("CUDA out of memory. Tried"), (Ok(()), 2));
    assert_eq!(n_spares(), 0);
    let host = "DefaultCPUAllocator: can't allocate memory: you tried";
    assert_eq!(tried(host), (Err(host.to_owned()), 1), "there is no spare");
}

#[test]
fn junk_in_an_archive_of_a_known_form_is_an_error() {
    let good = traced(10, 1);
    let _serves = loaded(&good);
    assert!(super::load(&Archive::new(&good[..good.len() / 2]), CPU).is_err());
    assert!(super::load(&Archive::new(b"junk"), CPU).is_err());
}

#[test]
fn tuples_and_lists_of_tensors_are_outputs_of_copies_too() {
    let bytes = fixture("pair");
    let input = tch::Tensor::ones([1, 3, 4, 4], (Kind::Float, CPU));
    let lent = loaded(&bytes);
    assert!(is_exchangeable(&lent));
    let outputs: Vec<f64> = given(&lent, &input)
        .iter()
        .map(|t| t.double_value(&[0]))
        .collect();
    assert_eq!(outputs, [1.0, 2.0, 2.0]);
}

#[test]
fn a_further_archive_of_a_form_takes_less_time_to_load_and_as_long_to_run() {
    let archives = [traced(384, 1), traced(384, 2)];
    let input = pictures(1, 32);
    let least = |run: &mut dyn FnMut() -> Lent| {
        let mut least = [Duration::MAX; 3];
        for _ in 0..20 {
            let begun = Instant::now();
            let lent = run();
            let took = begun.elapsed();
            let begun = Instant::now();
            given(&lent, &input);
            let first = begun.elapsed();
            let begun = Instant::now();
            given(&lent, &input);
            let second = begun.elapsed();
            for (least, took) in least.iter_mut().zip([took, first, second]) {
                *least = took.min(*least);
            }
        }
        least
    };
    let mut i = 0;
    let mut next = || {
        i += 1;
        Archive::new(&archives[i % 2])
    };
    let apart = least(&mut || load_apart(&next(), CPU).expect("a model"));
    let _compiled = loaded(&archives[0]);
    let exchanged = least(&mut || super::load(&next(), CPU).expect("a model"));
    println!("{} bytes: load, first run, second run", archives[0].len());
    println!("compiled  {apart:?}\nexchanged {exchanged:?}");
    assert!(exchanged[0] < apart[0]);
    assert!(exchanged[2] < 2 * apart[2], "{exchanged:?} {apart:?}");
}
