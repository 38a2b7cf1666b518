//! Which variant of the adapted module serves each stream of a gateway: accuracy is as high as deadlines and devices allow, and under
//! overload variants become smaller before requests are dropped (Jellyfish, in a pipeline that drops).
//!
//! Each [`PERIOD`] the gateway says what it knows ([`Outlook`]), and all streams get their variants anew: `pooled.rs`, and `bound.rs` for the
//! mapping of Jellyfish itself, which binds each stream to a worker. A stream's budget is
//! its SLO less its time on the network, less what the other modules of the pipeline take. A client that adapts is told the size that
//! its frames should have ([`Asked`]), and reports its link ([`UplinkReport`]): a size that the link does not bear at its rate is not
//! chosen (Jellyfish §3.3 and the authors' code). Of the others the server sees what arrives: their time on the network is unknown.
//!
//! A burst finds room: all rates together are planned as high as they were in the highest of the last periods.
//!
//! How much of the devices' time may be spent follows from what happens: while requests are lost though some stream could be served
//! smaller, the part falls by as much as is lost; else it rises (`planned.rs`).
//!
//! No client makes the variants of others small by asking for more than its share of the devices' time: what it asks beyond that, with the best
//! variants of all streams, counts neither as demand nor as lost. The entry gate refuses it.
//!
//! Invariants: at most [`STREAMS_MAX`] streams are told apart, and the others share one place; a stream that sends nothing for
//! [`FORGOTTEN_AFTER`] is forgotten; a variant whose input is larger than the frames that come is not chosen where a smaller one holds them.

mod bound;
mod outlook;
mod past;
mod planned;
mod pooled;
#[cfg(test)]
mod tests;
mod view;

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_camera::BitDensity;
use spillgate_pipeline::clients::{Claim, ClientKey};
use spillgate_pipeline::id::VariantId;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::policy::{Adapt, AdaptName};
use spillgate_pipeline::time::Timestamp;

use crate::shares::water;
use crate::uplink::UplinkReport;
use bound::Bound;
pub use outlook::{Asked, FrameSize, Outlook, StreamBinding, StreamKey, StreamWorker};
use past::{Bursts, Mixes};
use planned::PlannedPart;
use pooled::{Answer, Choice, Demand, Pool, PooledVariant};
pub use view::{Obstacle, StreamView};

/// Between two decisions (Jellyfish §7).
pub const PERIOD: Duration = Duration::from_millis(500);
/// A new stream has its variant chosen so long after the last decision at the earliest.
const QUICK: Duration = Duration::from_millis(100);
/// The same where streams are bound to workers: such a decision takes ten times as long, and links that jump must not keep the gateway busy.
const QUICK_BOUND: Duration = Duration::from_millis(250);
/// A link has changed when it is this many times as fast as it was, or that part: then a decision does not wait.
const UPLINK_JUMP: f64 = 1.3;
/// A frame is expected to take its link so many times what its bits take now: links become slower while it is on its way.
const UPLINK_SLOWS: f64 = 1.05;
/// Streams that are told apart: a decision about so many takes a few milliseconds.
pub const STREAMS_MAX: usize = 512;
/// How much the newest frame counts in the bits of a stream's pictures.
const BITS_WEIGHT: f64 = 0.1;
/// A stream that sends nothing for so long is forgotten.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
struct Stream {
    client: ClientKey,
    /// Its client asks for more than its share.
    is_over: bool,
    /// Requests since the last decision.
    n: u32,
    /// Requests a second; `None` before the first decision.
    rate: Option<f64>,
    /// The highest rate of a period, forgotten slowly.
    peak: f64,
    slo: Duration,
    frame: FrameSize,
    density: BitDensity,
    /// What its client said last; `None` for a client that takes no part.
    uplink: Option<UplinkReport>,
    /// What its client was asked last.
    last_asked: Option<Asked>,
    seen_at: Timestamp,
    choice: Choice,
    /// Where streams are bound to workers; `None`: none has a place for it, or nothing was decided yet.
    binding: Option<StreamBinding>,
    obstacle: Option<Obstacle>,
    /// Grows by the part of the better variant with each request.
    owed: f64,
}

