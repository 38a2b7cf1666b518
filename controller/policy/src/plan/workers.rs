//! Which workers a pipeline gets, and on which devices.
//!
//! A module's workers are spread over its devices in turn. `emulated` gives each worker an emulated device of its own;
//! `emulated:N` is a shared one. Frames are decoded on separate devices, `decode:N`, each with one worker of the
//! source.
//!
//! Workers beyond `workers: min`, up to `max`, start when the load asks for them. Each of these workers is on a device
//! of its own, because a second worker on the same device would gain nothing.

use std::collections::BTreeMap;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::{Module, Workers};

use super::{PlanError, PlanName, Planned, plan_for_workers};
use crate::scaling::{COOL_DOWN_DEFAULT, CarriedOut, ScalingConfig};

/// The workers of a pipeline, by module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedWorkers {
    /// Devices of all workers that a module can have, one a worker.
    pub devices: Vec<Vec<String>>,
    /// How many of them, from the first, serve from the start.
    pub least: Vec<u32>,
}

impl PlacedWorkers {
    /// The workers that a pipeline file asks for, and `n_decoders` where frames are pictures. `resolved` gives the full name of
    /// a device; `n_emulated` counts the emulated devices that belong to one worker, over all pipelines.
    pub fn of(
        pipeline: &Pipeline,
        n_decoders: usize,
        resolved: impl Fn(&str) -> String,
        n_emulated: &mut usize,
    ) -> Self {
        let n_decoders = match pipeline.source.ty {
            ValueType::Image => n_decoders,
            _ => 0,
        };
        let mut workers = PlacedWorkers {
            devices: vec![(0..n_decoders).map(|i| format!("decode:{i}")).collect()],
            least: vec![n_decoders as u32],
        };
        for module in &pipeline.modules[1..] {
            let devices = devices(module, &resolved, n_emulated);
            workers.devices.push(devices);
            workers.least.push(module.workers.min);
        }
        workers
    }

    /// How many workers each module can have.
    pub fn most(&self) -> Vec<u32> {
        self.devices.iter().map(|d| d.len() as u32).collect()
    }

    /// Whether no two modules share a device from the start.
    pub fn alone(&self) -> bool {
        let mut of_device: BTreeMap<&str, usize> = BTreeMap::new();
        let mut from_start = (0..)
            .zip(self.devices.iter().zip(&self.least))
            .flat_map(|(m, (devices, &n))| devices.iter().take(n as usize).map(move |d| (m, d)));
        from_start.all(|(module, device)| *of_device.entry(device).or_insert(module) == module)
    }

    /// The plan of that name for the workers that serve from the start: [`plan_for_workers`].
    ///
    /// # Panics
    /// When a module after the source has no execution times.
    pub fn plan(
        &self,
        name: PlanName,
        pipeline: &Pipeline,
        execution: ExecutionTimes,
    ) -> (Planned, Option<PlanError>) {
        plan_for_workers(name, pipeline, execution, self.least.clone(), self.alone())
    }

    /// How the workers follow the load between the least and the most; `None` when there are no more than the least.
    pub fn scaling(&self, planned: &Planned) -> Option<ScalingConfig> {
        let (least, most) = (self.least.clone(), self.most());
        following(planned, (least, most), CarriedOut::Here)
    }

    /// How many workers are wanted where workers register: as many as the pipeline file says.
    pub fn scaling_of_registered(pipeline: &Pipeline, planned: &Planned) -> ScalingConfig {
        let bounds = pipeline.modules.iter();
        let bounds = bounds.map(|module| (module.workers.min, module.workers.max));
        scaling(planned, bounds.unzip(), CarriedOut::Elsewhere)
    }

    /// How many workers are wanted where these are the workers of a topology: as many as these, but where the pipeline file gives a
    /// range. `None` when it gives none.
    pub fn scaling_of_topology(
        &self,
        pipeline: &Pipeline,
        planned: &Planned,
    ) -> Option<ScalingConfig> {
        let bounds = pipeline.modules.iter().zip(self.most());
        let bounds = bounds.map(|(module, n)| match module.workers {
            Workers { min, max } if min < max => (min, max),
            _ => (n, n),
        });
        following(planned, bounds.unzip(), CarriedOut::Elsewhere)
    }
}

/// Numbers of workers that follow the load between these bounds; `None` where the bounds leave no choice.
fn following(
    planned: &Planned,
    (least, most): (Vec<u32>, Vec<u32>),
    carried_out: CarriedOut,
) -> Option<ScalingConfig> {
    (least != most).then(|| scaling(planned, (least, most), carried_out))
}

