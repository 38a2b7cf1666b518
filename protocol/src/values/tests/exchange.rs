//! A gateway and processes that exchange values as their drivers do, over connections that end now and then. Every request gets
//! the values that it is to have, however much the processes give up, and nothing is kept once all requests have ended.

use std::collections::{BTreeMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::{LIMITS, port, request};
use crate::values::{KeptValues, KnownValues, Peer};
use spillgate_pipeline::id::RequestId;

const PROCESSES: usize = 2;

/// What the gateway says to a process.
#[derive(Clone, Debug)]
enum Say {
    /// A request with its values; `None`: the process keeps it.
    Request(RequestId, Vec<(u16, Option<u64>)>),
    Ended(RequestId),
}

#[derive(Clone, Debug)]
enum Act {
    /// The gateway sends a request, with these values, to a process. Others see what it noted before it was written.
    Send(u64, usize, Vec<u16>, bool),
    /// A request ends.
    End(u64),
    /// A process reads.
    Read(usize),
    /// The gateway reads what a process gave back.
    Hear(usize),
    /// A process makes a value.
    Make(u64, usize, u16),
    /// A process needs room.
    GiveUp(usize),
    /// The connection is lost and there is a new one.
    Lose(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let (id, at) = (|| 0u64..6, || 0..PROCESSES);
    prop_oneof![
        6 => (id(), at(), subsequence(vec![0u16, 1, 2, 3], 0..3), any::<bool>())
            .prop_map(|(id, at, ports, ends)| Act::Send(id, at, ports, ends)),
        2 => id().prop_map(Act::End),
        8 => at().prop_map(Act::Read),
        4 => at().prop_map(Act::Hear),
        3 => (id(), at(), 0u16..4).prop_map(|(id, at, port)| Act::Make(id, at, port)),
        2 => at().prop_map(Act::GiveUp),
        1 => at().prop_map(Act::Lose),
    ]
}

struct Process {
    peer: Peer,
    kept: KeptValues<u64>,
    /// From the gateway.
    inbound: VecDeque<Say>,
    /// Requests that are given back.
    outbound: VecDeque<(RequestId, Vec<u16>)>,
}

struct World {
    known: KnownValues,
    /// Requests that have not ended, and the ordinal of those that came so far.
    open: BTreeMap<u64, RequestId>,
    processes: Vec<Process>,
    n_sessions: u64,
    /// Sent and not yet read, given back or lost.
    under_way: i64,
}

/// The one value of an output.
fn value(id: RequestId, port: u16) -> u64 {
    id.ordinal() * 10 + u64::from(port)
}

impl World {
    fn new() -> Self {
        let process = |at: usize| Process {
            peer: Peer(at as u64),
            kept: KeptValues::new(LIMITS),
            inbound: VecDeque::new(),
            outbound: VecDeque::new(),
        };
        World {
            known: KnownValues::default(),
            open: (0..6).map(|id| (id, request(0, id))).collect(),
            processes: (0..PROCESSES).map(process).collect(),
            n_sessions: PROCESSES as u64,
            under_way: 0,
        }
    }

    /// As a driver: what is noted, what is written, and what is looked at afterwards are three steps. The request may end after
    /// the first.
    fn send(&mut self, id: RequestId, at: usize, ports: &[u16], ends_meanwhile: bool) {
        let peer = self.processes[at].peer;
        let is_open = self.open.values().any(|open| *open == id);
        if is_open {
            self.known.tells(id, peer);
        }
        let carried = ports.iter().map(|&p| {
            if self.known.has(id, peer, port(p)) {
                return (p, None);
            }
            self.known.gives(id, peer, port(p));
            (p, Some(value(id, p)))
        });
        let carried = carried.collect();
        if ends_meanwhile {
            self.end(id);
        }
        let keep = is_open;
        let inbound = &mut self.processes[at].inbound;
        // Values of a request that has ended are not to be kept: the process does not open it.
        if keep {
            inbound.push_back(Say::Request(id, carried));
            self.under_way += 1;
            if !self.known.is_told(id, peer) {
                inbound.push_back(Say::Ended(id));
            }
        }
    }

    fn end(&mut self, id: RequestId) {
        self.open.retain(|_, open| *open != id);
        for peer in self.known.ends(id) {
            let process = self.processes.iter_mut().find(|p| p.peer == peer);
            if let Some(process) = process {
                process.inbound.push_back(Say::Ended(id));
            }
        }
    }

    fn read(&mut self, at: usize) {
        let process = &mut self.processes[at];
        match process.inbound.pop_front() {
            Some(Say::Request(id, carried)) => {
                self.under_way -= 1;
                let _ = process.kept.open(id);
                let got = carried.iter().map(|(p, carried)| {
                    let kept = process.kept.get(id, port(*p)).copied();
                    carried.or(kept).map(|got| (*p, got))
                });
                let got: Option<Vec<(u16, u64)>> = got.collect();
                let Some(got) = got else {
                    let ports = carried.into_iter().map(|(p, _)| p).collect();
                    process.outbound.push_back((id, ports));
                    return;
                };
                for (p, got) in got {
                    assert_eq!(got, value(id, p), "the value of another request");
                    let _ = process.kept.put(id, port(p), got, 20);
                }
            }
            Some(Say::Ended(id)) => drop(process.kept.ends(id)),
            None => {}
        }
    }

    /// Sends again what was given back. It carries all its values.
    fn hear(&mut self, at: usize) {
        let Some((id, ports)) = self.processes[at].outbound.pop_front() else {
            return;
        };
        let peer = self.processes[at].peer;
        self.known.lacks(id, peer);
        if self.open.values().any(|open| *open == id) {
            self.send(id, at, &ports, false);
            let again = self.processes[at].inbound.back();
            if let Some(Say::Request(_, carried)) = again {
                let is_whole = carried.iter().all(|(_, carried)| carried.is_some());
                assert!(is_whole, "it may be given back again: {carried:?}");
            }
        }
    }

    fn step(&mut self, act: Act) {
        match act {
            Act::Send(id, at, ports, ends) => self.send(request(0, id), at, &ports, ends),
            Act::End(id) => self.end(request(0, id)),
            Act::Read(at) => self.read(at),
            Act::Hear(at) => self.hear(at),
            Act::Make(id, at, p) => {
                let id = request(0, id);
                let process = &mut self.processes[at];
                if process.kept.put(id, port(p), value(id, p), 20).is_ok() {
                    self.known.gives(id, process.peer, port(p));
                }
            }
            Act::GiveUp(at) => drop(self.processes[at].kept.give_up()),
            Act::Lose(at) => {
                let process = &mut self.processes[at];
                process.peer = Peer(self.n_sessions);
                self.n_sessions += 1;
                let is_request = |say: &&Say| matches!(say, Say::Request(..));
                self.under_way -= process.inbound.iter().filter(is_request).count() as i64;
                process.inbound.clear();
                process.outbound.clear();
                let _ = process.kept.loses(request(0, 0).owner());
            }
        }
    }
}

proptest! {
    #[test]
    fn every_request_gets_its_values_and_nothing_is_kept_at_the_end(acts in vec(act(), 1..200)) {
        let mut world = World::new();
        for act in acts {
            world.step(act);
            for process in &world.processes {
                prop_assert!(process.kept.bytes() <= LIMITS.bytes);
            }
        }
        let is_busy = |p: &Process| !p.inbound.is_empty() || !p.outbound.is_empty();
        // What is given back is sent again with its values: it is not given back twice.
        let mut rounds = 0;
        while world.processes.iter().any(is_busy) {
            rounds += 1;
            prop_assert!(rounds < 10_000, "it is sent again and again");
            for at in 0..PROCESSES {
                world.read(at);
                world.hear(at);
            }
        }
        prop_assert_eq!(world.under_way, 0);
        for id in world.open.values().copied().collect::<Vec<_>>() {
            world.end(id);
        }
        for at in 0..PROCESSES {
            while !world.processes[at].inbound.is_empty() {
                world.read(at);
            }
            prop_assert!(world.processes[at].kept.is_empty());
            prop_assert_eq!(world.processes[at].kept.bytes(), 0);
        }
        prop_assert!(world.known.is_empty());
    }
}