/// The streams of one gateway, and the variants that serve them.
pub struct VariantSelector {
    adapt: Adapt,
    /// By variant: accuracy, and the side of the network's input.
    variants: Vec<(f64, Option<u32>)>,
    /// The longer side that other modules need.
    least_side: u32,
    streams: IndexMap<StreamKey, Stream, FxBuildHasher>,
    decides_at: Option<Timestamp>,
    planned: PlannedPart,
    lost: u32,
    offered: u32,
    decided_at: Timestamp,
    mixes: Mixes,
    bursts: Bursts,
    /// Requests a second of the smallest variant that are one client's equal part of the devices' time.
    each: f64,
    /// What other variants would have gained since the last change, in parts of a period's accuracy.
    forgone: f64,
    /// Streams are bound to workers.
    bound: Option<Bound>,
}

impl VariantSelector {
    /// No stream is known. `least_side`: the longer side that frames need at other modules. `seed`: of random choices, where the way to choose
    /// makes some.
    pub fn new(adapt: Adapt, module: &Module, least_side: u32, seed: u64) -> Self {
        let of =
            |v: &spillgate_pipeline::pipeline::Variant| (v.accuracy.unwrap_or_default(), v.input);
        VariantSelector {
            adapt,
            variants: module.variants.iter().map(of).collect(),
            least_side,
            streams: IndexMap::default(),
            decides_at: None,
            planned: PlannedPart::new(&adapt.constants),
            lost: 0,
            offered: 0,
            decided_at: Timestamp::ZERO,
            mixes: Mixes::default(),
            bursts: Bursts::default(),
            each: 0.0,
            forgone: 0.0,
            bound: (adapt.name == AdaptName::Jellyfish).then(|| Bound::new(seed)),
        }
    }

    /// When the next decision is due; `None` while no stream is known.
    pub fn decides_at(&self) -> Option<Timestamp> {
        self.decides_at
    }

    /// Streams that are told apart.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether no stream is known.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether streams are bound to workers.
    pub fn binds(&self) -> bool {
        self.bound.is_some()
    }

    /// When a decision that does not wait for its period is made.
    fn quick(&self, now: Timestamp) -> Timestamp {
        let gap = if self.binds() { QUICK_BOUND } else { QUICK };
        (self.decided_at + gap).max(now)
    }

    /// The part of the devices' time that may be planned.
    pub fn part(&self) -> f64 {
        self.planned.part()
    }

    /// How long requests take now, over those of the variant that serves where none is chosen.
    pub fn mix(&self) -> f64 {
        self.mixes.now()
    }

    /// How long requests took in the last seconds, over those of the variant that serves where none is chosen.
    pub fn past_mix(&self) -> f64 {
        self.mixes.past()
    }

    /// What serves each stream, and why nothing better.
    pub fn views(&self) -> Vec<StreamView> {
        let view = |(key, stream): (&StreamKey, &Stream)| StreamView {
            key: *key,
            rate: stream.rate.unwrap_or_default(),
            variant: stream.choice.variant,
            better: stream.choice.better,
            asked: stream.last_asked,
            obstacle: stream.obstacle,
        };
        self.streams.iter().map(view).collect()
    }

    /// A stream of a client asks for something: of that frame, to be answered within that time. Refused requests count, too.
    pub fn asked(
        &mut self,
        now: Timestamp,
        (key, client): (StreamKey, ClientKey),
        frame: FrameSize,
        slo: Duration,
    ) {
        let has_room = self.streams.len() < STREAMS_MAX;
        let key = match has_room || self.streams.contains_key(&key) {
            true => key,
            false => StreamKey::OTHERS,
        };
        let density = frame.density();
        if !self.streams.contains_key(&key) {
            let newcomer = Stream {
                client,
                is_over: false,
                n: 0,
                rate: None,
                peak: 0.0,
                slo,
                frame,
                density,
                uplink: None,
                last_asked: None,
                seen_at: now,
                choice: self.newcomer(),
                binding: None,
                obstacle: None,
                owed: 0.0,
            };
            self.streams.insert(key, newcomer);
        }
        let quick = self.quick(now);
        let stream = &mut self.streams[&key];
        self.offered += u32::from(!stream.is_over);
        stream.n += 1;
        stream.seen_at = now;
        stream.slo = slo;
        stream.frame = frame;
        stream.density.follow(density, BITS_WEIGHT);
        match self.decides_at {
            None => self.decides_at = Some(now + PERIOD),
            Some(at) if stream.rate.is_none() => self.decides_at = Some(at.min(quick)),
            Some(_) => {}
        }
    }

