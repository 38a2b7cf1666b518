//! What goes wrong in a cluster, and when it is over.

use std::time::Duration;

use crate::cluster::{Cluster as Config, Fault, Scripted};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::id::Incarnation;
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::time::Timestamp;

use super::{Due, draw};
use crate::world::World;
use crate::world::agenda::Occurrence;
use crate::world::noted::Kind;

/// A change of the cluster.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum Change {
    Begins {
        fault: Fault,
        until: Timestamp,
    },
    Ends(Fault),
    /// A node that stalls now and then does so.
    Stalls {
        node: usize,
        pause: Duration,
        every: Duration,
        until: Timestamp,
    },
    /// A node that leaves is looked at: whether it has ended all that it had.
    Leaves {
        node: usize,
        life: Incarnation,
        idle_since: Timestamp,
    },
    /// A rogue node says something.
    Speaks {
        node: usize,
        every: Duration,
        until: Timestamp,
    },
}

/// The faults of a run.
pub(in crate::world) fn drawn(config: &Config, rng: &mut ChaCha8Rng) -> Vec<Scripted> {
    let mut faults = config.faults.clone();
    if let Some(draws) = config.draws {
        faults.extend(draw::faults(config, draws, rng));
    }
    faults
}

impl World {
    pub(super) fn schedule_faults(&mut self) {
        let Some(config) = self.config.cluster.clone() else {
            return;
        };
        let faults = drawn(&config, &mut self.cluster().rng);
        for Scripted { at, lasts, fault } in faults {
            let at = Timestamp::ZERO + at;
            let until = at + lasts;
            self.change_at(at, Change::Begins { fault, until });
            self.change_at(until, Change::Ends(fault));
        }
    }

    pub(super) fn change_at(&mut self, at: Timestamp, change: Change) {
        let due = Due::Change(change);
        self.agenda.at(at, Occurrence::Cluster(due));
    }

    pub(in crate::world) fn change(&mut self, change: Change) -> Result<(), Violation> {
        match change {
            Change::Begins { fault, until } => {
                self.note(Kind::Disturbance, 0);
                self.fault_begins(fault, until)
            }
            Change::Ends(fault) => {
                self.note(Kind::Disturbance, 1);
                self.fault_ends(fault)
            }
            Change::Stalls {
                node,
                pause,
                every,
                until,
            } => {
                let now = self.now;
                if now < until {
                    self.cluster().nodes[node].stalled_until = (now + pause).min(until);
                    self.change_at(now + every, change);
                }
                Ok(())
            }
            Change::Leaves {
                node,
                life,
                idle_since,
            } => self.end_leaving(node, life, idle_since),
            Change::Speaks { node, every, until } => {
                if self.now < until {
                    self.change_at(self.now + every, change);
                    self.speak(node)?;
                }
                Ok(())
            }
        }
    }

    fn fault_begins(&mut self, fault: Fault, until: Timestamp) -> Result<(), Violation> {
        match fault {
            Fault::Break {
                between,
                late,
                twice,
            } => {
                if twice {
                    self.keep_for_next(between);
                }
                self.break_connections(between, late, until)
            }
            Fault::Partition { from, to, both } => {
                self.block(from, to, until);
                if both {
                    self.block(to, from, until);
                }
                Ok(())
            }
            Fault::Crash { node, silent } => self.crash(node, silent),
            Fault::Away {
                node, leaves: true, ..
            } => self.leave(node),
            Fault::Away { node, .. } => self.crash(node, false),
            Fault::Impostor { node, of } => self.impersonate(node, Some(of)),
            Fault::Slow { node, factor } => {
                self.cluster().nodes[node].slow = factor;
                Ok(())
            }
            Fault::Stall { node, pause, every } => self.change(Change::Stalls {
                node,
                pause,
                every,
                until,
            }),
            Fault::Loss { part } => {
                self.cluster().loss = part;
                Ok(())
            }
            Fault::Rogue { node, rate } => {
                self.cluster().nodes[node].is_rogue = true;
                let every = Duration::from_secs_f64(1.0 / rate);
                self.change(Change::Speaks { node, every, until })
            }
        }
    }

    fn fault_ends(&mut self, fault: Fault) -> Result<(), Violation> {
        match fault {
            // They end by the time that they were given.
            Fault::Break { .. } | Fault::Partition { .. } | Fault::Stall { .. } => {}
            Fault::Crash { node, .. } => {
                if self.cluster().nodes[node].is_down {
                    self.begin(node)?;
                }
            }
            Fault::Away { node, renamed, .. } => self.come_back(node, renamed)?,
            Fault::Impostor { node, .. } => self.impersonate(node, None)?,
            Fault::Slow { node, .. } => self.cluster().nodes[node].slow = 1.0,
            Fault::Loss { .. } => self.cluster().loss = 0.0,
            Fault::Rogue { node, .. } => {
                let node = &mut self.cluster().nodes[node];
                node.is_rogue = false;
                node.sent.clear();
            }
        }
        Ok(())
    }

    fn block(&mut self, from: usize, to: usize, until: Timestamp) {
        let cluster = self.cluster();
        if let Some((pair, side)) = cluster.pair(from, to) {
            let blocked = &mut cluster.pairs[pair].blocked[1 - side];
            *blocked = until.max(*blocked);
        }
    }

    /// What two nodes sent to each other last comes once more when they have a connection again.
    fn keep_for_next(&mut self, between: [usize; 2]) {
        let cluster = self.cluster();
        if let Some((pair, _)) = cluster.pair(between[0], between[1]) {
            cluster.pairs[pair].keep_for_next();
        }
    }

    /// All connections of a pair end for both sides. What is under way is lost, or still comes.
    fn break_connections(
        &mut self,
        between: [usize; 2],
        late: bool,
        until: Timestamp,
    ) -> Result<(), Violation> {
        let cluster = self.cluster();
        let Some((pair, _)) = cluster.pair(between[0], between[1]) else {
            return Ok(());
        };
        let of = &mut cluster.pairs[pair];
        of.broken = until.max(of.broken);
        let ways: Vec<u64> = of.ways.keys().copied().collect();
        for way in ways {
            self.end_way(pair, way, "it was reset")?;
            if !late {
                self.cluster().pairs[pair].ways.swap_remove(&way);
            }
        }
        Ok(())
    }
}
