//! A server of 50 requests a second behind a gate, and clients that send to it.

use std::cmp::Reverse;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::time::Timestamp;

use super::super::*;

pub(super) const CAPACITY: f64 = 50.0;

/// How a stream sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sends {
    /// So many a second, at random.
    Poisson(f64),
    /// So many a second like a camera, with a little jitter.
    Evenly(f64),
    /// So many at once, so often a second.
    Bursts(u32, f64),
    /// So many a second, exactly, from that part of a period on.
    Exactly(f64, f64),
    /// So many a second at random, with a pause of a second after each second.
    Alternating(f64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) party: Party,
    pub(super) sends: Sends,
}

pub(super) fn party(client: u64, stream: u64) -> Party {
    Party {
        client: ClientKey(client),
        stream: ClientStream(stream),
        weight: 1.0,
        stream_weight: 1.0,
        class: 0,
        background: false,
        may_be_stranger: false,
    }
}

pub(super) fn source(client: u64, stream: u64, sends: Sends) -> Source {
    Source {
        party: party(client, stream),
        sends,
    }
}

pub(super) fn at(seconds: f64) -> Timestamp {
    Timestamp::from_ns((seconds * 1e9) as u64)
}

fn poisson(rate: f64, until: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut times = Vec::new();
    let mut t = 0.0;
    loop {
        t -= (1.0 - rng.random::<f64>()).ln() / rate;
        if t >= until {
            return times;
        }
        times.push(t);
    }
}

fn times(sends: Sends, until: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let phase: f64 = rng.random();
    match sends {
        Sends::Poisson(rate) => poisson(rate, until, rng),
        Sends::Evenly(rate) => {
            let mut time = |i| (i as f64 + phase + 0.1 * rng.random::<f64>()) / rate;
            (0..(until * rate) as usize).map(&mut time).collect()
        }
        Sends::Exactly(rate, phase) => (0..(until * rate) as usize)
            .map(|i| (i as f64 + phase) / rate)
            .collect(),
        Sends::Bursts(n, rate) => {
            let time = |i: usize| ((i / n as usize) as f64 + phase) / rate;
            (0..(until * rate) as usize * n as usize)
                .map(time)
                .collect()
        }
        Sends::Alternating(rate) => {
            let mut times = poisson(rate, until, rng);
            times.retain(|t| (t + 2.0 * phase) % 2.0 < 1.0);
            times
        }
    }
}

/// All requests, with the index of their source.
pub(super) fn offers(sources: &[Source], until: f64, seed: u64) -> Vec<(f64, usize)> {
    let mut all = Vec::new();
    for (idx, source) in sources.iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed * 1000 + idx as u64);
        all.extend(
            times(source.sends, until, &mut rng)
                .into_iter()
                .map(|t| (t, idx)),
        );
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all
}

/// Good answers by source. The server takes requests in order of arrival; the SLO leaves `depth` for waiting.
pub(super) fn serve(
    offers: &[(f64, usize)],
    n_sources: usize,
    depth: f64,
    mut passes: impl FnMut(Timestamp, usize) -> bool,
) -> Vec<f64> {
    let service = 1.0 / CAPACITY;
    let mut good = vec![0.0; n_sources];
    let mut free_at = 0.0f64;
    for &(t, idx) in offers {
        if passes(at(t), idx) {
            let ends = free_at.max(t) + service;
            if ends <= t + depth + service + 1e-9 {
                free_at = ends;
                good[idx] += 1.0;
            }
        }
    }
    good
}

/// A request that waits at the server, in the order of arrival.
struct Waiting {
    came_at: f64,
    source: usize,
    ticket: Ticket,
}

/// Good answers by source where the server takes requests of a higher rank first when not all can be in time, and drops
/// those that cannot. The gate hears of these.
fn serve_by_rank(
    offers: &[(f64, usize)],
    sources: &[Source],
    depth: f64,
    shares: &mut Shares,
) -> Vec<f64> {
    let service = 1.0 / CAPACITY;
    let mut good = vec![0.0; sources.len()];
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut free_at = 0.0f64;
    let latest = |w: &Waiting| w.came_at + depth + 1e-9;
    let end = (f64::INFINITY, usize::MAX);
    for &(t, idx) in offers.iter().chain([&end]) {
        while free_at < t && !waiting.is_empty() {
            let next = (0..waiting.len()).max_by_key(|&i| (waiting[i].ticket.rank(), Reverse(i)));
            let in_time = |(i, w)| free_at + i as f64 * service <= latest(w);
            let all = waiting.iter().enumerate().all(in_time);
            let taken = waiting.remove(next.filter(|_| !all).unwrap_or(0));
            let begins = free_at.max(taken.came_at);
            if begins <= latest(&taken) {
                free_at = begins + service;
                good[taken.source] += 1.0;
            } else {
                shares.overtaken(&taken.ticket);
            }
        }
        let Some(source) = sources.get(idx) else {
            break;
        };
        free_at = if waiting.is_empty() {
            free_at.max(t)
        } else {
            free_at
        };
        if let Ok(ticket) = shares.pass(at(t), &source.party, 1.0) {
            waiting.push(Waiting {
                came_at: t,
                source: idx,
                ticket,
            });
        }
    }
    good
}

/// What the same requests get.
pub(super) struct Run {
    /// Each source as if alone.
    pub(super) alone: Vec<f64>,
    /// Together, behind a gate without shares.
    pub(super) without: Vec<f64>,
    /// Together, with shares.
    pub(super) with: Vec<f64>,
}

pub(super) fn run(sources: &[Source], depth: f64, until: f64, seed: u64) -> Run {
    let serve_all = |all: &[(f64, usize)], shares: &mut Shares| {
        serve(all, sources.len(), depth, |now, idx| {
            shares.pass(now, &sources[idx].party, 1.0).is_ok()
        })
    };
    run_with(sources, depth, until, seed, serve_all)
}

/// The same where the server takes higher ranks first.
pub(super) fn run_by_rank(sources: &[Source], depth: f64, until: f64, seed: u64) -> Run {
    run_with(sources, depth, until, seed, |all, shares| {
        *shares = shares.clone().overtaking(true);
        serve_by_rank(all, sources, depth, shares)
    })
}

fn run_with(
    sources: &[Source],
    depth: f64,
    until: f64,
    seed: u64,
    serve_all: impl Fn(&[(f64, usize)], &mut Shares) -> Vec<f64>,
) -> Run {
    let all = offers(sources, until, seed);
    let span = Duration::from_secs_f64(depth);
    let gate = |offers: &[(f64, usize)]| {
        let mut gate = Gate::new(CAPACITY, span);
        serve(offers, sources.len(), depth, |now, _| gate.pass(now))
    };
    let alone = |idx: usize| {
        let own: Vec<_> = all.iter().copied().filter(|o| o.1 == idx).collect();
        gate(&own)[idx]
    };
    let mut shares = Shares::new(CAPACITY, span);
    Run {
        alone: (0..sources.len()).map(alone).collect(),
        without: gate(&all),
        with: serve_all(&all, &mut shares),
    }
}

/// Jain's index of fairness: 1 where all get the same.
pub(super) fn jain(of: &[f64]) -> f64 {
    let sum: f64 = of.iter().sum();
    sum * sum / (of.len() as f64 * of.iter().map(|x| x * x).sum::<f64>())
}
