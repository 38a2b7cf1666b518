//! The scheduler as clients come, change and go.

use std::time::Duration;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::adaptation::Setting;
use spillgate_pipeline::id::{ClientId, VariantId, WorkerId};
use spillgate_pipeline::time::Timestamp;

use super::draw;
use crate::adaptation::*;

const GOOD: ClientReport = ClientReport {
    rate: 15.0,
    slo: Duration::from_millis(150),
    bandwidth: 30e6,
    round_trip: Duration::from_millis(2),
};

/// A scheduler and what it has told so far.
struct World {
    adaptation: Adaptation,
    now: Timestamp,
    reports: std::collections::BTreeMap<ClientId, ClientReport>,
    told: std::collections::BTreeMap<ClientId, Option<(VariantId, WorkerId)>>,
    running: std::collections::BTreeMap<WorkerId, Setting>,
    rest: Duration,
    n_switches: usize,
}

impl World {
    fn new(method: Method, n_workers: u32) -> Self {
        let config = AdaptationConfig {
            method,
            variants: draw::variants(draw::Kind::Usual),
            workers: (0..n_workers).map(WorkerId).collect(),
            switch_time: SWITCH_TIME_DEFAULT,
            load_max: 1.0,
            n_prefetched: 4,
            steps: 200,
            seed: 7,
        };
        World {
            adaptation: Adaptation::new(config).expect("variants have profiles"),
            now: Timestamp::ZERO,
            reports: Default::default(),
            told: Default::default(),
            running: Default::default(),
            rest: Duration::ZERO,
            n_switches: 0,
        }
    }

    fn event(&mut self, event: AdaptationEvent) {
        let mut out = Vec::new();
        self.adaptation.on_event(self.now, event, &mut out);
        for command in out {
            match command {
                AdaptationCommand::Tell { client, served } => {
                    self.told.insert(client, served);
                }
                AdaptationCommand::Run { worker, setting } => {
                    let before = self.running.insert(worker, setting);
                    self.n_switches +=
                        usize::from(before.map(|b| b.variant) != Some(setting.variant));
                }
                AdaptationCommand::Prefetch { worker, variants } => {
                    assert_eq!(variants.len(), 4);
                    assert!(!variants.contains(&self.running[&worker].variant));
                }
            }
        }
    }

    fn report(&mut self, client: u32, report: ClientReport) {
        let client = ClientId(client);
        if let Some(bounded) = report.bounded(self.reports.get(&client).copied()) {
            self.reports.insert(client, bounded);
        }
        self.event(AdaptationEvent::Reported { client, report });
    }

    fn leave(&mut self, client: u32) {
        self.reports.remove(&ClientId(client));
        self.told.remove(&ClientId(client));
        self.event(AdaptationEvent::Left(ClientId(client)));
    }

    /// Lets the time pass, and checks each decision.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.adaptation.next_wakeup().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.event(AdaptationEvent::Wakeup);
            assert!(
                self.adaptation
                    .next_wakeup()
                    .is_none_or(|next| next > self.now)
            );
            self.check();
        }
        self.now = until;
    }

    /// Every client is in time and no worker is overloaded.
    fn check(&self) {
        let variants = draw::variants(draw::Kind::Usual);
        let mut loads = std::collections::BTreeMap::<WorkerId, f64>::new();
        for (client, served) in &self.told {
            let Some((variant, worker)) = served else {
                continue;
            };
            let setting = self.running[worker];
            assert_eq!(
                setting.variant, *variant,
                "{client} is told what its worker runs"
            );
            let report = self.reports[client];
            let adaptive = &variants[variant.0 as usize];
            let execution = adaptive
                .variant
                .execution_of(setting.batch)
                .expect("it is profiled");
            assert!(
                execution * 2 <= report.budget(adaptive.frame_bits, self.rest),
                "{client} is late"
            );
            let load = loads.entry(*worker).or_default();
            *load += report.rate * execution.as_secs_f64() / f64::from(setting.batch);
            assert!(*load < 1.0 + 1e-9, "{worker} is overloaded");
        }
    }

    fn variant(&self, client: u32) -> Option<u16> {
        self.told[&ClientId(client)].map(|(variant, _)| variant.0)
    }
}

#[test]
fn a_client_that_joins_is_served_at_once() {
    let mut world = World::new(Method::Spillgate, 2);
    assert_eq!(world.adaptation.next_wakeup(), None);
    world.pass(Duration::from_secs(3));
    world.report(1, GOOD);
    assert_eq!(world.adaptation.next_wakeup(), Some(Timestamp::ZERO));
    world.pass(Duration::ZERO);
    assert!(world.variant(1) > Some(5));
    // A burst is one decision, after the gap.
    world.pass(Duration::from_millis(10));
    world.report(2, GOOD);
    world.report(3, GOOD);
    assert_eq!(
        world.adaptation.next_wakeup(),
        Some(Timestamp::ZERO + Duration::from_millis(3_050))
    );
    world.pass(QUICK_GAP);
    assert!(world.variant(2).is_some() && world.variant(3).is_some());
}

#[test]
fn nothing_switches_while_nothing_changes() {
    let mut world = World::new(Method::Spillgate, 4);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    (0..24).for_each(|c| world.report(c, draw::report(&mut rng, draw::Kind::Usual)));
    world.pass(Duration::from_secs(2));
    let before = (world.told.clone(), world.n_switches);
    world.pass(Duration::from_secs(20));
    let changed = world
        .told
        .iter()
        .filter(|(c, served)| before.0[c] != **served)
        .count();
    assert!(
        changed <= 8,
        "{changed} of 24 clients changed in 40 decisions"
    );
    assert!(
        world.n_switches <= before.1 + 4,
        "{} switches",
        world.n_switches - before.1
    );
}

