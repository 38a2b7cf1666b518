//! Families of models and placements in a simulated pipeline.

use std::path::Path;
use std::sync::Arc;

use crate::deployment::Deployment;
use crate::device_sharing::DeviceSharing;
use crate::devices::fleets::{self, Weights};
use crate::files::LoadedPipeline;
use crate::model_check::Families;
use crate::model_files::weights_bytes;
use clap::Args;
use indexmap::IndexMap;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::family::{Family, FamilyModel, MEMBERS_MAX};
use spillgate_pipeline::id::MemberId;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::placement::Decider;
use spillgate_pipeline::placement::ServedBy;
use spillgate_sim::families::{Named, SimFamilies, Zipf};
use spillgate_sim::placement::{ARRIVAL_COLUMNS, Arrival, parse_arrivals};
use spillgate_sim::report::Models;
use spillgate_sim::{Contender, SimConfig};

use super::{SimulateArgs, load};
use crate::commands::device_sharing::{Fairness, device};
use crate::commands::ranges::{bytes, number};
use crate::commands::{self, offered};

/// Popularity of the models of a family unless said otherwise.
const ZIPF_DEFAULT: f64 = 0.9;
/// Bytes of a MB, as links are measured.
const MB: f64 = 1e6;

/// Which models there are, which of them requests name, and which are in the memory of devices.
#[derive(Args)]
pub(super) struct ModelsArgs {
    /// Placement of models and batches on devices; repeat it to compare [default: spillgate where --scenario or --device is given;
    /// else devices decide themselves, and keep the models that they have read]
    #[arg(long, value_name = "NAME", value_parser = offered::placements())]
    pub(super) placement: Vec<String>,
    /// Whether models get fair shares of device time, under placements that know them.
    #[arg(long, value_enum, default_value = "on")]
    pub(super) fairness: Fairness,
    /// Memory that a device has for weights, like cuda:0,memory=12GiB; `emulated` stands for each emulated one (repeatable). On others
    /// all models fit
    #[arg(long, value_name = "NAME,memory=SIZE", value_parser = device, conflicts_with = "scenario")]
    device: Vec<(String, u64)>,
    /// Each module has a family of that many models, in place of those of the file.
    #[arg(long, value_name = "N", value_parser = number(1u16, MEMBERS_MAX as u16, "a family has so many models"), conflicts_with = "scenario")]
    models: Option<u16>,
    /// Size of the weights of each model, like 100MiB [default: that of its file]
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "scenario")]
    weights: Option<u64>,
    /// MB/s that are read of weights [default: reading takes the `load` of the profile or, without one, 2 ms and the size at 100 MB/s, as
    /// a server expects before it has measured]
    #[arg(long, value_name = "MB/s", value_parser = number(0.001, 1e9, "weights have to be read"), conflicts_with = "scenario")]
    link: Option<f64>,
    /// The model of rank k of a family is named in proportion to 1/k^S; which model has which rank is random, and modules do not
    /// depend on each other [default: 0.9]
    #[arg(long, value_name = "S", value_parser = number(0.0, 10.0, "0 names all equally often"), conflicts_with = "scenario")]
    zipf: Option<f64>,
}

/// Flags that say something else than the placements that were named, with why.
fn check_beside(all: &SimulateArgs, placings: &[DeviceSharing]) -> anyhow::Result<()> {
    let is_placement = |placing: &&DeviceSharing| placing.decider.placement().is_some();
    let n_placements = placings.iter().filter(is_placement).count();
    anyhow::ensure!(
        n_placements == 0 || n_placements == placings.len(),
        "--placement brokers serves by the policies of the file, and a placement in their place; run them one after the other"
    );
    let has_apart = all.gateways.is_some() || all.network_delay.is_some() || all.cluster.is_some();
    let varies = !all.jitter.is_zero() || !all.clock_skew.is_zero();
    let of_placement = [
        (
            "--policy",
            !all.policy.is_empty(),
            "decides about batches, too",
        ),
        (
            "--schedule",
            !all.schedule.is_empty(),
            "decides about batches, too",
        ),
        (
            "--dispatch",
            all.dispatch.is_some(),
            "has all devices in one process",
        ),
        (
            "--gateways, --network-delay, --cluster",
            has_apart,
            "has all devices in one process",
        ),
        (
            "--jitter, --clock-skew",
            varies,
            "has all devices in one process",
        ),
    ];
    let of_all = [
        ("--gpus", all.gpus.is_some(), "has the devices of the file"),
        (
            "--cold-start",
            all.cold_start.is_some(),
            "has all workers from the start",
        ),
    ];
    let given = |(_, is_given, _): &&(&str, bool, &str)| *is_given;
    let beside_placement = of_placement.iter().filter(|_| n_placements > 0).find(given);
    let beside_any = of_all.iter().filter(|_| !placings.is_empty()).find(given);
    if let Some((flag, _, why)) = beside_any {
        anyhow::bail!("{flag}: what shares memory {why}; leave it out");
    }
    if let Some((flag, _, why)) = beside_placement {
        anyhow::bail!("{flag}: a placement {why}; leave it out, or give --placement brokers");
    }
    Ok(())
}

