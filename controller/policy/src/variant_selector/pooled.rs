//! Variants for the streams of a pool of devices, each of which runs batches of any variant: switching costs nothing, because all
//! variants are in memory.
//!
//! A stream has a rate, and for each variant a budget: the time that its requests may spend at the module. Devices take what waits once they are
//! free, one variant in a batch. So batches are as large as they have to be: of each variant, what comes until it has its turn again. The
//! [turn](Pool::turn) is the time in which the devices together run one of these batches of each variant in use. A request waits at one device while that runs a
//! batch of each, or for the longest of them, and then its own batch takes its time. Where devices take requests from one queue (dispatch `pull`), a request waits
//! for a turn of all devices. All of it must be within the budget. So the more variants are in use, the
//! longer requests wait. With one variant on one device this is Jellyfish's condition (§4.1, equation 6).
//!
//! For each few variants (a *ladder*, [`LADDER_MAX`] of them at most) all streams begin on the lowest one, and climb in order of the accuracy that
//! they gain for device time, as far as no stream is lost and devices bear it. As many streams as possible are served in time, then accuracy counts, weighted
//! by rate.
//!
//! Deviation from Jellyfish: a worker there runs one variant, so one slow link makes all streams of its worker small.

use std::time::Duration;

use spillgate_pipeline::id::VariantId;

/// Variants of which ladders are made: the time of a decision grows with their number, and neighbours differ little.
const TRIED_MAX: usize = 16;
/// Variants of a ladder. Few are in use at once: each has batches of its own, which are the smaller the more there are.
const LADDER_MAX: usize = 3;
/// Ladders times streams: with more of them ladders have two variants, so that a decision takes no more than a few hundredths of a second.
const STEPS_MAX: usize = 25_000;
/// Of the streams that would be late, this part goes down at once, and one at least.
const DOWN_PART: usize = 8;
/// A turn is no longer than this, in seconds: no budget is.
const TURN_MAX: f64 = 10.0;
/// Halvings of the search for a turn, and for the part of a stream that climbs: to 40 microseconds of the longest turn.
const HALVINGS: usize = 18;
/// Devices that take requests from one queue begin batches at equal distances at best, and all at once at worst. They are taken to be in this part of the
/// way from the one to the other.
const BUNCHED: f64 = 0.5;
/// Device time is a sum of quotients: so much more, in seconds, is as good as none.
const ROUNDING: f64 = 1e-9;

/// One variant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PooledVariant {
    pub(super) accuracy: f64,
    /// Execution times by batch size from 1, in seconds. Not empty.
    pub(super) times: Vec<f64>,
    /// Device time that each request takes elsewhere, in seconds.
    pub(super) beside: f64,
}

impl PooledVariant {
    /// Of that accuracy, with execution times by size, in batches of up to `batch`. One without times takes none.
    pub(super) fn new(accuracy: f64, times: &[Duration], batch: u32, beside: f64) -> Self {
        let sizes = times.iter().take(batch.max(1) as usize);
        let mut times: Vec<f64> = sizes.map(Duration::as_secs_f64).collect();
        if times.is_empty() {
            times.push(0.0);
        }
        PooledVariant {
            accuracy,
            times,
            beside,
        }
    }

    /// Execution time of so many requests in one batch: of numbers between two sizes, on the line between them.
    fn time(&self, n: f64) -> f64 {
        let at = (n - 1.0).clamp(0.0, (self.times.len() - 1) as f64);
        let below = at as usize;
        let above = (below + 1).min(self.times.len() - 1);
        self.times[below] + (at - below as f64) * (self.times[above] - self.times[below])
    }

    /// Device time of a request in batches of the largest size.
    pub(super) fn each(&self) -> f64 {
        self.times[self.times.len() - 1] / self.times.len() as f64 + self.beside
    }

    /// Device time of what comes in a turn: in one batch, or as many as it needs. Less than one request is a part of a batch.
    fn takes(&self, n: f64) -> f64 {
        let most = self.times.len() as f64;
        let batches = (n / most).max(n.min(1.0));
        batches * self.time(n) + n * self.beside
    }
}