#[test]
fn a_link_that_breaks_down_is_answered_at_once_and_explained() {
    let mut world = World::new(Method::Spillgate, 1);
    world.report(1, GOOD);
    world.pass(Duration::from_secs(1));
    let before = world.variant(1);
    world.report(
        1,
        ClientReport {
            bandwidth: 29e6,
            ..GOOD
        },
    );
    assert_eq!(
        world.adaptation.next_wakeup(),
        Some(Timestamp::ZERO + PERIOD * 2 + PERIOD)
    );
    world.report(
        1,
        ClientReport {
            bandwidth: 5e6,
            ..GOOD
        },
    );
    world.pass(QUICK_GAP);
    assert!(world.variant(1) < before);
    let why = world.adaptation.explain(ClientId(1)).expect("it is known");
    let (next, obstacle) = why.next.expect("there are better ones");
    assert_eq!(Some(next.0), world.variant(1).map(|v| v + 1));
    assert!(
        matches!(obstacle, Obstacle::Link { .. } | Obstacle::Transfer { .. }),
        "{obstacle}"
    );
    // The other modules take all the time.
    world.rest = Duration::from_millis(140);
    world.event(AdaptationEvent::Rest(world.rest));
    world.pass(PERIOD);
    assert_eq!(world.variant(1), None);
    let why = world.adaptation.explain(ClientId(1)).expect("it is known");
    assert!(
        matches!(why.next, Some((VariantId(0), Obstacle::Compute { .. }))),
        "{why}"
    );
    assert_eq!(world.adaptation.explain(ClientId(9)), None);
}

#[test]
fn where_workers_are_full_the_obstacle_is_capacity() {
    let mut world = World::new(Method::Spillgate, 1);
    (0..8).for_each(|c| world.report(c, GOOD));
    world.pass(Duration::from_secs(2));
    let why = world.adaptation.explain(ClientId(3)).expect("it is known");
    assert!(why.served.is_some());
    assert!(matches!(why.next, Some((_, Obstacle::Capacity))), "{why}");
}

#[test]
fn nonsense_harms_nobody_else() {
    let mut quiet = World::new(Method::Spillgate, 2);
    let mut loud = World::new(Method::Spillgate, 2);
    for world in [&mut quiet, &mut loud] {
        (0..6).for_each(|c| world.report(c, GOOD));
        world.pass(Duration::from_secs(2));
    }
    for (i, bad) in [0.0, -3.0, f64::NAN, f64::INFINITY].into_iter().enumerate() {
        let i = i as u32;
        loud.report(
            100 + i,
            ClientReport {
                bandwidth: bad,
                ..GOOD
            },
        );
        loud.report(200 + i, ClientReport { rate: bad, ..GOOD });
        loud.report(
            300 + i,
            ClientReport {
                rate: 1e12,
                bandwidth: 1e12,
                ..GOOD
            },
        );
        loud.report(
            400 + i,
            ClientReport {
                slo: Duration::ZERO,
                ..GOOD
            },
        );
        // A client whose last good report stands is served on.
        loud.report(i, ClientReport { rate: bad, ..GOOD });
    }
    quiet.pass(Duration::from_secs(2));
    loud.pass(Duration::from_secs(2));
    for client in 0..6 {
        assert_eq!(loud.variant(client), quiet.variant(client));
    }
    for client in [100, 203, 302, 401] {
        assert_eq!(loud.variant(client), None);
    }
    let why = loud.adaptation.explain(ClientId(100)).expect("it is known");
    assert!(matches!(why.next, Some((_, Obstacle::Unknown))), "{why}");
}

#[test]
fn clients_of_a_lost_worker_move() {
    let mut world = World::new(Method::Spillgate, 2);
    (0..4).for_each(|c| world.report(c, GOOD));
    world.pass(Duration::from_secs(1));
    world.event(AdaptationEvent::Workers(vec![WorkerId(1)]));
    world.pass(Duration::from_millis(60));
    assert!((0..4).all(|c| world.told[&ClientId(c)].is_some_and(|(_, w)| w == WorkerId(1))));
    world.event(AdaptationEvent::Workers(Vec::new()));
    world.pass(Duration::from_millis(60));
    assert!((0..4).all(|c| world.variant(c).is_none()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn decisions_keep_their_promises_whatever_happens(seed in any::<u64>(), pick in 0usize..6) {
        let mut world = World::new(Method::ALL[pick], 3);
        let mut again = World::new(Method::ALL[pick], 3);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..60 {
            let client = rng.random_range(0..14);
            let report = draw::report(&mut rng, draw::Kind::Odd);
            let what = rng.random_range(0..10);
            let rest = Duration::from_millis(rng.random_range(0..40));
            let pause = Duration::from_millis(rng.random_range(0..300));
            let n_workers = rng.random_range(0..4u32);
            for world in [&mut world, &mut again] {
                match what {
                    0 => world.leave(client),
                    1 => {
                        world.rest = rest;
                        world.event(AdaptationEvent::Rest(rest));
                    }
                    2 => world.event(AdaptationEvent::Workers((0..n_workers).map(WorkerId).collect())),
                    _ => world.report(client, report),
                }
                world.pass(pause);
            }
        }
        prop_assert_eq!(world.told, again.told);
    }
}