/// The models of a pipeline, and the placements to compare.
pub(super) struct Simulated {
    placings: Vec<DeviceSharing>,
    weights: Weights,
    zipf: f64,
    /// The requests of `--arrivals`, where it names models.
    asked: Option<Vec<Arrival>>,
    deployment: Deployment,
}

impl Simulated {
    /// What the arguments ask for. The pipeline gets its families, and under a placement the policies of a server under one.
    pub(super) fn read(all: &SimulateArgs, loaded: &mut LoadedPipeline) -> anyhow::Result<Self> {
        let args = &all.models;
        let placings = args.placings();
        anyhow::ensure!(
            args.fairness == Fairness::On || !placings.is_empty(),
            "--fairness: no placement is simulated; give --placement or --device"
        );
        check_beside(all, &placings)?;
        if let Some(n) = args.models {
            give_models(Arc::make_mut(&mut loaded.pipeline), n);
        }
        let first = placings.first().map(|first| first.decider);
        loaded.served_by(ServedBy::one_process(first));
        let pipeline = &loaded.pipeline;
        let has_families = pipeline.families().next().is_some();
        anyhow::ensure!(
            args.zipf.is_none() || has_families,
            "--zipf: no module has a family of models; give --models"
        );
        let asked = match &all.arrivals {
            Some(file) => asked(file, pipeline)?,
            None => None,
        };
        anyhow::ensure!(
            args.zipf.is_none() || asked.is_none(),
            "--zipf: the requests of --arrivals name their models"
        );
        let given = [
            ("--weights", args.weights.is_some()),
            ("--link", args.link.is_some()),
        ];
        let given = given.iter().find(|(_, is_given)| *is_given);
        if let Some((flag, _)) = given.filter(|_| !has_families && placings.is_empty()) {
            anyhow::bail!("{flag}: no model has to be read; give --models or --placement");
        }
        let base_dir = loaded.base_dir();
        let is_placed = !placings.is_empty();
        let weights = pipeline.modules.iter();
        let weights = weights.map(|module| args.weights_of(module, &base_dir, is_placed));
        Ok(Simulated {
            weights: Weights {
                bytes: weights.collect::<anyhow::Result<_>>()?,
                link: args.link.map(|link| link * MB),
            },
            placings,
            zipf: args.zipf.unwrap_or(ZIPF_DEFAULT),
            asked,
            deployment: Deployment {
                pipeline: pipeline.clone(),
                base_dir,
                profiles: loaded.profiles.clone(),
                families: Families::default(),
            },
        })
    }

    /// The placements to compare: one that is none where devices decide themselves.
    pub(super) fn placings(&self) -> Vec<Option<&DeviceSharing>> {
        match self.placings.as_slice() {
            [] => vec![None],
            some => some.iter().map(Some).collect(),
        }
    }

    /// The requests of `--arrivals`, where it names models.
    pub(super) fn asked(&self) -> Option<&[Arrival]> {
        self.asked.as_deref()
    }

    /// Gives a run its models, and its devices to a placement. `devices` are those of all workers.
    pub(super) fn apply(
        &self,
        config: &mut SimConfig,
        placing: Option<&DeviceSharing>,
        devices: &[Vec<u16>],
    ) -> anyhow::Result<()> {
        let pipeline = &self.deployment.pipeline;
        if pipeline.families().next().is_some() {
            config.families = Some(Arc::new(SimFamilies {
                loads: fleets::loads(&self.deployment, &self.weights),
                named: self.named(config.seed),
            }));
        }
        if let Some(asked) = &self.asked {
            config.timeouts = Some(asked.iter().map(|request| request.slo).collect());
        }
        let Some(placing) = placing else {
            return Ok(());
        };
        if let Some(name) = placing.decider.placement() {
            anyhow::ensure!(
                config.work.is_none(),
                "--placement: requests with lengths need a batch scheduler; give --arrivals without lengths"
            );
            config.fleets = fleets::simulated(
                &self.deployment,
                (name, placing),
                &self.weights,
                &commands::library(),
            )?;
            // A placement runs a model on any device of its fleet.
            config.workers = devices.to_vec();
        } else {
            let library = commands::library();
            config.memory = fleets::memory(&self.deployment, placing, &self.weights, &library)?;
        }
        Ok(())
    }
}

