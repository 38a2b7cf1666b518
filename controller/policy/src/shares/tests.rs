mod phase;
mod server;

use std::time::Duration;

use proptest::prelude::*;

use super::water::fill;
use super::*;
use server::{CAPACITY, Run, Sends, Source, at, jain, offers, party, run, serve, source};
use spillgate_pipeline::clients::Claim;
use spillgate_protocol::message::ClientReport;

const SECONDS: f64 = 120.0;
const SEEDS: u64 = 8;

/// Runs many seeds. The least parts that polite sources (the first `n_polite`) get of what they get alone, and that all get
/// of what they get without shares; and the least index of Jain of the others.
fn worst(name: &str, sources: &[Source], n_polite: usize, depth: f64) -> (f64, f64, f64) {
    let sum = |of: &[f64]| of.iter().sum::<f64>();
    let mut least = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for seed in 0..SEEDS {
        let Run {
            alone,
            without,
            with,
        } = run(sources, depth, SECONDS, seed);
        for i in 0..n_polite {
            least.0 = least.0.min(with[i] / alone[i]);
        }
        least.1 = least.1.min(sum(&with) / sum(&without));
        least.2 = least.2.min(jain(&with[n_polite..]));
    }
    println!(
        "{name}, {depth} s: polite {:.3}, total {:.3}, Jain {:.3}",
        least.0, least.1, least.2
    );
    least
}

#[test]
fn a_polite_client_is_served_as_if_alone() {
    for depth in [0.2, 0.6] {
        for rate in [45.0, 100.0, 500.0, 2500.0] {
            for sends in [Sends::Poisson, Sends::Evenly] {
                let sources = [source(1, 1, sends(10.0)), source(2, 1, sends(rate))];
                let name = format!("10/s beside {:?}", sends(rate));
                let (polite, total, _) = worst(&name, &sources, 1, depth);
                assert!(polite >= 0.95 && total >= 0.99);
            }
        }
    }
}

#[test]
fn seven_cameras_beside_a_fast_one_are_served_as_if_alone() {
    let of = |client: fn(u64) -> u64| {
        let camera = |i| source(client(i), i, Sends::Evenly(if i < 7 { 5.0 } else { 150.0 }));
        (0..8).map(camera).collect::<Vec<Source>>()
    };
    let (polite, total, _) = worst("7 clients of 5/s beside 150/s", &of(|i| i), 7, 0.2);
    assert!(polite >= 0.95 && total >= 0.99);
    let (polite, total, _) = worst("7 streams of 5/s beside 150/s", &of(|_| 1), 7, 0.6);
    assert!(polite >= 0.95 && total >= 0.99);
    // Half of this gate is less than a request of each camera at once, and the phases of cameras stay as they are.
    let (polite, total, _) = worst("7 streams of 5/s beside 150/s", &of(|_| 1), 7, 0.2);
    assert!(polite >= 0.85 && total >= 0.99);
}

// Over five seconds: six loads of 120 simulated seconds at 2500 requests a second, for each seed.
#[test]
fn clients_that_all_want_more_than_their_share_get_the_same() {
    for (n, rate) in [(10, 10.0), (100, 1.0)] {
        let greedy = |i| source(i, 1, Sends::Poisson(if i == 0 { 2500.0 } else { rate }));
        let sources: Vec<Source> = (0..n).map(greedy).collect();
        for depth in [0.1, 0.2, 0.6] {
            let name = format!("{n} of {rate}/s, one of 2500/s");
            let (_, total, jain) = worst(&name, &sources, 0, depth);
            assert!(jain >= 0.98 && total >= 0.99);
        }
    }
}

