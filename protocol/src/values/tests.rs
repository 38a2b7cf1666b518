//! What a process keeps, beside a list that is searched; what a gateway knows, beside processes that give up what they like; and
//! which outputs are used.

mod exchange;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use spillgate_pipeline::id::{GatewayId, Incarnation, ModuleId, RequestId};
use spillgate_pipeline::pipeline::PortRef;
use spillgate_pipeline::testing::noop_pipeline;

fn request(owner: u16, ordinal: u64) -> RequestId {
    RequestId::at(GatewayId(owner), Incarnation(0), ordinal)
}

fn port(port: u16) -> PortRef {
    PortRef {
        module: ModuleId(port / 2),
        port: port % 2,
    }
}

const LIMITS: KeptLimits = KeptLimits {
    bytes: 100,
    requests: 4,
};

#[derive(Clone, Debug)]
enum Act {
    Open(RequestId),
    Put(RequestId, u16, u64),
    Ends(RequestId),
    Loses(u16),
    GiveUp,
}

fn act() -> impl Strategy<Value = Act> {
    let id = || (0u16..3, 0u64..8).prop_map(|(owner, ordinal)| request(owner, ordinal));
    prop_oneof![
        4 => id().prop_map(Act::Open),
        8 => (id(), 0u16..4, 1u64..130).prop_map(|(id, port, bytes)| Act::Put(id, port, bytes)),
        2 => id().prop_map(Act::Ends),
        1 => (0u16..3).prop_map(Act::Loses),
        1 => Just(Act::GiveUp),
    ]
}

/// A value, in a list of all.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Item {
    id: RequestId,
    port: u16,
    bytes: u64,
    value: usize,
}

/// What is kept, found by looking at all of it.
#[derive(Default)]
struct Reference {
    open: BTreeSet<RequestId>,
    items: Vec<Item>,
}

impl Reference {
    fn bytes(&self, owner: Option<GatewayId>) -> u64 {
        let of = |i: &&Item| owner.is_none_or(|owner| i.id.owner() == owner);
        self.items.iter().filter(of).map(|i| i.bytes).sum()
    }

    fn take(&mut self, is_meant: impl Fn(RequestId) -> bool) -> Vec<usize> {
        let taken = self.items.extract_if(.., |i| is_meant(i.id));
        taken.map(|i| i.value).collect()
    }

    /// Of the owner with the most bytes, the values of its last request. Of gateways with as many, the one whose value `chosen` begins
    /// with.
    fn give_up(&mut self, chosen: &[usize]) -> Vec<usize> {
        let most = self
            .items
            .iter()
            .map(|i| self.bytes(Some(i.id.owner())))
            .max();
        let last_of = |owner: GatewayId| {
            let its = self.items.iter().filter(|i| i.id.owner() == owner);
            its.map(|i| i.id).max()
        };
        let gateways: BTreeSet<GatewayId> = self.items.iter().map(|i| i.id.owner()).collect();
        let mut candidates = gateways
            .into_iter()
            .filter(|owner| Some(self.bytes(Some(*owner))) == most)
            .filter_map(last_of);
        let is_chosen = |id: &RequestId| {
            let mut its = self.items.iter().filter(|i| i.id == *id);
            its.any(|i| chosen.first() == Some(&i.value))
        };
        let Some(id) = candidates.find(is_chosen) else {
            assert!(self.items.is_empty(), "another one is given up: {chosen:?}");
            return Vec::new();
        };
        self.take(|of| of == id)
    }
}

fn sorted(mut values: Vec<usize>) -> Vec<usize> {
    values.sort_unstable();
    values
}