impl Simulated {
    /// Which models requests name.
    fn named(&self, seed: u64) -> Named {
        if let Some(asked) = &self.asked {
            let members = asked.iter().map(|request| MemberId(request.model.0 as u16));
            return Named::Listed(members.collect());
        }
        let modules = self.deployment.pipeline.modules.iter();
        let drawn = modules.map(|module| {
            let members = module.family.as_ref()?.members.len() as u16;
            Some(Zipf::new(members, self.zipf, seed, module.id))
        });
        Named::Drawn(drawn.collect())
    }
}

/// The requests of a file that names models.
fn asked(file: &Path, pipeline: &Pipeline) -> anyhow::Result<Option<Vec<Arrival>>> {
    let text = load::read(file)?;
    let header = text.lines().next().unwrap_or_default().trim();
    if header != ARRIVAL_COLUMNS {
        return Ok(None);
    }
    let sizes = pipeline.families().map(|(_, family)| family.members.len());
    let Some(least) = sizes.min() else {
        anyhow::bail!(
            "{}: its requests name models, and no module has a family of models; give --models",
            file.display()
        );
    };
    let asked = parse_arrivals(&text, least)
        .map_err(|e| anyhow::anyhow!("{}:{}: {}", file.display(), e.line, e.problem))?;
    anyhow::ensure!(
        !asked.is_empty(),
        "{}: there are no arrivals",
        file.display()
    );
    Ok(Some(asked))
}

impl ModelsArgs {
    fn placings(&self) -> Vec<DeviceSharing> {
        let names = self.placement.iter();
        let mut deciders: Vec<Decider> = names.filter_map(|p| Decider::by_name(p)).collect();
        if deciders.is_empty() && !self.device.is_empty() {
            deciders.push(Decider::default());
        }
        let memory: IndexMap<String, u64> = self.device.iter().cloned().collect();
        let placing = |decider| DeviceSharing {
            decider,
            is_fair: self.fairness == Fairness::On,
            memory: memory.clone(),
        };
        deciders.into_iter().map(placing).collect()
    }

    /// Bytes of each model of a module; `None`: the size of its file.
    fn weights_of(
        &self,
        module: &Module,
        base_dir: &Path,
        is_placed: bool,
    ) -> anyhow::Result<Option<u64>> {
        let is_read = module.family.is_some() || is_placed && !module.variants.is_empty();
        if self.weights.is_some() || !is_read || (module.family.is_some() && self.models.is_none())
        {
            return Ok(self.weights);
        }
        // A family of the same size as the module's own model.
        let files = module.variants.iter().map(|v| base_dir.join(&v.model));
        let sizes = files.map(|file| weights_bytes(&file));
        let sizes: Option<Vec<u64>> = sizes.collect();
        match sizes.filter(|sizes| !sizes.is_empty()) {
            Some(sizes) => Ok(Some(sizes.iter().sum())),
            None => anyhow::bail!(
                "--weights: how large the models of module {} are is not known, since it has no model file; give their \
                 size, like 100MiB",
                module.name
            ),
        }
    }
}

/// The policies of a run under a placement.
pub(super) fn placed(contender: &Contender, placing: Option<&DeviceSharing>) -> Contender {
    let mut contender = contender.clone();
    if let Some(placing) = placing {
        contender.policy = contender.policy.decided_by(placing.decider);
    }
    contender
}

/// Gives each module a family of that many models. Modules share none.
fn give_models(pipeline: &mut Pipeline, n: u16) {
    for module in pipeline.modules.iter_mut().skip(1) {
        let members = (0..n).map(|i| FamilyModel {
            name: format!("{i:05}"),
            file: format!("{i:05} of --models for {}", module.name),
        });
        module.family = Some(Arc::new(Family {
            pattern: "--models".to_owned(),
            default: None,
            members: members.collect(),
        }));
    }
}

/// What happened to models, in a line or two. `is_shared`: memory is, so they are read beside batches.
pub(super) fn text_of(models: &Models, is_shared: bool) -> String {
    let Models {
        loads,
        cold_requests,
        unloads,
        load_utilisation,
        refused,
    } = models;
    let of = match is_shared {
        true => "links",
        false => "devices",
    };
    let mut text = format!(
        "  models: {loads} loads, {cold_requests} cold requests, {unloads} gave way; {of} read {:.1}% of the time\n",
        load_utilisation * 100.0
    );
    if let Some(of) = refused {
        text.push_str(&format!(
            "  refused: {} late batches, {} late LOADs, {} whose model gave way, {} without pages\n",
            of.late_batch, of.late_load, of.not_loaded, of.no_pages
        ));
    }
    text
}
