use proptest::prelude::*;

use super::network::{ACCEPTS, DIALS, Network, Reach};
use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// The longest delay of the network.
const DELAY: u64 = 5 * MS;

#[derive(Clone, Debug)]
enum Fault {
    /// From now on, dials end like this.
    Reach(Reach),
    Restart {
        who: usize,
        says_so: bool,
    },
    Reset,
    Silence,
    /// Both sides send a message.
    Talk,
    /// A frame comes from nowhere.
    Hostile {
        who: usize,
        connection: u64,
        frame: Frame,
    },
    /// The transport says something that is not so.
    Confused {
        who: usize,
        connection: u64,
        what: u8,
    },
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        any::<u64>(),
        0..10u64,
        (0..10u64).prop_map(|n| u64::MAX - n)
    ]
    .prop_map(Timestamp::from_ns)
}

fn frame() -> impl Strategy<Value = Frame> {
    let answer = (timestamp(), timestamp(), timestamp()).prop_map(|(t1, t2, t3)| {
        Frame::Answer(Answer {
            heartbeat_sent_at: t1,
            received_at: t2,
            sent_at: t3,
        })
    });
    let greeting = (0..ROLES_MAX * 2, 0..100usize, 0..3u64).prop_map(|(n, bytes, life)| {
        Frame::Greeting(Arc::new(with(&device(life), |member| {
            member.devices[0].workers = vec![ModuleId(1).into(); n];
            member.version = "x".repeat(bytes).into();
        })))
    });
    let twice = (0..3u64).prop_map(|life| Frame::Greeting(device(life)));
    let heartbeat = timestamp().prop_map(|sent_at| Frame::Heartbeat { sent_at });
    prop_oneof![answer, greeting, twice, heartbeat]
}

fn fault() -> impl Strategy<Value = Fault> {
    let who = DIALS..=ACCEPTS;
    let reach = prop::sample::select(vec![Reach::Connects, Reach::Fails, Reach::Hangs]);
    prop_oneof![
        2 => reach.prop_map(Fault::Reach),
        2 => (who.clone(), any::<bool>())
            .prop_map(|(who, says_so)| Fault::Restart { who, says_so }),
        1 => Just(Fault::Reset),
        1 => Just(Fault::Silence),
        4 => Just(Fault::Talk),
        4 => (who.clone(), 0..20u64, frame())
            .prop_map(|(who, connection, frame)| Fault::Hostile { who, connection, frame }),
        1 => (who, 0..20u64, 0..3u8)
            .prop_map(|(who, connection, what)| Fault::Confused { who, connection, what }),
    ]
}

fn inflict(network: &mut Network, fault: Fault) {
    match fault {
        Fault::Reach(reach) => network.reach = reach,
        Fault::Restart { who, says_so } => network.restart(who, says_so),
        Fault::Reset => network.reset(),
        Fault::Silence => network.silence(),
        Fault::Talk => network.talk(),
        Fault::Hostile {
            who,
            connection,
            frame,
        } => {
            // Most are for the connection that the session has.
            let has = network.processes[who].session.connection();
            let connection = has
                .filter(|_| connection > 4)
                .unwrap_or(Connection(connection));
            network.bring(who, Event::Received(connection, frame));
        }
        Fault::Confused {
            who,
            connection,
            what,
        } => network.confuse(who, Connection(connection), what),
    }
}

/// Runs through faults, each after a wait in milliseconds, and lets the network heal.
fn run(seed: u64, faults: Vec<(u64, Fault)>) -> Network {
    let mut network = Network::new(seed);
    for (wait, fault) in faults {
        network.run(network.now + wait * MS);
        inflict(&mut network, fault);
    }
    network.reach = Reach::Connects;
    network
}

fn assert_greeted(network: &Network) {
    let [dials, accepts] = [DIALS, ACCEPTS].map(|who| &network.processes[who]);
    assert_eq!(dials.session.peer(), Some(&accepts.me()));
    assert_eq!(accepts.session.peer(), Some(&dials.me()));
}

#[test]
fn two_sessions_greet_and_know_their_clocks() {
    for seed in 0..20 {
        let mut network = run(seed, vec![]);
        network.run(4 * DELAY);
        assert_greeted(&network);
        network.run(5 * S);
        for (me, peer) in [(DIALS, ACCEPTS), (ACCEPTS, DIALS)] {
            let [me, peer] = [me, peer].map(|who| &network.processes[who]);
            let [mine, theirs] = [me, peer].map(|p| p.read(network.now));
            let converted = me.session.to_mine(theirs).unwrap();
            let error = converted.as_ns().abs_diff(mine.as_ns());
            assert!(error < MS, "seed {seed}: {error} ns after 5 s");
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let logs = [1, 1, 2].map(|seed| {
        let faults = vec![
            (700, Fault::Reach(Reach::Fails)),
            (10, Fault::Reset),
            (5_000, Fault::Reach(Reach::Connects)),
            (
                9_000,
                Fault::Restart {
                    who: ACCEPTS,
                    says_so: false,
                },
            ),
        ];
        let mut network = run(seed, faults);
        network.run(30 * S);
        network.log
    });
    assert!(logs[0].len() > 100);
    assert_eq!(logs[0], logs[1]);
    assert_ne!(logs[0], logs[2]);
}

#[test]
fn peers_that_can_be_reached_again_greet_within_the_longest_backoff() {
    let timing = Timing::default();
    // A dial that hangs when the network heals is given up after the death time.
    for (reach, first) in [
        (Reach::Fails, Duration::ZERO),
        (Reach::Hangs, timing.death()),
    ] {
        for seed in 0..50 {
            let faults = vec![
                (1_000, Fault::Reach(reach)),
                (0, Fault::Reset),
                (60_000, Fault::Talk),
            ];
            let mut network = run(seed, faults);
            let longest = first + timing.backoff_longest();
            network.run(network.now + longest.as_nanos() as u64 + 5 * DELAY);
            assert_greeted(&network);
        }
    }
}

proptest! {
    #[test]
    fn sessions_keep_their_promises_and_heal(
        seed in any::<u64>(),
        faults in proptest::collection::vec((0..2_000u64, fault()), 0..60),
    ) {
        let mut network = run(seed, faults);
        // Connections that ended without a word are found by silence, and so are dials that hang.
        let timing = Timing::default();
        let heals = timing.death() + timing.backoff_longest() + Duration::from_millis(10);
        network.run(network.now + heals.as_nanos() as u64 + 5 * DELAY);
        assert_greeted(&network);
        let n_told = network.n_told();
        network.run(network.now + 20 * S);
        assert_greeted(&network);
        prop_assert_eq!(network.n_told(), n_told, "nothing happens without a fault");
    }
}