    /// The client of a stream adapts, and says this of its link. What cannot be true is not believed, and a stream that has sent nothing
    /// yet is not known.
    pub fn heard(&mut self, now: Timestamp, key: StreamKey, link: UplinkReport) {
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        let Some(link) = link.bounded() else {
            return;
        };
        let before = stream.uplink.replace(link);
        let jumps = |new: f64, old: f64| new > old * UPLINK_JUMP || old > new * UPLINK_JUMP;
        let is_jump = before.is_none_or(|old| jumps(link.bandwidth, old.bandwidth));
        if is_jump && let Some(at) = self.decides_at {
            self.decides_at = Some(at.min(self.quick(now)));
        }
    }

    /// What clients that adapt have to be told since this was asked last.
    pub fn news(&mut self) -> Vec<(StreamKey, Asked)> {
        let (variants, least) = (&self.variants, self.least_side);
        let news = self.streams.iter_mut().filter_map(|(key, stream)| {
            stream.uplink?;
            let variant = stream.choice.variant;
            let (_, input) = variants[variant.idx()];
            let asked = Asked {
                side: input.map_or(0, |input| input.max(least)),
                variant,
            };
            let is_new = stream.last_asked != Some(asked);
            stream.last_asked = Some(asked);
            is_new.then_some((*key, asked))
        });
        news.collect()
    }

    /// What a new stream gets until the next decision: what the slowest of the others get, else the best. Those that no variant fits, or
    /// that ask for more than their share, are no measure for it.
    fn newcomer(&self) -> Choice {
        let last = VariantId(self.variants.len().saturating_sub(1) as u16);
        let usual = self
            .streams
            .values()
            .filter(|c| c.choice.fits && !c.is_over);
        let least = usual.map(|c| c.choice.variant).min();
        Choice {
            variant: least.unwrap_or(last),
            better: None,
            fits: true,
        }
    }

    /// The variant that serves the next request of a stream, which brings that frame: no larger one than holds it, but that of the worker to
    /// which its stream is bound.
    pub fn choose(&mut self, key: StreamKey, frame: FrameSize) -> VariantId {
        let largest = self.holds(frame.side);
        let chosen = self.chosen(key);
        match self.worker_of(key) {
            StreamWorker::Bound(_) => chosen,
            StreamWorker::Any | StreamWorker::Leftover => chosen.min(VariantId(largest as u16)),
        }
    }

    /// Which worker serves the next request of a stream.
    pub fn worker_of(&self, key: StreamKey) -> StreamWorker {
        let stream = self.streams.get(&key);
        let stream = stream.or_else(|| self.streams.get(&StreamKey::OTHERS));
        match stream {
            Some(Stream {
                binding: Some(binding),
                ..
            }) => StreamWorker::Bound(*binding),
            Some(stream) if self.binds() && !stream.choice.fits => StreamWorker::Leftover,
            _ => StreamWorker::Any,
        }
    }

    /// The smallest variant whose input holds a picture of that longer side, else the last.
    fn holds(&self, side: u32) -> usize {
        let last = self.variants.len().saturating_sub(1);
        if side == 0 {
            return last;
        }
        let holds = |(_, input): &(f64, Option<u32>)| input.is_some_and(|input| input >= side);
        self.variants.iter().position(holds).unwrap_or(last)
    }

    fn chosen(&mut self, key: StreamKey) -> VariantId {
        let known = match self.streams.contains_key(&key) {
            true => key,
            false => StreamKey::OTHERS,
        };
        let Some(stream) = self.streams.get_mut(&known) else {
            return self.newcomer().variant;
        };
        let Some((better, part)) = stream.choice.better else {
            return stream.choice.variant;
        };
        stream.owed += part;
        if stream.owed < 1.0 {
            return stream.choice.variant;
        }
        stream.owed -= 1.0;
        better
    }

    /// A request of a stream was refused because too many came.
    pub fn refused(&mut self, key: StreamKey) {
        let stream = self.streams.get(&key);
        let stream = stream.or_else(|| self.streams.get(&StreamKey::OTHERS));
        self.lost += u32::from(stream.is_none_or(|stream| !stream.is_over));
    }

    /// An accepted request was dropped or late because there was too little time.
    pub fn lost(&mut self) {
        self.lost += 1;
    }