#[test]
fn bursts_cost_their_sender() {
    let sources = [
        source(1, 1, Sends::Poisson(10.0)),
        source(2, 1, Sends::Bursts(100, 1.0)),
    ];
    let (polite, total, _) = worst("10/s beside 100 at once", &sources, 1, 0.2);
    assert!(polite >= 0.95 && total >= 0.99);
    let sources = [
        source(1, 1, Sends::Bursts(3, 3.0)),
        source(2, 1, Sends::Poisson(500.0)),
    ];
    let (polite, total, _) = worst("3 at once beside 500/s", &sources, 1, 0.2);
    assert!(polite >= 0.95 && total >= 0.99);
}

/// Tokens that are kept for neighbours are lost when their client pauses. The price of the reserve bounds this, and with
/// it the reserve: neighbours get more than without shares, but not always all that they get alone.
#[test]
fn a_client_that_alternates_gets_less_than_without_shares() {
    let sources = [
        source(1, 1, Sends::Poisson(10.0)),
        source(2, 1, Sends::Alternating(200.0)),
    ];
    let (polite, total, _) = worst("10/s beside 200/s every other second", &sources, 1, 0.2);
    assert!(polite >= 0.9 && total >= 0.99);
    for seed in 0..SEEDS {
        let Run { without, with, .. } = run(&sources, 0.2, SECONDS, seed);
        assert!(with[0] > 1.1 * without[0] && with[1] < without[1]);
    }
}

#[test]
fn many_streams_win_nothing() {
    let mut sources = vec![
        source(1, 1, Sends::Poisson(10.0)),
        source(2, 1, Sends::Poisson(100.0)),
    ];
    sources.extend((0..50).map(|i| source(3, i, Sends::Poisson(10.0))));
    let (polite, total, _) = worst("10/s, 100/s, 50 streams of 10/s", &sources, 1, 0.2);
    assert!(polite >= 0.95 && total >= 0.99);
    for seed in 0..SEEDS {
        let with = run(&sources, 0.2, SECONDS, seed).with;
        let split: f64 = with[2..].iter().sum();
        assert!(
            (split / with[1] - 1.0).abs() < 0.1,
            "{split} against {}",
            with[1]
        );
        assert!(jain(&with[2..]) >= 0.98, "streams share equally");
    }
}

#[test]
fn weights_divide_what_is_wanted() {
    let mut sources = [0, 1, 2].map(|i| source(i, 1, Sends::Poisson(100.0)));
    sources[2].party.weight = 3.0;
    for seed in 0..SEEDS {
        let with = run(&sources, 0.2, SECONDS, seed).with;
        for i in 0..2 {
            assert!((with[2] / with[i] / 3.0 - 1.0).abs() < 0.1, "{with:?}");
        }
    }
}

/// A higher class gets what it gets without lower ones. If it has a single client, all decisions are the same; otherwise
/// the reserve, which is one for all classes, may differ.
#[test]
fn a_higher_class_loses_nothing_to_lower_ones() {
    for n_high in [1, 2] {
        let of = |(i, rate): (usize, f64)| {
            let mut source = source(i as u64, 1, Sends::Poisson(rate));
            source.party.class = if i < n_high { 5 } else { 2 };
            source
        };
        let rates = [60.0, 30.0, 500.0].into_iter().enumerate();
        let sources: Vec<Source> = rates.map(of).collect();
        for seed in 0..SEEDS {
            let all = offers(&sources, SECONDS, seed);
            let decide = |with_low: bool| {
                let mut shares = Shares::new(CAPACITY, Duration::from_millis(200));
                let heard = all.iter().filter(|o| with_low || o.1 < n_high);
                let decided = heard
                    .map(|&(t, idx)| (idx, shares.pass(at(t), &sources[idx].party, 1.0).is_ok()));
                decided.filter(|d| d.0 < n_high).collect::<Vec<_>>()
            };
            let (without, with) = (decide(false), decide(true));
            let passed = |of: &[(usize, bool)]| of.iter().filter(|d| d.1).count() as f64;
            assert!(passed(&with) >= 0.99 * passed(&without));
            assert!(n_high > 1 || with == without);
        }
    }
}

