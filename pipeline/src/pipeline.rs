//! The checked form of a pipeline: names resolved, types proven to fit, the graph proven acyclic.
//! Only this form reaches a policy or a driver.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use petgraph::graph::DiGraph;

use crate::catalog::ValueType;
use crate::clients::Clients;
use crate::distribution::Window;
use crate::family::Family;
use crate::id::{MemberId, ModuleId, VariantId};
use crate::placement::{Decider, ServedBy};
use crate::policy::recipe::Bind;
use crate::policy::{Adapt, AdaptName, DispatchPolicyName, PolicyConfig};
use crate::schedule::SchedulePolicy;

/// A checked pipeline.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Its name, by which clients address it.
    pub name: String,
    /// The end-to-end latency objective.
    pub slo: Duration,
    /// The source of its requests.
    pub source: Source,
    /// All modules in topological order; `modules[0]` stands for the source, so that a `ModuleId` is an index.
    pub modules: Vec<Module>,
    /// One node a module (node index = `ModuleId`), one edge for each pair that data flows between.
    pub graph: DiGraph<ModuleId, Edge>,
    /// The fields of a result, in the order of the file.
    pub outputs: Vec<Output>,
    /// Which policies decide.
    pub policy: PolicyConfig,
    /// The module whose variants are chosen request by request, and how. `None`: one variant of each module serves.
    pub adapt: Option<Adapt>,
    /// Bounds at the gateway.
    pub limits: Limits,
    /// Its clients and their rights.
    pub clients: Clients,
}

/// The content of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of its one field: `$source.NAME`.
    pub field: String,
    /// Image or bytes.
    pub ty: ValueType,
}

/// An edge of the graph. `when` edges carry only a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The downstream module's `when:` looks at an output of the upstream one.
    pub condition: bool,
    /// The downstream module has an input from the upstream one that it cannot run without.
    pub required: bool,
}

/// An output of a module, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRef {
    /// The module; `ModuleId::SOURCE` for `$source.x`.
    pub module: ModuleId,
    /// Ordinal among its outputs.
    pub port: u16,
}

/// A module of the pipeline.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its ordinal.
    pub id: ModuleId,
    /// Its name in the file.
    pub name: String,
    /// Name of its type in the catalogue; `source` for the source.
    pub op: String,
    /// One entry for each input of its type, in the type's order; `None`: an optional one not wired.
    pub inputs: Vec<Option<PortRef>>,
    /// Types of its outputs, in the type's order, then those that its options add.
    pub outputs: Vec<(String, ValueType)>,
    /// It runs only for requests for which this output is not empty (bytes and tensors: at
    /// least one element; lists of other values: at least one entry).
    pub when: Option<PortRef>,
    /// Model variants, the most accurate last. Empty for types without a model.
    pub variants: Vec<Variant>,
    /// The variant that serves where none is chosen; `None`: the most accurate.
    pub fixed: Option<VariantId>,
    /// Its family of models, of which each request names one. Its only variant names all of them then.
    pub family: Option<Arc<Family>>,
    /// Batch limits.
    pub batch: BatchLimits,
    /// The scheduler that forms its batches, where its execution time depends on the input; `None`: the broker, as
    /// planned.
    pub schedule: Option<SchedulePolicy>,
    /// Which of the measured execution times count.
    pub window: Window,
    /// How many workers.
    pub workers: Workers,
    /// Names of the devices that may serve it, as in the file: `auto`, `cpu:0`, `cuda:0`, `emulated:0`.
    pub devices: Vec<String>,
    /// Bound of each worker's queue.
    pub queue: usize,
    /// The longer side in pixels that a frame needs for this module, as far as clients may be asked to send smaller ones; 0: any.
    pub frame_min: u32,
    /// Options of the type, checked against it.
    pub options: IndexMap<String, OptionValue>,
    /// Line of its name in the file, for messages.
    pub line: usize,
}

impl Module {
    /// The same module with one model of its family in place of all.
    ///
    /// # Panics
    /// When it has no such member.
    pub fn of_member(&self, member: MemberId) -> Module {
        let family = self.family.as_ref().expect("the module has a family");
        let model = &family.members[member.idx()].file;
        let one = |variant: &Variant| Variant {
            model: model.clone(),
            ..variant.clone()
        };
        Module {
            variants: self.variants.iter().map(one).collect(),
            family: None,
            ..self.clone()
        }
    }