    /// Chooses anew for all streams.
    pub fn decide(&mut self, now: Timestamp, outlook: &Outlook) {
        self.settle(now);
        if self.streams.is_empty() {
            return;
        }
        let served = outlook.execution.len() - 1;
        let (batch, beside) = (outlook.batch, outlook.beside);
        let variants: Vec<PooledVariant> = (self.variants.iter().zip(&outlook.by_size))
            .map(|((accuracy, _), times)| PooledVariant::new(*accuracy, times, batch, beside))
            .collect();
        let mut demands: Vec<Demand> = self
            .streams
            .values()
            .map(|stream| self.demand(stream, outlook))
            .collect();
        let planned = if self.binds() {
            self.adapt.constants.part_max
        } else {
            self.part()
        };
        let capacity = planned * outlook.devices * outlook.part;
        self.hold_to_shares(&variants, &mut demands, capacity);
        let choices = self.choices(outlook, &variants, &demands, capacity);
        let time = |variant: VariantId| outlook.execution[variant.idx()].as_secs_f64();
        let takes = |choice: &Choice| {
            let more = choice.better.map_or(0.0, |(better, part)| {
                part * (time(better) - time(choice.variant))
            });
            time(choice.variant) + more
        };
        let all = choices.iter().map(|(choice, _)| choice).zip(&demands);
        let all: f64 = all.map(|(choice, d)| d.rate * takes(choice)).sum();
        let rate: f64 = demands.iter().map(|d| d.rate).sum();
        if rate > 0.0 {
            self.mixes
                .push(all / (rate * time(VariantId(served as u16))));
        }
        for (i, (choice, binding)) in choices.into_iter().enumerate() {
            let stream = &self.streams[i];
            let largest = self.holds(stream.frame.source.max(stream.frame.side));
            let unlinked = stream.slo.saturating_sub(outlook.rest);
            let obstacle = view::obstacle(&variants, &demands[i], &choice, largest, unlinked);
            let stream = &mut self.streams[i];
            stream.choice = choice;
            stream.binding = binding;
            stream.obstacle = obstacle;
        }
    }

    /// What each stream gets from now on.
    fn choices(
        &mut self,
        outlook: &Outlook,
        variants: &[PooledVariant],
        demands: &[Demand],
        capacity: f64,
    ) -> Vec<(Choice, Option<StreamBinding>)> {
        if let Some(bound) = &mut self.bound {
            let bindings: Vec<Option<StreamBinding>> =
                self.streams.values().map(|c| c.binding).collect();
            let accuracies = self.variants.iter().map(|(accuracy, _)| *accuracy);
            return bound.solve(accuracies, outlook, demands, &bindings);
        }
        let choices = if self.adapt.name == AdaptName::Greedy {
            pooled::each_alone(variants, demands)
        } else {
            let demands = &self.in_bursts(demands);
            let pool = Pool {
                variants,
                capacity,
                devices: outlook.devices,
                pulls: outlook.pulls,
            };
            let present: Vec<Choice> = self.streams.values().map(|c| c.choice).collect();
            let present = pool.kept(demands, present);
            self.better(present, pool.solve(demands)).choices
        };
        choices.into_iter().map(|choice| (choice, None)).collect()
    }

    /// The demands as they are in bursts. What is missing to the highest rate of all goes to streams as far as they sent more themselves.
    fn in_bursts(&self, demands: &[Demand]) -> Vec<Demand> {
        let usual: f64 = demands.iter().map(|demand| demand.rate).sum();
        let streams = self.streams.values().zip(demands);
        let more: Vec<f64> = streams.map(|(c, d)| (c.peak - d.rate).max(0.0)).collect();
        let all: f64 = more.iter().sum();
        let missing = (self.bursts.peak() - usual).clamp(0.0, all);
        let part = missing / all.max(f64::MIN_POSITIVE);
        let risen = |(demand, more): (&Demand, &f64)| Demand {
            rate: demand.rate + part * more,
            ..demand.clone()
        };
        demands.iter().zip(&more).map(risen).collect()
    }

    /// The present answer while it is one and no worse, as far as a change is worth; else the new one.
    fn better(&mut self, present: Option<Answer>, new: Answer) -> Answer {
        if let Some(present) = present.filter(|present| present.n_fit >= new.n_fit) {
            let gained = new.value / present.value.max(f64::MIN_POSITIVE) - 1.0;
            self.forgone += gained.max(0.0);
            if self.forgone < self.adapt.constants.worth_a_switch {
                return present;
            }
        }
        self.forgone = 0.0;
        new
    }