/// A client that names a cheap application and uses one of three times the cost gets a third of the requests.
#[test]
fn a_liar_is_charged_what_its_requests_took() {
    let sources = [1, 2].map(|i| source(i, 1, Sends::Poisson(100.0)));
    let all = offers(&sources, SECONDS, 1);
    let mut shares = Shares::new(CAPACITY, Duration::from_millis(200));
    let passed = serve(&all, 2, 0.2, |now, idx| {
        let ticket = shares.pass(now, &sources[idx].party, 1.0);
        if let Ok(ticket) = &ticket {
            shares.settle(ticket, [1.0, 3.0][idx]);
        }
        ticket.is_ok()
    });
    assert!(
        (passed[0] / passed[1] / 3.0 - 1.0).abs() < 0.1,
        "{passed:?}"
    );
}

#[test]
fn memory_is_bounded_and_the_idle_are_forgotten() {
    let mut shares = Shares::new(1e6, Duration::from_millis(200));
    let n = 3 * CLIENTS_MAX as u64;
    for i in 0..n {
        let _ = shares.pass(at(i as f64 * 1e-7), &party(i, 1), 1.0);
    }
    assert!(shares.known().0 <= CLIENTS_MAX + 1, "{:?}", shares.known());
    for i in 0..n {
        let _ = shares.pass(at(0.1 + i as f64 * 1e-7), &party(n - 1, i), 1.0);
    }
    let streams_max = CLIENTS_MAX + 2 * (STREAMS_OF_CLIENT_MAX + 1);
    assert!(shares.known().1 <= streams_max, "{:?}", shares.known());
    for i in 0..2 * n {
        let _ = shares.pass(at(400.0 + i as f64 * 0.01), &party(1, 1), 1.0);
    }
    assert_eq!(shares.known(), (1, 1));
}

/// The gate lends to a client with credit: one token, or half of the gate where workers serve higher ranks first. It gets
/// back what it lent when a request that was overtaken is dropped.
#[test]
fn a_client_with_credit_gets_a_token_of_an_empty_gate() {
    for overtakes in [false, true] {
        let gate = Shares::new(CAPACITY, Duration::from_millis(200));
        let mut shares = gate.overtaking(overtakes);
        let greedy: Vec<Ticket> = (0..20)
            .filter_map(|_| shares.pass(at(0.0), &party(1, 1), 1.0).ok())
            .collect();
        assert_eq!(greedy.len(), 10, "it was alone");
        let polite = shares.pass(at(0.0), &party(2, 1), 1.0);
        assert!(polite.is_ok());
        let lent = (0..20).filter(|_| shares.pass(at(0.0), &party(3, 1), 1.0).is_ok());
        assert_eq!(lent.count(), if overtakes { 4 } else { 0 });
        let more = |shares: &mut Shares| shares.pass(at(0.0), &party(4, 1), 1.0).is_ok();
        assert!(!more(&mut shares), "all that it lends is lent");
        shares.overtaken(&greedy[0]);
        assert_eq!([0; 2].map(|_| more(&mut shares)), [true, false]);
    }
}

/// A client in debt opens one more stream: it may get ahead of its siblings, but not of other clients.
#[test]
fn the_credit_of_a_stream_counts_for_nothing_before_other_clients() {
    for overtakes in [false, true] {
        let gate = Shares::new(CAPACITY, Duration::from_millis(200));
        let mut shares = gate.overtaking(overtakes);
        shares.pass(at(0.0), &party(2, 1), 1.0).unwrap();
        let pass = |shares: &mut Shares, stream| shares.pass(at(0.0), &party(1, stream), 1.0).ok();
        assert!((0..20).filter_map(|_| pass(&mut shares, 1)).count() < 9);
        let ranks: Vec<u8> = (0..20)
            .filter_map(|_| pass(&mut shares, 2))
            .map(|ticket| ticket.rank())
            .collect();
        assert_eq!(ranks, [0, 0], "the gate held two tokens, and lends none");
        let polite = shares.pass(at(0.0), &party(3, 1), 1.0).unwrap();
        assert_eq!(polite.rank(), 1);
    }
}