    /// Ordinal of the variant that serves where none is chosen: the most accurate, which is last, unless another one is
    /// fixed. 0 for types without a model.
    pub fn served(&self) -> usize {
        let last = self.variants.len().saturating_sub(1);
        self.fixed.map_or(last, |fixed| fixed.idx().min(last))
    }

    /// Ordinal of a variant that a request names; where there is no such variant, of the one that serves where none is chosen.
    pub fn variant(&self, variant: VariantId) -> usize {
        let known = Some(variant.idx()).filter(|idx| *idx < self.variants.len());
        known.unwrap_or_else(|| self.served())
    }

    /// Key of a variant in a profile: the model and, where there is one, its input size; `-` for types without a model.
    pub fn profile_key(&self, variant: usize) -> String {
        let Some(Variant { model, input, .. }) = self.variants.get(variant) else {
            return "-".to_owned();
        };
        match input {
            Some(input) => format!("{model}@{input}"),
            None => model.clone(),
        }
    }
}

/// A model variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The model file, or the pattern of a family's files, as written; relative to the pipeline file.
    pub model: String,
    /// Side of the square network input in pixels, where the type has one.
    pub input: Option<u32>,
    /// Measured accuracy, where stated.
    pub accuracy: Option<f64>,
}

/// Batch limits of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most requests in one batch.
    pub max: u32,
}

/// How many workers a module has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text, a word of a choice, or a path.
    Text(String),
    /// A list of numbers.
    Numbers(Vec<f64>),
    /// A list of texts.
    Texts(Vec<String>),
    /// Numbers by text, in the order of the file.
    NumberByText(IndexMap<String, f64>),
    /// Lists of texts by name, in the order of the file; each name is an output of the module.
    Groups(IndexMap<String, Vec<String>>),
}

/// A field of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name in the result.
    pub name: String,
    /// Where it comes from.
    pub from: PortRef,
    /// What it carries.
    pub ty: ValueType,
}

/// Bounds at the gateway. A request over a bound is refused at once, never queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most requests of this pipeline in flight.
    pub in_flight: usize,
    /// Most requests in flight of one client stream.
    pub in_flight_per_stream: usize,
    /// Most pixels of a frame, checked on its header before it is decoded.
    pub pixels: u64,
    /// Most bytes of a frame as sent.
    pub frame_bytes: usize,
    /// Most time that decoding a frame may take, as computed from its bytes, and after which it is stopped; `None`: half of the SLO.
    pub decoding: Option<Duration>,
    /// Most objects of one frame for a module that works on objects. The objects with the lowest scores are left out
    /// and counted.
    pub objects: usize,
    /// What happens to frames whose picture is damaged but decodes.
    pub damaged: Damaged,
}

/// What happens to frames whose picture is damaged but decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// They are served, and their results tell of it.
    Served,
    /// They fail as unreadable ones do.
    Refused,
}

impl Damaged {
    /// All, in the order of the documentation.
    pub const ALL: [Damaged; 2] = [Damaged::Served, Damaged::Refused];

    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Damaged::Served => "served",
            Damaged::Refused => "refused",
        }
    }
}

/// Part of the SLO that a request may lose to batches of requests without one on its whole way.
pub const BACKGROUND_PART: f64 = 0.1;

impl Limits {
    /// Most requests in flight of clients without an SLO, beside [`Limits::in_flight`] of the others: a quarter of that.
    pub fn background(&self) -> usize {
        (self.in_flight / 4).max(1)
    }
}

impl Pipeline {
    /// The modules that have a family of models.
    pub fn families(&self) -> impl Iterator<Item = (&Module, &Family)> {
        let modules = self.modules.iter();
        modules.filter_map(|m| Some((m, m.family.as_deref()?)))
    }

    /// Most time that decoding a frame may take: `limits.decoding`, or half of the SLO.
    pub fn decoding_max(&self) -> Duration {
        self.limits.decoding.unwrap_or(self.slo / 2)
    }

