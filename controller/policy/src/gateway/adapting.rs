//! Chooses the variants of a gateway's streams, where a module of the pipeline has several.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, ModuleId, RequestId, VariantId, WorkerId};
use spillgate_pipeline::request::{DropReason, Outcome};
use spillgate_pipeline::time::Timestamp;

use super::{AdaptationView, Command, Gateway};
use crate::ledger::Offer;
use crate::plan::longest_path;
use crate::refusal::Refusal;
use crate::uplink::UplinkReport;
use crate::variant_selector::{Outlook, StreamBinding, StreamKey, StreamWorker, VariantSelector};

/// The newest request's weight in the time before the module.
const BEFORE_WEIGHT: f64 = 1.0 / 32.0;
/// Of that time, so many mean deviations are left for it.
const DEVIATIONS: f64 = 2.0;
/// How far the measured pace of workers is believed.
const PACE_RANGE: (f64, f64) = (0.25, 8.0);

/// What a gateway adapts.
pub(super) struct Adapting {
    module: ModuleId,
    selector: VariantSelector,
    /// By variant of the module: the variants of all modules.
    variants: Vec<Arc<[VariantId]>>,
    /// Seconds from a request's beginning until it comes to the module: mean and mean deviation.
    before: Option<(f64, f64)>,
}

impl Adapting {
    /// The adaptation that the pipeline asks for, if any.
    pub(super) fn new(pipeline: &Pipeline, served: &[VariantId], seed: u64) -> Option<Self> {
        let adapt = pipeline.adapt?;
        let module = &pipeline.modules[adapt.module.idx()];
        let with = |variant: usize| {
            let mut all = served.to_vec();
            all[adapt.module.idx()] = VariantId(variant as u16);
            all.into()
        };
        Some(Adapting {
            module: adapt.module,
            selector: VariantSelector::new(adapt, module, pipeline.frame_min(), seed),
            variants: (0..module.variants.len()).map(with).collect(),
            before: None,
        })
    }

    /// What serves the streams.
    pub(super) fn view(&self) -> AdaptationView {
        AdaptationView {
            module: self.module,
            part: self.selector.part(),
            streams: self.selector.views(),
        }
    }

    /// A request that was accepted then came to a module.
    pub(super) fn came(&mut self, now: Timestamp, module: ModuleId, admitted_at: Timestamp) {
        if module != self.module {
            return;
        }
        let newest = now.since(admitted_at).as_secs_f64();
        let (mean, deviation) = self.before.unwrap_or((newest, 0.0));
        let off = (newest - mean).abs();
        self.before = Some((
            mean + BEFORE_WEIGHT * (newest - mean),
            deviation + BEFORE_WEIGHT * (off - deviation),
        ));
    }

    /// A request ended.
    pub(super) fn ended(&mut self, outcome: &Outcome) {
        let is_lost = match outcome {
            Outcome::Late => true,
            Outcome::Dropped(drop) => matches!(
                drop.reason,
                DropReason::Expired
                    | DropReason::Predicted
                    | DropReason::QueueFull
                    | DropReason::Overload
            ),
            Outcome::Completed | Outcome::Failed { .. } => false,
        };
        if is_lost {
            self.selector.lost();
        }
    }
}

impl<P, L: Clone> Gateway<P, L> {
    /// A stream asks for something.
    pub(super) fn stream_asked(&mut self, now: Timestamp, offer: &Offer) {
        if let Some(adapting) = &mut self.adapting
            && !offer.party.background
        {
            let slo = self.pipeline.slo;
            let slo = offer.timeout.map_or(slo, |timeout| timeout.min(slo));
            let stream = (offer.stream, offer.party.client);
            adapting.selector.asked(now, stream, offer.frame, slo);
        }
    }

    /// It was refused.
    pub(super) fn stream_refused(&mut self, offer: &Offer, refusal: &Refusal) {
        if let Some(adapting) = &mut self.adapting
            && matches!(refusal, Refusal::Overload(_) | Refusal::Full { .. })
        {
            adapting.selector.refused(offer.stream);
        }
    }

    /// A request of it ended, for which so much time was left when it was accepted. That one with little time is lost says nothing of the
    /// devices.
    pub(super) fn stream_answered(&mut self, outcome: &Outcome, given: Duration) {
        let is_usual = given * 2 >= self.pipeline.slo;
        if let Some(adapting) = &mut self.adapting
            && is_usual
        {
            adapting.ended(outcome);
        }
    }

    /// The client of a stream says this of its link.
    pub(super) fn uplink(&mut self, now: Timestamp, stream: StreamKey, uplink: UplinkReport) {
        if let Some(adapting) = &mut self.adapting {
            adapting.selector.heard(now, stream, uplink);
        }
    }

    /// The variants of all modules that serve the next request of a stream.
    pub(super) fn variants_of(&mut self, offer: &Offer) -> Arc<[VariantId]> {
        match &mut self.adapting {
            None => self.served.clone(),
            Some(adapting) => {
                let variant = adapting.selector.choose(offer.stream, offer.frame);
                adapting.variants[variant.idx()].clone()
            }
        }
    }

    /// Which worker serves the next request of a stream.
    pub(super) fn worker_of_stream(&self, offer: &Offer) -> StreamWorker {
        let adapting = self.adapting.as_ref();
        adapting.map_or(StreamWorker::Any, |a| a.selector.worker_of(offer.stream))
    }