/// Gateways report at different moments: the second in which a client sent is the last one for one of them, and the one before for
/// another.
#[test]
fn a_client_that_sends_every_other_second_is_divided_by_two_reports() {
    let second = Duration::from_secs(1);
    let mut gateways = [(); 2].map(|()| Shares::new(CAPACITY, second));
    for gateway in &mut gateways {
        for _ in 0..10 {
            gateway.pass(at(0.0), &party(1, 1), 1.0).unwrap();
        }
    }
    let [late, early] = &mut gateways;
    early.report(second);
    let reports = [late, early].map(|g| ClientReport::new(CAPACITY, g.report(second)));
    let portions = exchange::merge(CAPACITY, &reports);
    let parts = portions.iter().map(|p| p.parts[&party(1, 1).client]);
    assert_eq!(parts.collect::<Vec<f64>>(), [0.5, 0.5]);
}

/// A request may end long after its stream was forgotten, or after the gate was open and began anew.
#[test]
fn what_is_forgotten_takes_nothing_back() {
    let mut shares = Shares::new(CAPACITY, Duration::from_millis(200));
    let tickets = [1, 2, 3].map(|stream| {
        let of = Party {
            class: 3,
            ..party(7, stream)
        };
        shares.pass(at(0.0), &of, 1.0).unwrap()
    });
    for i in 0..20 {
        let of = Party {
            class: 3,
            ..party(7, 3)
        };
        let _ = shares.pass(at(400.0 + f64::from(i)), &of, 1.0);
        let _ = shares.pass(at(400.0 + f64::from(i)), &of, 1.0);
    }
    let mut anew = Shares::new(CAPACITY, Duration::from_millis(200));
    for ticket in &tickets {
        for shares in [&mut shares, &mut anew] {
            shares.give_back(ticket);
            shares.settle(ticket, 2.0);
        }
    }
    assert_eq!(anew.known(), (0, 0));
}

/// A client that sends to two gateways gets as much as one that sends three times as many requests to one of them.
#[test]
fn shares_hold_over_two_gateways() {
    // At the first gateway clients 1 and 2, at the second client 1.
    let places = [(0, 1, 30.0), (0, 2, 200.0), (1, 1, 30.0)];
    let sources = places.map(|(_, client, rate)| source(client, 1, Sends::Poisson(rate)));
    let (depth, second) = (Duration::from_millis(400), Duration::from_secs(1));
    let mut gateways = [0, 1].map(|_| Shares::new(CAPACITY / 2.0, depth));
    let mut passed = [0.0; 3];
    let mut next = 1.0;
    for (t, idx) in offers(&sources, SECONDS, 1) {
        if t >= next {
            next += 1.0;
            let reports: Vec<ClientReport> = gateways
                .iter_mut()
                .map(|g| ClientReport::new(CAPACITY, g.report(second)))
                .collect();
            for (gateway, portion) in gateways.iter_mut().zip(exchange::merge(CAPACITY, &reports)) {
                gateway.set(at(t), portion.rate, depth);
                gateway.divide(Some(&portion));
            }
        }
        let gateway = &mut gateways[places[idx].0];
        passed[idx] += f64::from(u8::from(
            gateway.pass(at(t), &sources[idx].party, 1.0).is_ok(),
        ));
    }
    let (both, one) = (passed[0] + passed[2], passed[1]);
    assert!((both / one - 1.0).abs() < 0.1, "{passed:?}");
    assert!((both + one) / SECONDS / CAPACITY > 0.97, "{passed:?}");
}