    /// The module of that name (the source is `source`).
    pub fn module(&self, name: &str) -> Option<&Module> {
        self.modules.iter().find(|m| m.name == name)
    }

    /// Modules that receive data or a condition from `id`, in order.
    pub fn successors(&self, id: ModuleId) -> Vec<ModuleId> {
        let mut all: Vec<ModuleId> = self
            .graph
            .neighbors(petgraph::graph::NodeIndex::new(id.idx()))
            .map(|n| ModuleId(n.index() as u16))
            .collect();
        all.sort();
        all
    }

    /// Longest time of a batch of requests without an SLO at each module, as far as one request alone does not take longer. A running batch is
    /// not stopped, so a request that arrives behind it waits for its end: those of all modules on the longest way through the pipeline take
    /// a tenth of the SLO together.
    pub fn background_time(&self) -> Duration {
        let mut ways = vec![0; self.modules.len()];
        // The source does not count.
        for module in &self.modules[1..] {
            let before = self.predecessors(module.id).into_iter();
            let longest = before.map(|m| ways[m.idx()]).max();
            ways[module.id.idx()] = longest.unwrap_or(0) + 1;
        }
        let longest: u32 = ways.into_iter().max().unwrap_or(0).max(1);
        self.slo.mul_f64(BACKGROUND_PART) / longest
    }

    /// Modules from which `id` receives data or a condition, in order.
    pub fn predecessors(&self, id: ModuleId) -> Vec<ModuleId> {
        let mut all: Vec<ModuleId> = self
            .graph
            .neighbors_directed(
                petgraph::graph::NodeIndex::new(id.idx()),
                petgraph::Direction::Incoming,
            )
            .map(|n| ModuleId(n.index() as u16))
            .collect();
        all.sort();
        all
    }

    /// The edge between two modules, if there is one.
    pub fn edge(&self, from: ModuleId, to: ModuleId) -> Option<Edge> {
        let node = |id: ModuleId| petgraph::graph::NodeIndex::new(id.idx());
        let edge = self.graph.find_edge(node(from), node(to))?;
        self.graph.edge_weight(edge).copied()
    }

    /// By module: the outputs that a `when:` looks at.
    pub fn watched(&self) -> Vec<Vec<PortRef>> {
        let of = |id: ModuleId| {
            let whens = self.modules.iter().filter_map(|m| m.when);
            let mut ports: Vec<PortRef> = whens.filter(|port| port.module == id).collect();
            ports.sort_unstable_by_key(|port| port.port);
            ports.dedup();
            ports
        };
        self.modules.iter().map(|m| of(m.id)).collect()
    }

    /// The same, served by that.
    ///
    /// The processes of a topology decide by themselves: where nothing else is written, the dispatch policy is the one for so many
    /// gateways, and under a placement the one by models. The entry gate of a pipeline with one module under a placement is open, unless the
    /// file names one: what the placement drops there has cost nothing yet, and it chooses better.
    #[must_use]
    pub fn served_by(mut self, ServedBy { decider, gateways }: ServedBy) -> Self {
        if let Some(n) = gateways {
            let schedules = self.modules.iter().map(|m| m.schedule);
            self.policy.dispatch = self.policy.dispatch_of(n, schedules);
        }
        let Some(decider) = decider else {
            return self;
        };
        self.policy = self.policy.decided_by(decider);
        if decider.placement().is_some() {
            if gateways.is_some() {
                self.policy.dispatch = Some(DispatchPolicyName::Affinity);
            }
            if self.modules.len() == 2 {
                self.policy.gate.get_or_insert(0.0);
            }
        }
        self
    }

    /// The dispatch policy in force at most modules. Where weights give way to each other while brokers form the batches, requests for a model
    /// of a family go to where it is, unless the file says otherwise.
    pub fn dispatch(&self) -> DispatchPolicyName {
        let shares_memory = self.policy.decider == Some(Decider::Brokers);
        match self.policy.dispatch {
            None if shares_memory && self.families().next().is_some() => {
                DispatchPolicyName::Affinity
            }
            _ => self.policy.dispatch(),
        }
    }