    /// Takes in what happened since the last decision.
    fn settle(&mut self, now: Timestamp) {
        let passed = now.since(self.decided_at).as_secs_f64();
        let span = passed.min(PERIOD.as_secs_f64()).max(1e-3);
        self.decided_at = now;
        self.bursts.push(self.came(span), span);
        let constants = self.adapt.constants;
        for stream in self.streams.values_mut() {
            let newest = f64::from(std::mem::take(&mut stream.n)) / span;
            let kept = constants.peak_kept.powf(span / PERIOD.as_secs_f64());
            stream.peak = newest.max(stream.peak * kept);
            stream.rate = Some(match stream.rate {
                // A part of a period counts as such.
                Some(rate) => {
                    let weight = constants.rate_weight * (span / PERIOD.as_secs_f64());
                    rate + weight * (newest - rate)
                }
                None => newest,
            });
        }
        self.streams
            .retain(|_, stream| now.since(stream.seen_at) < FORGOTTEN_AFTER);
        self.decides_at = (!self.streams.is_empty()).then(|| now + PERIOD);
        let lost = f64::from(self.lost) / f64::from(self.offered.max(1));
        let is_least = |c: &Stream| c.choice.variant == VariantId(0) && c.choice.better.is_none();
        let may_fall = !self.streams.values().all(is_least);
        self.planned
            .period_ended(lost, may_fall, &self.adapt.constants);
        (self.lost, self.offered) = (0, 0);
    }

    /// Requests since the last decision, so many seconds ago; of a client no more than it has a claim to.
    fn came(&self, span: f64) -> f64 {
        let mut clients: IndexMap<ClientKey, f64, FxBuildHasher> = IndexMap::default();
        for stream in self.streams.values() {
            *clients.entry(stream.client).or_default() += f64::from(stream.n);
        }
        clients.values().map(|n| n.min(self.each * span)).sum()
    }

    /// Holds clients to their fair shares of the devices' time: the share at which each gets what the best variants of its streams take, or as
    /// much as the others. A client whose streams ask for more than that even of the smallest variant has that one, and counts with its
    /// share.
    fn hold_to_shares(
        &mut self,
        variants: &[PooledVariant],
        demands: &mut [Demand],
        capacity: f64,
    ) {
        let least = variants
            .iter()
            .map(PooledVariant::each)
            .fold(f64::INFINITY, f64::min);
        let mut clients: IndexMap<ClientKey, (Claim, f64), FxBuildHasher> = IndexMap::default();
        for (stream, demand) in self.streams.values().zip(&*demands) {
            let mut usable = (0..variants.len()).rev();
            let best = usable.find(|v| !demand.budgets[*v].is_zero());
            let best = best.map_or(least, |v| variants[v].each());
            let none = Claim {
                weight: 1.0,
                rate: 0.0,
            };
            let (claim, small) = clients.entry(stream.client).or_insert((none, 0.0));
            claim.rate += demand.rate * best;
            *small += demand.rate * least;
        }
        self.each = capacity / (least * clients.len().max(1) as f64);
        let claims: Vec<Claim> = clients.values().map(|(claim, _)| *claim).collect();
        let shares = water::fill(capacity, &claims);
        for (stream, demand) in self.streams.values_mut().zip(demands) {
            let Some((client, _, (_, small))) = clients.get_full(&stream.client) else {
                continue;
            };
            stream.is_over = *small > shares[client] * (1.0 + 1e-9);
            if stream.is_over {
                demand.rate *= shares[client] / small;
                demand
                    .budgets
                    .iter_mut()
                    .skip(1)
                    .for_each(|budget| *budget = Duration::ZERO);
            }
        }
    }

    fn demand(&self, stream: &Stream, outlook: &Outlook) -> Demand {
        let rate = stream.rate.unwrap_or_default();
        let left = stream.slo.saturating_sub(outlook.rest);
        // A larger variant would see nothing more.
        let source = stream.frame.source.max(stream.frame.side);
        let largest = self.holds(source);
        let budget = |variant: usize| {
            let Some(link) = stream.uplink else {
                return left;
            };
            let (_, input) = self.variants[variant];
            let side = input.map_or(source, |input| input.max(self.least_side).min(source));
            let bits = stream.density.bits(f64::from(side) * f64::from(side));
            match link.bears(bits, rate) {
                true => left.saturating_sub(link.carries_in(UPLINK_SLOWS * bits)),
                false => Duration::ZERO,
            }
        };
        let budgets = (0..self.variants.len()).map(|v| match v <= largest {
            true => budget(v),
            false => Duration::ZERO,
        });
        Demand {
            rate,
            budgets: budgets.collect(),
            divides: stream.uplink.is_none(),
        }
    }
}