#[test]
fn a_refusal_names_the_share() {
    let sources = [(1, 1, 500.0), (2, 1, 200.0), (2, 2, 5.0)];
    let sources =
        sources.map(|(client, stream, rate)| source(client, stream, Sends::Poisson(rate)));
    let mut shares = Shares::new(CAPACITY, Duration::from_millis(200));
    let mut named = [0, 0];
    for (t, idx) in offers(&sources, 30.0, 1) {
        match (idx, shares.pass(at(t), &sources[idx].party, 1.0)) {
            (0, Err(Shortfall::Client { rate })) => {
                named[0] += u32::from((rate - 25.0).abs() < 1.0)
            }
            (1, Err(Shortfall::Stream { rate })) => named[1] += u32::from(rate < 26.0),
            (0, Err(Shortfall::Stream { .. })) => panic!("its client has one stream"),
            _ => {}
        }
    }
    assert!(named.iter().all(|n| *n > 100), "{named:?}");
    let text = Shortfall::Client { rate: 25.0 }.explain();
    assert!(
        text.contains("25.0 requests a second") && text.contains("weight"),
        "{text}"
    );
}

proptest! {
    /// One client with one stream: every decision is that of the gate alone, whatever comes, changes or is given back.
    #[test]
    fn one_client_sees_the_gate_alone(
        steps in prop::collection::vec((0u64..60, 0u8..10, 1.0..200.0), 1..300),
        class in 0u8..8,
    ) {
        let depth = Duration::from_millis(100);
        let (mut gate, mut shares) = (Gate::new(CAPACITY, depth), Shares::new(CAPACITY, depth));
        let party = Party { class, ..party(7, 7) };
        let (mut ms, mut last) = (0, None);
        for (wait, what, rate) in steps {
            ms += wait;
            let now = Timestamp::from_ns(ms * 1_000_000);
            match (what, last.take()) {
                (0, _) => {
                    gate.set(now, rate, depth);
                    shares.set(now, rate, depth);
                }
                (1, Some(ticket)) => {
                    gate.give_back();
                    shares.give_back(&ticket);
                }
                _ => {
                    let passed = shares.pass(now, &party, rate / 50.0);
                    prop_assert_eq!(passed.is_ok(), gate.pass(now));
                    if let Err(refused) = passed {
                        prop_assert_eq!(refused, Shortfall::Pipeline);
                    }
                    last = passed.ok();
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every client gets what progressive filling of the offered rates gives, up to chance.
    #[test]
    fn shares_are_those_of_progressive_filling(
        rates in prop::collection::vec((2.0..80.0, 1u8..4), 2..8),
        seed in 0u64..1000,
    ) {
        let of = |(i, &(rate, weight)): (usize, &(f64, u8))| {
            let mut source = source(i as u64, 1, Sends::Poisson(rate));
            source.party.weight = f64::from(weight);
            source
        };
        let sources: Vec<Source> = rates.iter().enumerate().map(of).collect();
        let all = offers(&sources, SECONDS, seed);
        let demand = |idx: usize| Claim {
            weight: sources[idx].party.weight,
            rate: all.iter().filter(|o| o.1 == idx).count() as f64 / SECONDS,
        };
        let demands: Vec<Claim> = (0..sources.len()).map(demand).collect();
        let fair = fill(CAPACITY, &demands);
        let with = run(&sources, 0.4, SECONDS, seed).with;
        let level = |idx: usize| fair[idx] / demands[idx].weight;
        let water = (0..fair.len()).map(level).fold(0.0, f64::max);
        for (idx, share) in fair.iter().enumerate() {
            let got = with[idx] / SECONDS;
            // A client that asks for just its share at random asks for more at times and for less at others.
            let asked = demands[idx].rate / demands[idx].weight / water;
            let least = if (0.7..1.3).contains(&asked) { 0.8 } else { 0.92 };
            prop_assert!(got >= least * share - 0.1, "{idx}: {got} of {share}; {demands:?}");
        }
    }
}