    /// The same with these variants of a module alone, which are counted from 0 then: what weights that serve them are read with.
    pub fn with_variants(&self, module: ModuleId, variants: &[VariantId]) -> Self {
        let mut pipeline = self.clone();
        let of = &mut pipeline.modules[module.idx()];
        let kept = variants.iter().filter_map(|v| of.variants.get(v.idx()));
        of.variants = kept.cloned().collect();
        of.fixed = None;
        pipeline
    }

    /// The longer side in pixels that frames need at modules other than the one whose variants are chosen; 0 where none states it.
    pub fn frame_min(&self) -> u32 {
        let others = (self.modules.iter()).filter(|m| Some(m.id) != self.adapted());
        others.map(|m| m.frame_min).max().unwrap_or_default()
    }

    /// The module whose variants are chosen request by request.
    pub fn adapted(&self) -> Option<ModuleId> {
        Some(self.adapt?.module)
    }

    /// Whether the requests of a module wait at their gateway until a worker asks for them. The source's workers decode what
    /// their own gateway read, so requests are pushed to them; so are those of workers that bind a batch ahead.
    pub fn is_pulled(&self, module: ModuleId) -> bool {
        let schedule = self.modules[module.idx()].schedule;
        let is_scheduled = schedule.is_some_and(|s| s != SchedulePolicy::STATIC);
        let binds_late = is_scheduled || self.policy.recipe().bind == Bind::Late;
        let pulls = self.dispatch_to(module) == DispatchPolicyName::Pull;
        // A stream that is bound to a worker is sent there.
        let binds_streams = self.binds_streams_at(module);
        pulls && binds_late && !binds_streams && module != ModuleId::SOURCE
    }

    /// Whether the streams of clients are bound to the workers of a module.
    fn binds_streams_at(&self, module: ModuleId) -> bool {
        let adapt = self.adapt.filter(|adapt| adapt.module == module);
        adapt.is_some_and(|adapt| adapt.name == AdaptName::Jellyfish)
    }

    /// The dispatch policy in force at a module. Only the models of a family can be told apart. Unless a policy is named, requests of an adapted
    /// module wait where all workers see them, if batches are bound late: a worker takes all that wait for one variant, while those sent to
    /// workers would be divided into smaller batches. But where weights give way to each other they are sent to workers, which read weights for
    /// what waits there.
    pub fn dispatch_to(&self, module: ModuleId) -> DispatchPolicyName {
        let is_family = self.modules[module.idx()].family.is_some();
        let is_divided = self.adapted() == Some(module) && !self.binds_streams_at(module);
        let binds_late = self.policy.recipe().bind == Bind::Late;
        let shares_memory = self.policy.decider == Some(Decider::Brokers);
        if self.policy.dispatch.is_none() && !shares_memory && is_divided && binds_late {
            return DispatchPolicyName::Pull;
        }
        match self.dispatch() {
            DispatchPolicyName::Affinity if !is_family => DispatchPolicyName::LeastOutstanding,
            all => all,
        }
    }

    /// The dispatch policy in force, for people, and that of the adapted module where it has another one.
    pub fn dispatch_names(&self) -> String {
        let all = self.dispatch();
        let at_module = |module: ModuleId| (self.dispatch_to(module), module);
        match self.adapted().map(at_module) {
            Some((DispatchPolicyName::Pull, module)) if all != DispatchPolicyName::Pull => {
                format!(
                    "{}, pull at {}",
                    all.name(),
                    self.modules[module.idx()].name
                )
            }
            _ => all.name().to_owned(),
        }
    }

    /// Modules whose outputs no other module reads.
    pub fn sinks(&self) -> Vec<ModuleId> {
        self.modules
            .iter()
            .map(|m| m.id)
            .filter(|id| self.successors(*id).is_empty())
            .collect()
    }

    /// By module: whether a request waits for its result. It does if no other module reads the outputs, or if the
    /// answer contains one of them. A request is done when all these modules have run or were skipped.
    pub fn awaited(&self) -> Vec<bool> {
        let is_awaited = |id: ModuleId| {
            self.successors(id).is_empty() || self.outputs.iter().any(|o| o.from.module == id)
        };
        self.modules.iter().map(|m| is_awaited(m.id)).collect()
    }
}
