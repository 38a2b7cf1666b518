//! Workers are alike, so an assignment may be renamed freely: which worker takes which part of it so that little changes.
//!
//! The paper sorts old and new variants and pairs them up (§4.4). Here parts first go to workers that already run their variant
//! and have most of their clients; only what remains is sorted and paired up.

use super::assignment::{Assignment, Setting};

/// Gives each part of `new` the worker that it suits best.
pub fn aligned(new: &Assignment, present: &Assignment, held: &[Option<Setting>]) -> Assignment {
    let mut place = vec![None; new.workers.len()];
    let mut is_used = vec![false; held.len()];
    for (part, worker) in suits(new, present, held) {
        if place[part].is_none() && !is_used[worker] {
            place[part] = Some(worker);
            is_used[worker] = true;
        }
    }
    pair_up_rest(new, held, &mut place, &is_used);
    let mut aligned = Assignment {
        workers: vec![None; new.workers.len()],
        clients: Vec::with_capacity(new.clients.len()),
    };
    for (part, setting) in new.workers.iter().enumerate() {
        if let (Some(worker), true) = (place[part], setting.is_some()) {
            aligned.workers[worker] = *setting;
        }
    }
    aligned
        .clients
        .extend(new.clients.iter().map(|part| part.and_then(|p| place[p])));
    aligned
}

/// Parts and workers that have something in common, the most first: the same variant, then clients.
fn suits(new: &Assignment, present: &Assignment, held: &[Option<Setting>]) -> Vec<(usize, usize)> {
    let both = new.clients.iter().zip(&present.clients);
    let mut common: Vec<(usize, usize)> = both.filter_map(|(a, b)| a.zip(*b)).collect();
    common.sort_unstable();
    let mut suits: Vec<(bool, usize, usize, usize)> = Vec::new();
    for same in common.chunk_by(|a, b| a == b) {
        let (part, worker) = same[0];
        let is_same = variant(new.workers[part]) == variant(held[worker]);
        suits.push((is_same, same.len(), part, worker));
    }
    suits.sort_unstable_by(|a, b| {
        (b.0, b.1)
            .cmp(&(a.0, a.1))
            .then((a.2, a.3).cmp(&(b.2, b.3)))
    });
    // Workers that run the variant are better than those that only have some of the clients.
    let (same, other): (Vec<_>, Vec<_>) = suits.into_iter().partition(|s| s.0);
    let mut by_variant: Vec<(u16, usize)> = held
        .iter()
        .enumerate()
        .filter_map(|(worker, held)| variant(*held).map(|v| (v, worker)))
        .collect();
    by_variant.sort_unstable();
    let mut all: Vec<(usize, usize)> = same.into_iter().map(|s| (s.2, s.3)).collect();
    for (part, setting) in new.workers.iter().enumerate() {
        let wanted = variant(*setting);
        let workers = by_variant.iter().filter(|(v, _)| Some(*v) == wanted);
        all.extend(workers.map(|(_, worker)| (part, *worker)));
    }
    all.extend(other.into_iter().map(|s| (s.2, s.3)));
    all
}

/// Pairs up parts and workers that are left, in order of their variants: neighbours are likely prefetched.
fn pair_up_rest(
    new: &Assignment,
    held: &[Option<Setting>],
    place: &mut [Option<usize>],
    is_used: &[bool],
) {
    let mut parts: Vec<usize> = (0..place.len()).filter(|p| place[*p].is_none()).collect();
    let mut workers: Vec<usize> = (0..held.len()).filter(|w| !is_used[*w]).collect();
    // Parts that serve nobody come last, and so do workers that hold nothing.
    parts.sort_by_key(|p| variant(new.workers[*p]).map_or(u16::MAX, |v| v));
    workers.sort_by_key(|w| variant(held[*w]).map_or(u16::MAX, |v| v));
    for (part, worker) in parts.into_iter().zip(workers) {
        place[part] = Some(worker);
    }
}

fn variant(setting: Option<Setting>) -> Option<u16> {
    setting.map(|s| s.variant.0)
}
