//! A topological order of the modules, ties in the order of the file; or the cycles that forbid an order.

use std::collections::{BTreeSet, VecDeque};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::diagnostic::{Place, Sink};
use crate::problem::Problem;
use crate::spec::Spec;

use super::reference::Wiring;

/// Positions in the file in topological order. Notes one cycle for each strongly connected component.
pub(super) fn topological(sink: &mut Sink, spec: &Spec<'_>, wiring: &Wiring) -> Option<Vec<usize>> {
    let n_modules = spec.modules.len();
    let mut readers: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); n_modules];
    let mut n_waits = vec![0usize; n_modules];
    for (at, wires) in wiring.modules.iter().enumerate() {
        for &before in &wires.after {
            if readers[before].insert(at) {
                n_waits[at] += 1;
            }
        }
    }
    let mut ready: BTreeSet<usize> = (0..n_modules).filter(|at| n_waits[*at] == 0).collect();
    let mut order = Vec::with_capacity(n_modules);
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for &reader in &readers[at] {
            n_waits[reader] -= 1;
            if n_waits[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    if order.len() == n_modules {
        return Some(order);
    }
    for chain in cycles(&readers) {
        let place = Place {
            line: spec.modules[chain[0]].place.line,
            ..spec.modules_place.clone()
        };
        let chain = chain
            .iter()
            .map(|at| spec.modules[*at].name.clone())
            .collect();
        sink.error(&place, Problem::Cycle { chain });
    }
    None
}

/// A shortest cycle through the first module of each strongly connected component that has one.
fn cycles(readers: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut graph: DiGraph<(), (), usize> = DiGraph::default();
    for _ in readers {
        graph.add_node(());
    }
    for (at, after) in readers.iter().enumerate() {
        for &reader in after {
            graph.add_edge(NodeIndex::new(at), NodeIndex::new(reader), ());
        }
    }
    let mut cycles = Vec::new();
    for component in tarjan_scc(&graph) {
        let members: BTreeSet<usize> = component.iter().map(|n| n.index()).collect();
        let Some(&first) = members.first() else {
            continue;
        };
        if members.len() > 1 || readers[first].contains(&first) {
            cycles.push(shortest_cycle(readers, first));
        }
    }
    cycles.sort();
    cycles
}

/// The path from `first` back to it, both ends included. There is one.
fn shortest_cycle(readers: &[BTreeSet<usize>], first: usize) -> Vec<usize> {
    let mut reached_from: Vec<Option<usize>> = vec![None; readers.len()];
    let mut queue = VecDeque::from([first]);
    while let Some(at) = queue.pop_front() {
        if readers[at].contains(&first) {
            let mut chain = vec![first, at];
            let mut at = at;
            while at != first {
                let Some(before) = reached_from[at] else {
                    break;
                };
                chain.push(before);
                at = before;
            }
            if chain.len() == 2 && chain[1] == first {
                return chain;
            }
            chain.reverse();
            return chain;
        }
        for &reader in &readers[at] {
            if reader != first && reached_from[reader].is_none() {
                reached_from[reader] = Some(at);
                queue.push_back(reader);
            }
        }
    }
    vec![first, first]
}
