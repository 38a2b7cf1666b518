use proptest::prelude::*;

use super::*;

const LOAD: Duration = Duration::from_millis(20);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(ms * 1_000_000)
}

fn weights(list: &[u32]) -> Vec<WeightsId> {
    list.iter().copied().map(WeightsId).collect()
}

/// A device with so many pages, for weights that take so many, of which those are there.
fn memory(pages: u32, of: &[u32], resident: &[u32]) -> WeightStore {
    let sizes = of.iter().map(|&pages| WeightsSize { pages, load: LOAD });
    let all = (0..of.len() as u32).map(WeightsId).collect();
    let worker = WorkerWeights {
        weights: all,
        by_variant: false,
    };
    WeightStore::new(WeightStoreConfig {
        pages,
        weights: sizes.collect(),
        workers: vec![(WorkerId(0), worker)],
        resident: weights(resident),
        scaled: Vec::new(),
    })
}

fn wanted(id: u32, in_time: usize) -> Wanted {
    Wanted {
        weights: WeightsId(id),
        in_time,
        deadline: at(1000),
        is_background: false,
    }
}

/// Begins to read one of these: what it is, and what gives way.
fn read(memory: &mut WeightStore, now: Timestamp, all: &[Wanted]) -> Option<(u32, Vec<u32>)> {
    let (read, out) = memory.read_next(now, all.to_vec(), &IndexMap::default(), &[])?;
    Some((read.0, out.into_iter().map(|w| w.0).collect()))
}

fn ask(memory: &mut WeightStore, now: Timestamp, id: u32, times: usize) {
    for _ in 0..times {
        memory.asked(now, WeightsId(id));
    }
}

#[test]
fn what_most_requests_wait_for_is_read_first_and_one_at_a_time() {
    let mut memory = memory(9, &[1; 4], &[]);
    let all = [wanted(1, 2), wanted(2, 5), wanted(3, 0)];
    assert_eq!(read(&mut memory, at(0), &all), Some((2, vec![])));
    assert!(!memory.serves(at(1), WeightsId(2)), "it is read");
    assert_eq!(read(&mut memory, at(1), &all), None);
    assert_eq!(memory.there_at(at(5), WeightsId(2)), at(20));
    assert_eq!(
        memory.there_at(at(5), WeightsId(1)),
        at(40),
        "after that one"
    );
    memory.read_ended(at(30), true);
    assert!(memory.serves(at(30), WeightsId(2)));
    let took = memory.there_at(at(30), WeightsId(2));
    assert_eq!(took, at(60), "it took 30 ms");
}

#[test]
fn what_is_asked_for_least_gives_way() {
    let mut memory = memory(3, &[1; 4], &[0, 1, 2]);
    for (id, times) in [(0, 3), (1, 1), (2, 2), (3, 1)] {
        ask(&mut memory, at(0), id, times);
    }
    assert_eq!(
        read(&mut memory, at(1), &[wanted(3, 1)]),
        Some((3, vec![1]))
    );
    memory.read_ended(at(21), true);
    read(&mut memory, at(30), &[wanted(1, 9)]);
    assert_eq!(memory.reading().unwrap().load.cause, LoadCause::GaveWay);
}

#[test]
fn what_was_asked_for_long_ago_counts_less() {
    let mut memory = memory(2, &[1; 3], &[0, 1]);
    ask(&mut memory, at(0), 0, 50);
    // 50 / e^6 is less than 1.
    ask(&mut memory, at(60_000), 1, 1);
    ask(&mut memory, at(60_000), 2, 1);
    let (_, out) = read(&mut memory, at(60_000), &[wanted(2, 1)]).unwrap();
    assert_eq!(out, [0]);
}

#[test]
fn no_more_give_way_than_have_to() {
    let mut memory = memory(6, &[1, 4, 1, 4], &[0, 1, 2]);
    for (id, times) in [(0, 1), (2, 2), (1, 3)] {
        ask(&mut memory, at(0), id, times);
    }
    let (_, out) = read(&mut memory, at(0), &[wanted(3, 9)]).unwrap();
    assert_eq!(out, [1], "the small two do not help");
}

#[test]
fn what_others_wait_for_more_does_not_give_way() {
    let mut memory = memory(1, &[1; 2], &[0]);
    let waiting = IndexMap::from_iter([(WeightsId(0), 4)]);
    let next = |in_time, waiting, stays: &[WeightsId]| {
        let mut trial = memory.clone();
        trial.read_next(at(0), vec![wanted(1, in_time)], waiting, stays)
    };
    assert_eq!(next(4, &waiting, &[]), None);
    assert!(next(5, &waiting, &[]).is_some());
    assert_eq!(
        next(5, &IndexMap::default(), &weights(&[0])),
        None,
        "a batch of it runs"
    );
    memory = self::memory(1, &[1, 2], &[0]);
    let mut next = |all| memory.read_next(at(0), all, &IndexMap::default(), &[]);
    assert_eq!(next(vec![wanted(1, 9)]), None, "larger than the device");
    assert!(memory.serves(at(0), WeightsId(1)), "its requests hear that");
}

