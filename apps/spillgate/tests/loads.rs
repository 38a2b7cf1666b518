//! Memory over many loads and unloads of real TorchScript models, as a device under a placement makes them.
//!
//! `cargo test -p spillgate --test loads -- --nocapture`; with `SPILLGATE_LOADS_DEVICE=cuda:0` on a GPU, with `SPILLGATE_LOADS=N` so many.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate_backend::Backend;
use spillgate_backend::torch::TorchBackend;
use spillgate_pipeline::id::{MemberId, ModuleId, WeightsId, WorkerId};
use spillgate_worker::operators::WorkerSpec;
use spillgate_worker::weights::Loader;
use spillgate_worker::weights::loader::{OperatorLoader, Source, WeightsSpec};

/// Loads without `SPILLGATE_LOADS`.
const LOADS: usize = 10_000;
/// Models that are in memory at the same time.
const RESIDENT: usize = 3;
/// Most growth of the process's memory after the first quarter of the loads, in KiB: one page of weights.
const GROWTH_MAX: u64 = 16 * 1024;

/// The models of the shipped traffic pipeline.
fn models() -> Arc<[WeightsSpec]> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pipelines");
    let text = std::fs::read_to_string(folder.join("traffic.yaml")).unwrap();
    let catalog = spillgate_modules::library().catalog();
    let compiled = spillgate_pipeline::compile(&text, "traffic.yaml", &catalog, None);
    let pipeline = compiled.unwrap_or_else(|problems| panic!("{problems}"));
    let pipeline = Arc::new(pipeline.pipeline);
    let with_model = pipeline.modules.iter().filter(|m| !m.variants.is_empty());
    let source = |module: ModuleId| Source {
        worker: WorkerSpec {
            worker: WorkerId(0),
            pipeline: pipeline.clone(),
            base_dir: folder.clone(),
            module,
            execution: vec![Duration::from_millis(1)].into(),
            from_start: false,
            members: None,
            load: None,
        },
        member: MemberId::default(),
        files: Vec::new(),
    };
    let spec = |module: ModuleId| WeightsSpec {
        sources: vec![source(module)],
    };
    with_model.map(|m| spec(m.id)).collect()
}

/// Memory of the GPU that is taken, in KiB: the driver counts it for all processes.
fn gpu_kib() -> u64 {
    let mut command = std::process::Command::new("nvidia-smi");
    let said = command.args(["--query-gpu=memory.used", "--format=csv,noheader,nounits"]);
    let text = String::from_utf8(said.output().unwrap().stdout).unwrap();
    1024 * text.lines().next().unwrap().trim().parse::<u64>().unwrap()
}

/// Memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let number = line.and_then(|l| l.trim().strip_suffix(" kB"));
    number.and_then(|n| n.trim().parse().ok()).expect("VmRSS")
}

/// Memory at the begin and after each quarter of the loads must not grow after the first quarter.
fn check(of: &str, said: &[u64]) {
    let mib = |kib: &u64| format!("{:.1}", *kib as f64 / 1024.0);
    let quarters: Vec<String> = said.iter().map(mib).collect();
    let quarters = quarters.join(", ");
    println!("MiB {of} at the begin, after each quarter: {quarters}");
    let growth = said[said.len() - 1].saturating_sub(said[1]);
    assert!(growth <= GROWTH_MAX, "{growth} KiB more {of}");
}

// Over five seconds: 10,000 loads of models.
#[test]
fn memory_does_not_grow_over_loads_and_unloads() {
    let loads = std::env::var("SPILLGATE_LOADS").map_or(LOADS, |n| n.parse().expect("a number"));
    let models = models();
    let n = models.len();
    assert!(n >= 3, "the traffic pipeline has several models");
    let device = std::env::var("SPILLGATE_LOADS_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let on_gpu = device.starts_with("cuda");
    let backend =
        Box::new(move || TorchBackend::new(&device).map(|b| Box::new(b) as Box<dyn Backend>));
    let library = Arc::new(spillgate_modules::library());
    let mut loader = OperatorLoader::new(backend, library, models).unwrap();
    let mut resident = VecDeque::new();
    let begun = Instant::now();
    let mut said = Vec::new();
    let mut of_gpu = Vec::new();
    for i in 0..loads {
        if i % (loads / 4).max(1) == 0 {
            said.push(resident_kib());
            if on_gpu {
                of_gpu.push(gpu_kib());
            }
        }
        resident.push_back(loader.load(WeightsId((i % n) as u32), true).unwrap());
        if resident.len() > RESIDENT {
            resident.pop_front();
        }
    }
    said.push(resident_kib());
    let took = begun.elapsed().as_secs_f64();
    println!("{loads} loads of {n} models in {took:.1} s");
    if on_gpu {
        of_gpu.push(gpu_kib());
        check("of the GPU", &of_gpu);
    }
    check("of the process", &said);
}