/// One stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Demand {
    /// Requests a second.
    pub(super) rate: f64,
    /// By variant: the time that its requests may spend at the module. Zero: it cannot use the variant.
    pub(super) budgets: Vec<Duration>,
    /// Its requests may be divided between two variants: no client is told a size.
    pub(super) divides: bool,
}

/// What a stream gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) variant: VariantId,
    /// A better variant for this part of its requests.
    pub(super) better: Option<(VariantId, f64)>,
    /// Its requests are expected to be in time.
    pub(super) fits: bool,
}

impl Choice {
    fn of(variant: usize, fits: bool) -> Self {
        Choice {
            variant: VariantId(variant as u16),
            better: None,
            fits,
        }
    }

    /// Its variants and the parts of its requests.
    fn parts(&self) -> impl Iterator<Item = (usize, f64)> {
        let more = self.better.map_or(0.0, |(_, part)| part);
        let better = self.better.map(|(better, part)| (better.idx(), part));
        std::iter::once((self.variant.idx(), 1.0 - more)).chain(better)
    }
}

/// A way to serve all streams.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// By stream.
    pub(super) choices: Vec<Choice>,
    /// Streams whose requests are expected to be in time.
    pub(super) n_fit: usize,
    /// Accuracy of a second's requests.
    pub(super) value: f64,
}

impl Answer {
    fn is_better(&self, other: &Answer) -> bool {
        let by_value = self.value.total_cmp(&other.value);
        self.n_fit.cmp(&other.n_fit).then(by_value).is_gt()
    }
}

/// The devices and what they can run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool<'a> {
    pub(super) variants: &'a [PooledVariant],
    /// Seconds of device time a second.
    pub(super) capacity: f64,
    /// How many they are.
    pub(super) devices: f64,
    /// They take requests from one queue.
    pub(super) pulls: bool,
}

/// What requests of each variant meet.
struct Flow {
    /// Until a request's batch begins, in seconds.
    wait: f64,
    /// By variant: how long its batches take, in seconds.
    batch: Vec<f64>,
}