fn scaling(
    planned: &Planned,
    (least, most): (Vec<u32>, Vec<u32>),
    carried_out: CarriedOut,
) -> ScalingConfig {
    let throughput = |module: usize| {
        let execution = planned.duration(ModuleId(module as u16));
        f64::from(planned.batch[module]) / execution.as_secs_f64()
    };
    ScalingConfig {
        throughput: (0..most.len()).map(throughput).collect(),
        least,
        most,
        cool_down: COOL_DOWN_DEFAULT,
        carried_out,
    }
}

/// The devices of a module's workers, the first `workers: min` of which serve from the start.
fn devices(
    module: &Module,
    resolved: impl Fn(&str) -> String,
    n_emulated: &mut usize,
) -> Vec<String> {
    let mut devices: Vec<String> = Vec::new();
    for i in 0..module.workers.max as usize {
        let device = match module.devices[i % module.devices.len()].as_str() {
            "emulated" => {
                *n_emulated += 1;
                format!("emulated:own{}", *n_emulated - 1)
            }
            name => resolved(name),
        };
        if i < module.workers.min as usize || !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    fn of(modules: &[(&[&str], u32, u32)]) -> PlacedWorkers {
        let reads: Vec<&[u16]> = vec![&[0]; modules.len()];
        let mut pipeline = noop_pipeline(Duration::from_millis(100), &reads, &[]);
        for (module, &(devices, min, max)) in pipeline.modules[1..].iter_mut().zip(modules) {
            module.devices = devices.iter().map(|&d| d.to_owned()).collect();
            module.workers = Workers { min, max };
        }
        PlacedWorkers::of(&pipeline, 2, |name| format!("{name}!"), &mut 0)
    }

    #[test]
    fn workers_are_spread_over_devices_in_turn() {
        let workers = of(&[(&["a", "b"], 3, 3), (&["emulated"], 2, 2), (&["a"], 1, 1)]);
        assert_eq!(workers.devices[1], ["a!", "b!", "a!"]);
        assert_eq!(workers.devices[2], ["emulated:own0", "emulated:own1"]);
        assert_eq!(workers.least, [0, 3, 2, 1]);
        assert!(!workers.alone(), "two modules share a device");
        assert!(of(&[(&["a", "b"], 2, 2), (&["c"], 1, 1)]).alone());
    }

    #[test]
    fn workers_that_start_later_have_devices_of_their_own() {
        let workers = of(&[(&["a", "b"], 1, 4)]);
        assert_eq!(workers.devices[1], ["a!", "b!"]);
        assert_eq!(
            (workers.least.as_slice(), workers.most()),
            (&[0, 1][..], vec![0, 2])
        );
        // Workers that may start later do not count.
        assert!(of(&[(&["a", "b"], 1, 2), (&["b"], 1, 1)]).alone());
    }

    #[test]
    fn pictures_get_decoders() {
        let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
        pipeline.source.ty = ValueType::Image;
        let workers = PlacedWorkers::of(&pipeline, 2, str::to_owned, &mut 0);
        assert_eq!(workers.devices[0], ["decode:0", "decode:1"]);
        assert_eq!(workers.least, [2, 1]);
    }

    #[test]
    fn they_follow_the_load_where_there_can_be_more() {
        let planned = |workers: &PlacedWorkers| Planned {
            batch: vec![1, 4],
            execution: vec![vec![], vec![Duration::from_millis(20); 4]].into(),
            workers: workers.least.clone(),
            alone: workers.alone(),
        };
        let fixed = of(&[(&["a"], 1, 1)]);
        assert!(fixed.scaling(&planned(&fixed)).is_none());
        let elastic = of(&[(&["emulated"], 1, 3)]);
        let scaling = elastic.scaling(&planned(&elastic)).unwrap();
        assert_eq!((scaling.least[1], scaling.most[1]), (1, 3));
        assert_eq!(scaling.throughput[1], 200.0);
    }

    #[test]
    fn in_a_topology_they_follow_the_range_of_the_file_or_stay_as_they_are() {
        let range = |min, max| Workers { min, max };
        let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0], &[1]], &[]);
        let workers = PlacedWorkers {
            devices: [0, 6, 3].map(|n| vec!["a/cpu:0".to_owned(); n]).into(),
            least: vec![0, 6, 3],
        };
        let planned = Planned {
            batch: vec![1, 4, 4],
            execution: vec![vec![], vec![Duration::from_millis(20); 4], vec![]].into(),
            workers: workers.least.clone(),
            alone: false,
        };
        pipeline.modules[1].workers = range(1, 1);
        assert_eq!(workers.scaling_of_topology(&pipeline, &planned), None);
        pipeline.modules[1].workers = range(2, 4);
        let scaling = workers.scaling_of_topology(&pipeline, &planned).unwrap();
        assert_eq!(
            (scaling.least, scaling.most),
            (vec![0, 2, 3], vec![0, 4, 3])
        );
        assert_eq!(scaling.throughput[1], 200.0);
        assert_eq!(scaling.carried_out, CarriedOut::Elsewhere);
    }
}