#[test]
fn a_busy_link_reads_nothing_that_is_asked_for_less_than_what_gives_way() {
    let mut idle = memory(1, &[1; 2], &[0]);
    ask(&mut idle, at(0), 0, 40);
    ask(&mut idle, at(0), 1, 1);
    let mut background = idle.clone();
    assert_eq!(read(&mut background, at(0), &[wanted(1, 0)]), None);
    let later = [at(120_000), at(120_001)];
    ask(&mut background, later[0], 1, 1);
    assert!(
        read(&mut background, later[1], &[wanted(1, 0)]).is_some(),
        "0 is asked for no more"
    );
    let mut busy = idle.clone();
    busy.busy.add(at(0), FORGOTTEN.as_secs_f64());
    assert!(read(&mut idle, at(0), &[wanted(1, 1)]).is_some());
    // One that waits and .1 that are expected, for 4 that are expected.
    assert_eq!(read(&mut busy, at(0), &[wanted(1, 1)]), None);
}

#[test]
fn what_only_requests_without_an_slo_wait_for_is_read_last_and_into_memory_that_nobody_uses() {
    let in_background = |id| Wanted {
        is_background: true,
        ..wanted(id, 0)
    };
    let mut memory = memory(2, &[1; 4], &[0, 1]);
    ask(&mut memory, at(0), 0, 2);
    ask(&mut memory, at(0), 1, 1);
    let next = |memory: &WeightStore, now, all: &[Wanted], waiting: &IndexMap<_, _, _>| {
        let next = memory.clone().read_next(now, all.to_vec(), waiting, &[]);
        next.map(|(read, out)| (read.0, out.into_iter().map(|w| w.0).collect::<Vec<_>>()))
    };
    let none = IndexMap::default();
    let both = [in_background(2), wanted(3, 1)];
    assert_eq!(next(&memory, at(1), &both, &none), Some((3, vec![1])));
    assert_eq!(
        next(&memory, at(1), &both[..1], &none),
        Some((2, vec![1])),
        "0.1 a second"
    );
    ask(&mut memory, at(0), 1, 1);
    assert_eq!(next(&memory, at(1), &both[..1], &none), None);
    // Later 1 is used no more, but a request without an SLO waits for it; 0 is used no more either.
    let waits = IndexMap::from_iter([(WeightsId(1), 0)]);
    assert_eq!(
        next(&memory, at(20_000), &both[..1], &waits),
        Some((2, vec![0]))
    );
    let waits = IndexMap::from_iter([(WeightsId(1), 0), (WeightsId(0), 0)]);
    assert_eq!(next(&memory, at(20_000), &both[..1], &waits), None);
}

#[test]
fn what_cannot_be_read_gives_its_pages_back_and_fails_requests_for_a_while() {
    let mut memory = memory(2, &[2, 2], &[0]);
    assert!(read(&mut memory, at(0), &[wanted(1, 1)]).is_some());
    memory.read_ended(at(10), false);
    assert_eq!(memory.pages(), Some((0, 2)));
    assert!(memory.serves(at(11), WeightsId(1)), "its requests hear why");
    assert!(!memory.serves(at(10) + FAILED_FOR, WeightsId(1)));
    let account = memory.account();
    assert_eq!(
        (account.loads, account.failed_loads, account.unloads),
        (0, 1, 1)
    );
}

#[test]
fn a_batch_says_how_its_weights_were_read_if_it_waited_for_them() {
    let mut memory = memory(2, &[1, 1], &[0]);
    let bound = |memory: &mut WeightStore, id, came: &[u64]| {
        memory.bound(WeightsId(id), came.iter().map(|ms| at(*ms)))
    };
    assert_eq!(bound(&mut memory, 0, &[0]), None, "it was there");
    read(&mut memory, at(5), &[wanted(1, 2)]);
    memory.read_ended(at(25), true);
    let (from, to) = (at(5), at(25));
    let cause = LoadCause::First;
    assert_eq!(
        bound(&mut memory, 1, &[3, 24, 30]),
        Some(Load { from, to, cause })
    );
    assert_eq!(bound(&mut memory, 1, &[25]), None, "it came later");
    assert_eq!((memory.account().batches, memory.account().cold), (3, 2));
}

proptest! {
    #[test]
    fn pages_are_never_exceeded(
        pages in 1u32..9,
        of in prop::collection::vec(1u32..6, 1..8),
        steps in prop::collection::vec((0usize..8, 0u8..4, 0usize..4), 0..80),
    ) {
        let mut memory = memory(pages, &of, &[]);
        for (ms, (id, kind, n)) in (0..).zip(steps) {
            let id = id % of.len();
            let weights = WeightsId(id as u32);
            let before: Vec<WeightsId> = memory.held().collect();
            match kind {
                0 => memory.asked(at(ms), weights),
                1 => drop(memory.read_ended(at(ms), n > 0)),
                _ if before.contains(&weights) => {}
                _ => if let Some((_, out)) = read(&mut memory, at(ms), &[wanted(id as u32, n)]) {
                    prop_assert!(out.iter().all(|w| before.contains(&WeightsId(*w))));
                    // Without any one of those that gave way it would not fit.
                    let free = memory.pages.free();
                    let least = out.iter().map(|w| of[*w as usize]).min();
                    prop_assert!(least.is_none_or(|least| free < least));
                }
            }
            let used: u32 = memory.held().map(|w| of[w.idx()]).sum();
            prop_assert!(used <= pages);
            prop_assert_eq!(memory.pages(), Some((used, pages)));
        }
    }
}