proptest! {
    #[test]
    fn what_is_kept_is_what_a_search_through_all_of_it_keeps(acts in vec(act(), 1..120)) {
        let mut kept: KeptValues<usize> = KeptValues::new(LIMITS);
        let mut reference = Reference::default();
        for (value, act) in acts.into_iter().enumerate() {
            match act {
                Act::Open(id) => {
                    let given_up = kept.open(id);
                    reference.open.insert(id);
                    let of_home: Vec<RequestId> =
                        reference.open.iter().filter(|o| o.owner() == id.owner()).copied().collect();
                    let mut expected = Vec::new();
                    if of_home.len() > LIMITS.requests {
                        reference.open.remove(&of_home[0]);
                        expected = reference.take(|of| of == of_home[0]);
                    }
                    prop_assert_eq!(given_up, expected);
                }
                Act::Put(id, at, bytes) => {
                    let is_there = reference.items.iter().any(|i| i.id == id && i.port == at);
                    let fits = bytes <= LIMITS.bytes && reference.open.contains(&id) && !is_there;
                    let put = kept.put(id, port(at), value, bytes);
                    prop_assert_eq!(put.is_ok(), fits);
                    if let Ok(given_up) = put {
                        reference.items.push(Item { id, port: at, bytes, value });
                        let mut expected = Vec::new();
                        while reference.bytes(None) > LIMITS.bytes {
                            let chosen = &given_up[expected.len()..];
                            expected.extend(reference.give_up(chosen));
                        }
                        prop_assert_eq!(sorted(given_up), sorted(expected));
                    }
                }
                Act::Ends(id) => {
                    reference.open.remove(&id);
                    prop_assert_eq!(kept.ends(id), reference.take(|of| of == id));
                }
                Act::Loses(owner) => {
                    let owner = GatewayId(owner);
                    reference.open.retain(|id| id.owner() != owner);
                    let expected = reference.take(|of| of.owner() == owner);
                    prop_assert_eq!(sorted(kept.loses(owner)), sorted(expected));
                }
                Act::GiveUp => {
                    let given_up = kept.give_up();
                    let expected = reference.give_up(&given_up);
                    prop_assert_eq!(given_up, expected);
                }
            }
            prop_assert_eq!(kept.bytes(), reference.bytes(None));
            prop_assert_eq!(kept.len(), reference.open.len());
            for item in &reference.items {
                prop_assert_eq!(kept.get(item.id, port(item.port)), Some(&item.value));
            }
        }
    }
}

#[test]
fn a_gateway_that_ends_no_request_loses_its_own_values() {
    let mut kept: KeptValues<u8> = KeptValues::new(LIMITS);
    let quiet = request(1, 0);
    assert!(kept.open(quiet).is_empty());
    assert!(kept.put(quiet, port(0), 1, 30).unwrap().is_empty());
    for ordinal in 0..1000 {
        let id = request(0, ordinal);
        let _ = kept.open(id);
        kept.put(id, port(0), 0, 20).unwrap();
    }
    assert_eq!(kept.get(quiet, port(0)), Some(&1));
    assert_eq!((kept.len(), kept.bytes()), (1 + LIMITS.requests, 90));
    assert_eq!(kept.loses(GatewayId(0)), [0, 0, 0]);
    assert_eq!(kept.ends(quiet), [1]);
    assert!(kept.is_empty() && kept.bytes() == 0);
}

#[test]
fn a_process_keeps_what_another_of_its_modules_takes() {
    // Two modules take the frame. One of them passes it on to a third, whose output is the answer.
    let [a, b, c] = [1, 2, 3].map(ModuleId);
    let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0], &[0], &[1]], &[]);
    pipeline.outputs.retain(|output| output.from.module == c);
    let uses = Uses::of(&pipeline);
    let out = |module| PortRef { module, port: 0 };
    assert!(uses.is_used(out(ModuleId::SOURCE)) && uses.is_used(out(c)));
    assert!(!uses.is_used(out(b)), "nothing takes it");
    assert!(uses.takes(b, out(ModuleId::SOURCE)) && !uses.takes(c, out(ModuleId::SOURCE)));
    assert!(uses.is_needed_beside(out(ModuleId::SOURCE), a, &[a, b]));
    assert!(!uses.is_needed_beside(out(ModuleId::SOURCE), a, &[a, c]));
    assert!(uses.makes_for(a, &[a, c]), "c takes what a makes");
    assert!(!uses.makes_for(a, &[a, b]) && !uses.makes_for(c, &[a, b, c]));
    // What a peer writes may name no module or output of the pipeline.
    let none = PortRef {
        module: ModuleId(900),
        port: 7,
    };
    assert!(!uses.is_used(none) && !uses.takes(a, none) && !uses.makes_for(none.module, &[a]));
}

#[test]
fn ports_beyond_the_last_are_not_among_them() {
    let ports = Ports::default().with(3).with(64).with(u16::MAX);
    assert_eq!(ports, Ports::from_bits(8));
    assert!(ports.has(3) && !ports.has(2) && !ports.has(64) && !ports.has(u16::MAX));
}