impl Pool<'_> {
    /// The best answer. Where even the cheapest variant is too much for the devices, all get that.
    pub(super) fn solve(&self, demands: &[Demand]) -> Answer {
        let climbs = Climbs::of(self, demands);
        let mut best: Option<Answer> = None;
        for ladder in ladders(self.variants.len(), demands.len()) {
            if best
                .as_ref()
                .is_some_and(|best| !climbs.may_beat(&ladder, best))
            {
                continue;
            }
            let answer = climbs.on(&ladder);
            best = match (best, answer) {
                (Some(best), Some(answer)) if answer.is_better(&best) => Some(answer),
                (best, answer) => best.or(answer),
            };
        }
        match best {
            Some(best) => self.divided(best, demands),
            None => self.overloaded(demands),
        }
    }

    /// Present choices as an answer, if they are still one: each stream that could fit fits, and there is room.
    pub(super) fn kept(&self, demands: &[Demand], choices: Vec<Choice>) -> Option<Answer> {
        let flow = self.flow(&choices, demands)?;
        let mut streams = choices.iter().zip(demands);
        let fits = |(choice, demand): (&Choice, &Demand)| {
            let mut parts = choice.parts();
            !choice.fits || parts.all(|(v, _)| self.may(demand, v) && flow.fits(demand, v))
        };
        streams.all(fits).then(|| self.answer(choices, demands))
    }

    /// Whether requests of a stream are in time with a variant behind one other request of it. Links change, so budgets are not used up to their end.
    fn may(&self, demand: &Demand, variant: usize) -> bool {
        let budget = demand.budgets[variant].as_secs_f64();
        2.0 * self.variants[variant].times[0] <= budget + ROUNDING
    }

    fn answer(&self, choices: Vec<Choice>, demands: &[Demand]) -> Answer {
        let fitting = choices.iter().zip(demands).filter(|(c, _)| c.fits);
        let accuracy = |c: &Choice| -> f64 {
            c.parts()
                .map(|(v, part)| part * self.variants[v].accuracy)
                .sum()
        };
        let value = fitting.clone().map(|(c, d)| d.rate * accuracy(c)).sum();
        Answer {
            n_fit: fitting.count(),
            value,
            choices,
        }
    }

    /// The cheapest variant for all, in full batches.
    fn overloaded(&self, demands: &[Demand]) -> Answer {
        let each = |v: &usize| self.variants[*v].each();
        let all = 0..self.variants.len();
        let cheapest = all.min_by(|a, b| each(a).total_cmp(&each(b)));
        let cheapest = cheapest.expect("a module has a variant");
        let full = self.variants[cheapest].time(f64::INFINITY);
        let fits = |d: &Demand| 2.0 * full <= d.budgets[cheapest].as_secs_f64();
        let choices = demands.iter().map(|d| Choice::of(cheapest, fits(d)));
        self.answer(choices.collect(), demands)
    }

    /// What requests meet if streams are served so; `None` where devices do not bear it.
    fn flow(&self, choices: &[Choice], demands: &[Demand]) -> Option<Flow> {
        let mut rates = vec![0.0; self.variants.len()];
        for (choice, demand) in choices.iter().zip(demands) {
            for (variant, part) in choice.parts() {
                rates[variant] += part * demand.rate;
            }
        }
        let in_use = rates.iter().copied().enumerate();
        let in_use: Vec<(usize, f64)> = in_use.filter(|(_, rate)| *rate > 0.0).collect();
        let (turn, wait) = self.wait(&in_use)?;
        let all = self.variants.iter().zip(&rates);
        Some(Flow {
            wait,
            batch: all.map(|(v, rate)| v.time(rate * turn)).collect(),
        })
    }

    /// The turn, and how long a request waits for its batch, in seconds. `in_use`: variants and rates.
    fn wait(&self, in_use: &[(usize, f64)]) -> Option<(f64, f64)> {
        let turn = self.turn(in_use)?;
        let batches = in_use.iter();
        let batches = batches.map(|(v, rate)| self.variants[*v].time(rate * turn));
        let longest = batches.fold(0.0, f64::max);
        Some((turn, self.wait_of(turn, longest)))
    }

    /// How long a request waits for its batch, by the turn and by how long the longest batch takes.
    fn wait_of(&self, turn: f64, longest: f64) -> f64 {
        let devices = self.devices.max(1.0);
        if !self.pulls {
            return (turn * devices).max(longest);
        }
        let apart = longest / devices;
        turn.max(apart) + BUNCHED * (longest - apart)
    }

    /// The time in which devices run one batch of each variant, or as many as it needs, of what comes of it in this time. 0: they keep up with
    /// requests one by one. `None`: with none. `in_use`: variants and rates.
    fn turn(&self, in_use: &[(usize, f64)]) -> Option<f64> {
        let takes = |turn: f64| -> f64 {
            let all = in_use.iter();
            all.map(|(v, rate)| self.variants[*v].takes(rate * turn))
                .sum()
        };
        let one_by_one = |(v, rate): &(usize, f64)| rate * self.variants[*v].takes(1.0);
        if in_use.iter().map(one_by_one).sum::<f64>() <= self.capacity + ROUNDING {
            return Some(0.0);
        }
        let keeps_up = |turn: f64| takes(turn) <= (self.capacity + ROUNDING) * turn;
        let (mut low, mut high) = (0.0, TURN_MAX);
        if !keeps_up(high) {
            return None;
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            match keeps_up(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        Some(high)
    }

    /// The answer with a better variant for a part of one stream's requests, as far as that is borne.
    fn divided(&self, best: Answer, demands: &[Demand]) -> Answer {
        let streams = (0..demands.len()).filter(|i| demands[*i].divides && best.choices[*i].fits);
        let Some(stream) = streams.min_by_key(|i| best.choices[*i].variant) else {
            return best;
        };
        let own = best.choices[stream].variant.idx();
        let mut divided = best.clone();
        for better in own + 1..self.variants.len() {
            let with = |part: f64| {
                let mut choices = best.choices.clone();
                choices[stream].better = (part > 0.0).then_some((VariantId(better as u16), part));
                self.kept(demands, choices)
            };
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..HALVINGS {
                let middle = 0.5 * (low + high);
                match with(middle) {
                    Some(_) => low = middle,
                    None => high = middle,
                }
            }
            if let Some(answer) = with(low).filter(|answer| answer.is_better(&divided)) {
                divided = answer;
            }
        }
        divided
    }
}

impl Flow {
    /// Whether requests of a stream are in time with a variant.
    fn fits(&self, demand: &Demand, variant: usize) -> bool {
        self.wait + self.batch[variant] <= demand.budgets[variant].as_secs_f64() + ROUNDING
    }
}

/// Few variants each, in order of accuracy, of those that are tried: the longest ladders for which a decision about so many streams is quick.
fn ladders(n_variants: usize, n_streams: usize) -> Vec<Vec<usize>> {
    let step = n_variants.div_ceil(TRIED_MAX);
    let tried = (0..n_variants).filter(|v| v % step == 0 || v + 1 == n_variants);
    let tried: Vec<usize> = tried.collect();
    let mut all: Vec<Vec<usize>> = tried.iter().map(|v| vec![*v]).collect();
    let mut shorter = all.clone();
    for length in 2..=LADDER_MAX {
        let longer = |ladder: &Vec<usize>| -> Vec<Vec<usize>> {
            let above = tried.iter().filter(|v| Some(*v) > ladder.last());
            let with = |next: &usize| ladder.iter().copied().chain([*next]).collect();
            above.map(with).collect()
        };
        shorter = shorter.iter().flat_map(longer).collect();
        if length > 2 && (all.len() + shorter.len()) * n_streams > STEPS_MAX {
            break;
        }
        all.extend(shorter.iter().cloned());
    }
    all
}

/// How streams climb on ladders.
struct Climbs<'a> {
    pool: &'a Pool<'a>,
    demands: &'a [Demand],
    /// Streams in the order in which they climb: those that take less go first.
    order: Vec<usize>,
    /// By stream and variant: budgets in seconds.
    budgets: Vec<Vec<f64>>,
    /// By stream and variant ([`Pool::may`]).
    may: Vec<Vec<bool>>,
}