    /// The place of a request at a module, if its stream has one there.
    pub(super) fn bound_at(&self, module: ModuleId, id: RequestId) -> Option<StreamBinding> {
        self.adapting.as_ref().filter(|a| a.module == module)?;
        self.ledger.get(id)?.binding
    }

    /// When variants are chosen anew.
    pub(super) fn adapts_at(&self) -> Option<Timestamp> {
        self.adapting.as_ref()?.selector.decides_at()
    }

    /// Chooses variants anew where it is time to.
    pub(super) fn adapt(&mut self, now: Timestamp, out: &mut Vec<Command<P, L>>) {
        if self.adapts_at().is_none_or(|at| at > now) {
            return;
        }
        let outlook = self.outlook();
        if let (Some(adapting), Some(outlook)) = (&mut self.adapting, outlook) {
            adapting.selector.decide(now, &outlook);
            let news = adapting.selector.news().into_iter();
            out.extend(news.map(|(stream, asked)| Command::Ask { stream, asked }));
        }
        self.tell_gate(now);
    }

    /// What requests take at the adapted module has changed: the gate need not wait until its workers show it.
    pub(super) fn tell_gate(&mut self, now: Timestamp) {
        if let Some(adapting) = &self.adapting {
            let (module, mix) = (adapting.module, adapting.selector.mix());
            // Published policies trust the profile: the capacity that their planners report is that of the variant that serves by default.
            let change = match self.pipeline.policy.recipe().learns_pace {
                true => mix / adapting.selector.past_mix(),
                false => mix,
            };
            self.ledger.set_change(now, module, change);
        }
    }

    fn outlook(&self) -> Option<Outlook> {
        let adapting = self.adapting.as_ref()?;
        let module = adapting.module;
        let stage = &self.stages[module.idx()];
        let batch = stage.plan().shape.size.max(1);
        let pace = stage.state().map_or(1.0, |s| s.pace_by_variant);
        // Jellyfish trusts the profile.
        let pace = match adapting.selector.binds() {
            true => 1.0,
            false => pace.clamp(PACE_RANGE.0, PACE_RANGE.1),
        };
        let times = self.planned.execution.of_module(module);
        let by_size = |variant: usize| -> Vec<Duration> {
            let times = times.of_variant(VariantId(variant as u16)).iter();
            times.map(|time| time.mul_f64(pace)).collect()
        };
        let by_size: Vec<Vec<Duration>> = (0..adapting.variants.len()).map(by_size).collect();
        let time = |times: &Vec<Duration>| {
            let time = times.get(batch as usize - 1).or(times.last());
            time.copied().unwrap_or_default()
        };
        let devices = self.devices_of(module);
        let (mean, deviation) = adapting.before.unwrap_or_default();
        let before = Duration::from_secs_f64(mean + DEVIATIONS * deviation);
        Some(Outlook {
            batch,
            execution: by_size.iter().map(time).collect(),
            by_size,
            workers: self.serving_workers(module),
            devices: devices.len() as f64,
            pulls: stage.is_pulled(),
            part: stage.plan().part,
            beside: self.beside(module, &devices),
            rest: before + self.after(module),
        })
    }

    /// A module's workers that take requests.
    fn serving_workers(&self, module: ModuleId) -> Vec<WorkerId> {
        let stage = &self.stages[module.idx()];
        let places = self.places.iter().filter(|place| place.module == module);
        let workers = places.map(|place| place.worker);
        workers.filter(|worker| stage.is_up(*worker)).collect()
    }

    /// The devices of a module's workers that take requests.
    fn devices_of(&self, module: ModuleId) -> Vec<DeviceId> {
        let workers = self.serving_workers(module).into_iter();
        let mut devices: Vec<DeviceId> = workers.map(|worker| self.device_of(worker)).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Seconds of device time that a request of a module takes at other modules that share its devices.
    fn beside(&self, module: ModuleId, devices: &[DeviceId]) -> f64 {
        let probability = |m: ModuleId| {
            let state = self.stages[m.idx()].state();
            state.map_or(1.0, |state| state.probability)
        };
        let own = probability(module).max(1e-3);
        let others = (1..self.stages.len()).map(|m| ModuleId(m as u16));
        let takes = others.filter(|m| *m != module).map(|m| {
            let places = self.places.iter().filter(|place| place.module == m);
            let are_shared = places.map(|place| devices.contains(&place.device));
            let (shared, all) = are_shared.fold((0, 0), |(shared, all), is_shared| {
                (shared + usize::from(is_shared), all + 1)
            });
            let part = f64::from(shared as u32) / f64::from(all.max(1));
            let stage = &self.stages[m.idx()];
            let size = stage.plan().shape.size.max(1);
            let pace = stage.state().map_or(1.0, |state| state.pace);
            let batch = self.planned.duration_of(m, size).as_secs_f64() * pace;
            probability(m) / own * batch / f64::from(size) * part
        });
        takes.sum()
    }

    /// The time that a request is expected to need after a module, as brokers count it; until its controller says it, the
    /// execution times of the modules after it.
    fn after(&self, module: ModuleId) -> Duration {
        let slo = self.pipeline.slo;
        let guidance = self.stages[module.idx()].guidance();
        let reserved = slo.mul_f64(1.0 - guidance.share.min(1.0)) + guidance.downstream;
        let downstream = longest_path(&self.pipeline, |m| match m > module.idx() {
            true => self.planned.duration_of(ModuleId(m as u16), 1),
            false => Duration::ZERO,
        });
        reserved.max(downstream)
    }
}