impl<'a> Climbs<'a> {
    fn of(pool: &'a Pool<'a>, demands: &'a [Demand]) -> Self {
        let mut order: Vec<usize> = (0..demands.len()).collect();
        order.sort_by(|a, b| demands[*a].rate.total_cmp(&demands[*b].rate).then(a.cmp(b)));
        let may = |demand: &Demand| {
            let all = 0..pool.variants.len();
            all.map(|v| pool.may(demand, v)).collect()
        };
        let budgets = |demand: &Demand| demand.budgets.iter().map(Duration::as_secs_f64).collect();
        Climbs {
            pool,
            demands,
            order,
            budgets: demands.iter().map(budgets).collect(),
            may: demands.iter().map(may).collect(),
        }
    }

    /// The highest step of a stream.
    fn highest(&self, stream: usize, ladder: &[usize]) -> Option<usize> {
        ladder.iter().rposition(|v| self.may[stream][*v])
    }

    /// Whether a ladder may have a better answer than that one.
    fn may_beat(&self, ladder: &[usize], best: &Answer) -> bool {
        let (mut n_fit, mut value) = (0, 0.0);
        for (i, demand) in self.demands.iter().enumerate() {
            if let Some(step) = self.highest(i, ladder) {
                n_fit += 1;
                value += demand.rate * self.pool.variants[ladder[step]].accuracy;
            }
        }
        n_fit > best.n_fit || (n_fit == best.n_fit && value > best.value)
    }

    /// The best answer on a ladder; `None` where devices do not bear its lowest step.
    fn on(&self, ladder: &[usize]) -> Option<Answer> {
        let most = self.demands.len() * (ladder.len() - 1);
        let mut best = self.after(ladder, 0)?;
        let least = best.n_fit;
        let (mut low, mut high) = (0, most + 1);
        let mut middle = most;
        while low + 1 < high {
            let climbed = self.after(ladder, middle);
            match climbed.filter(|climbed| climbed.n_fit >= least) {
                Some(climbed) => {
                    low = middle;
                    if (climbed.n_fit, climbed.value) > (best.n_fit, best.value) {
                        best = climbed;
                    }
                }
                None => high = middle,
            }
            middle = (low + high) / 2;
        }
        let choice = |step: &Option<usize>| Choice::of(ladder[step.unwrap_or(0)], step.is_some());
        let choices = best.steps.iter().map(choice).collect();
        Some(self.pool.answer(choices, self.demands))
    }

    /// Where streams are after so many climbs of a step, first of all streams to the second one. A stream that would be late goes down again.
    fn after(&self, ladder: &[usize], climbs: usize) -> Option<Climbed> {
        let n = self.demands.len();
        let mut steps = vec![None; n];
        // By step.
        let mut in_use: Vec<(usize, f64)> = ladder.iter().map(|v| (*v, 0.0)).collect();
        for (place, &stream) in self.order.iter().enumerate() {
            let climbed = climbs / n + usize::from(place < climbs % n);
            steps[stream] = self.highest(stream, ladder).map(|top| top.min(climbed));
            in_use[steps[stream].unwrap_or(0)].1 += self.demands[stream].rate;
        }
        loop {
            let used: Vec<(usize, f64)> =
                in_use.iter().copied().filter(|u| u.1 > ROUNDING).collect();
            let (turn, wait) = self.pool.wait(&used)?;
            let batch = |step: usize| self.pool.variants[ladder[step]].time(in_use[step].1 * turn);
            let ends: Vec<f64> = (0..ladder.len()).map(|step| wait + batch(step)).collect();
            let is_late = |stream: usize, step: usize| {
                ends[step] > self.budgets[stream][ladder[step]] + ROUNDING
            };
            // From the top, and the last to climb first: what goes down makes it shorter for all.
            let late = |stream: &usize| steps[*stream].filter(|step| is_late(*stream, *step));
            let Some(top) = self.order.iter().filter_map(late).max() else {
                return Some(self.climbed(ladder, steps));
            };
            let of_top = self.order.iter().rev().filter(|s| late(s) == Some(top));
            let of_top: Vec<usize> = of_top.copied().collect();
            for &stream in &of_top[..of_top.len().div_ceil(DOWN_PART)] {
                steps[stream] = top.checked_sub(1);
                in_use[top].1 -= self.demands[stream].rate;
                in_use[top.saturating_sub(1)].1 += self.demands[stream].rate;
            }
        }
    }

    fn climbed(&self, ladder: &[usize], steps: Vec<Option<usize>>) -> Climbed {
        let fitting = steps.iter().zip(self.demands);
        let values = fitting.filter_map(|(step, demand)| {
            Some(demand.rate * self.pool.variants[ladder[(*step)?]].accuracy)
        });
        Climbed {
            n_fit: steps.iter().flatten().count(),
            value: values.sum(),
            steps,
        }
    }
}

/// Streams on a ladder.
struct Climbed {
    /// By stream; `None`: no variant fits.
    steps: Vec<Option<usize>>,
    n_fit: usize,
    value: f64,
}

/// Each stream for itself: the most accurate variant that is in time and keeps up with it on a device of its own, in batches of some size.
pub(super) fn each_alone(variants: &[PooledVariant], demands: &[Demand]) -> Vec<Choice> {
    let choice = |demand: &Demand| {
        let fits = |v: &usize| {
            let budget = demand.budgets[*v].as_secs_f64();
            let sizes = variants[*v].times.iter().zip(1..);
            let mut in_time = sizes.filter(|(time, _)| 2.0 * **time <= budget + ROUNDING);
            in_time.any(|(time, size)| demand.rate * time <= f64::from(size))
        };
        let best = (0..variants.len()).rev().find(fits);
        Choice::of(best.unwrap_or(0), best.is_some())
    };
    demands.iter().map(choice).collect()
}

#[cfg(test)]
mod tests;
