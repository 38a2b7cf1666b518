//! What a certificate lets a process be.
//!
//! A certificate has DNS names. `worker.spillgate` lets its holder be a worker, `controller.spillgate` a controller, and
//! `gateway.spillgate` a gateway. With `a-0.worker.spillgate` the holder may be a worker as the process `a-0` of the topology
//! only; a certificate that names processes for a role is good for these alone, whatever other names it has for the role. Other
//! names say nothing. Names are compared without regard to case, as DNS does.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::Greeting;
use crate::message::Address;
use crate::topology::Process;

/// What the names end with that mean anything here.
const DOMAIN: &str = "spillgate";
/// Names of a certificate that a message repeats.
const SHOWN_MAX: usize = 8;

/// A kind of role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A gateway.
    Gateway,
    /// The controller of a module.
    Controller,
    /// A worker, by its device.
    Worker,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Gateway, Kind::Controller, Kind::Worker];

    fn of(role: Address) -> Self {
        match role {
            Address::Gateway(_) => Kind::Gateway,
            Address::Controller(_) => Kind::Controller,
            Address::Device(_) => Kind::Worker,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Gateway => "gateway",
            Kind::Controller => "controller",
            Kind::Worker => "worker",
        })
    }
}

/// A process of a topology: its name, and the kinds of its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkProcess {
    /// Its name.
    pub name: Arc<str>,
    /// What it is.
    pub kinds: Vec<Kind>,
}

impl From<&Process> for LinkProcess {
    fn from(process: &Process) -> Self {
        let has = |kind: &Kind| match kind {
            Kind::Gateway => process.gateway.is_some(),
            Kind::Controller => !process.controllers.is_empty(),
            Kind::Worker => !process.workers.is_empty(),
        };
        LinkProcess {
            name: process.name.clone(),
            kinds: Kind::ALL.into_iter().filter(has).collect(),
        }
    }
}

/// A role in a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleHolder {
    /// The process that holds it.
    pub process: Arc<str>,
    /// What it is, in words: `controller of plates`.
    pub what: String,
}

/// The roles of a topology.
pub type Roster = IndexMap<Address, RoleHolder, FxBuildHasher>;

/// What a certificate lets its holder be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The names that mean something: a kind, and the process if one is named.
    names: Vec<(Kind, Option<String>)>,
}

impl Rights {
    /// The rights of a certificate with these DNS names.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let understood = names.into_iter().filter_map(|name| {
            let name = name.to_ascii_lowercase();
            let rest = name.strip_suffix(DOMAIN)?.strip_suffix('.')?;
            let (process, kind) = match rest.rsplit_once('.') {
                Some((process, kind)) => (Some(process.to_owned()), kind),
                None => (None, rest),
            };
            let kind = Kind::ALL.into_iter().find(|k| k.to_string() == kind)?;
            Some((kind, process))
        });
        Rights {
            names: understood.collect(),
        }
    }

    /// Why the holder may not have the roles that it greets with: what is wrong, and what would be right. `None` if it may.
    pub fn refuse_peer(&self, peer: &Greeting, roster: &Roster) -> Option<String> {
        peer.addresses.iter().find_map(|role| {
            let Some(RoleHolder { process, what }) = roster.get(role) else {
                return Some(format!(
                    "the peer greets with a role that no process of the topology has ({role:?}); start it with its name in \
                     the topology"
                ));
            };
            let kind = Kind::of(*role);
            (!self.allows(kind, process)).then(|| {
                format!(
                    "peer {process} greets as {what}, its certificate is for {self}; {}",
                    remedy(kind, process)
                )
            })
        })
    }

    /// Why the holder may not be this process: what is wrong, and what would be right. `None` if it may.
    pub fn refuse_member(&self, member: &LinkProcess) -> Option<String> {
        let LinkProcess { name, kinds } = member;
        let missing = kinds.iter().find(|kind| !self.allows(**kind, name))?;
        Some(format!(
            "process {name} is a {missing} in the topology, its certificate is for {self}; {}",
            remedy(*missing, name)
        ))
    }

    fn allows(&self, kind: Kind, process: &str) -> bool {
        let of_kind = || self.names.iter().filter(|(of, _)| *of == kind);
        let mut named = of_kind().filter_map(|(_, process)| process.as_deref());
        match of_kind().any(|(_, process)| process.is_some()) {
            true => named.any(|name| name.eq_ignore_ascii_case(process)),
            false => of_kind().next().is_some(),
        }
    }
}

fn remedy(kind: Kind, process: &str) -> String {
    format!(
        "give it a certificate with the name {kind}.{DOMAIN}, or {process}.{kind}.{DOMAIN} for this process alone"
    )
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() {
            return f.write_str("no role");
        }
        for (i, (kind, process)) in self.names.iter().take(SHOWN_MAX).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match process {
                Some(process) => write!(f, "{comma}{process}.{kind}.{DOMAIN}")?,
                None => write!(f, "{comma}{kind}.{DOMAIN}")?,
            }
        }
        match self.names.len() > SHOWN_MAX {
            true => f.write_str(" and more"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::PipelineHash;
    use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId};

    const GATEWAY: Address = Address::Gateway(GatewayId(0));
    const CONTROLLER: Address = Address::Controller(ModuleId(1));
    const DEVICE: Address = Address::Device(DeviceId(2));

    fn roster() -> Roster {
        let seat = |process: &str, what: &str| RoleHolder {
            process: process.into(),
            what: what.to_owned(),
        };
        [
            (GATEWAY, seat("front", "gateway")),
            (CONTROLLER, seat("control", "controller of a")),
            (DEVICE, seat("a-1", "worker")),
            (Address::Device(DeviceId(3)), seat("a-2", "worker")),
        ]
        .into_iter()
        .collect()
    }

    fn refused(names: &[&str], addresses: &[Address]) -> Option<String> {
        let greeting = Greeting {
            addresses: addresses.to_vec(),
            version: String::new(),
            pipeline: PipelineHash::default(),
            incarnation: Incarnation(1),
        };
        Rights::of(names.iter().copied()).refuse_peer(&greeting, &roster())
    }

    #[test]
    fn a_name_of_the_kind_is_enough_and_one_of_another_kind_is_not() {
        assert_eq!(refused(&["worker.spillgate"], &[DEVICE]), None);
        assert_eq!(refused(&["Worker.Spillgate"], &[DEVICE]), None);
        assert_eq!(
            refused(&["worker.spillgate"], &[CONTROLLER]).unwrap(),
            "peer control greets as controller of a, its certificate is for worker.spillgate; give it a certificate with \
             the name controller.spillgate, or control.controller.spillgate for this process alone"
        );
    }

    #[test]
    fn a_process_with_several_roles_needs_a_name_for_each() {
        let names = ["gateway.spillgate", "controller.spillgate"];
        assert_eq!(refused(&names, &[CONTROLLER, GATEWAY]), None);
        let refused = refused(&names[..1], &[GATEWAY, CONTROLLER]).unwrap();
        assert!(refused.contains("controller of a"), "{refused}");
    }

    #[test]
    fn a_named_process_is_that_process_alone() {
        let names = ["a-1.worker.spillgate"];
        assert_eq!(refused(&names, &[DEVICE]), None);
        let other = Address::Device(DeviceId(3));
        let expected = "peer a-2 greets as worker, its certificate is for a-1.worker.spillgate";
        let of_both = refused(&names, &[DEVICE, other]).unwrap();
        assert!(of_both.starts_with(expected), "{of_both}");
        // The name of the kind beside it makes it no wider.
        let wide = ["worker.spillgate", "a-1.worker.spillgate"];
        assert!(refused(&wide, &[other]).is_some());
        assert_eq!(refused(&wide, &[DEVICE]), None);
    }

    #[test]
    fn other_names_say_nothing() {
        for name in [
            "localhost",
            "spillgate",
            "workerspillgate",
            "worker.spillgate.example.org",
            "*.worker.spillgate",
            "x.a-1.worker.spillgate",
            "worker",
            "",
        ] {
            let refused = refused(&[name], &[DEVICE]);
            assert!(refused.is_some(), "{name}");
        }
        let refused = refused(&[], &[DEVICE]).unwrap();
        assert!(
            refused.contains("its certificate is for no role"),
            "{refused}"
        );
    }

    #[test]
    fn a_role_that_nobody_has_is_refused() {
        let nobody = Address::Device(DeviceId(99));
        let refused = refused(&["worker.spillgate"], &[nobody]).unwrap();
        assert!(
            refused.contains("no process of the topology has"),
            "{refused}"
        );
    }

    #[test]
    fn the_process_that_is_dialled_needs_a_name_for_each_of_its_kinds() {
        let member = LinkProcess {
            name: "rest".into(),
            kinds: vec![Kind::Controller, Kind::Worker],
        };
        let of = |names: &[&str]| Rights::of(names.iter().copied()).refuse_member(&member);
        assert_eq!(of(&["controller.spillgate", "rest.worker.spillgate"]), None);
        assert_eq!(
            of(&["controller.spillgate"]).unwrap(),
            "process rest is a worker in the topology, its certificate is for controller.spillgate; give it a certificate \
             with the name worker.spillgate, or rest.worker.spillgate for this process alone"
        );
        assert!(of(&["controller.spillgate", "other.worker.spillgate"]).is_some());
    }

    #[test]
    fn many_names_are_not_all_repeated() {
        let names: Vec<String> = (0..100)
            .map(|i| format!("a-{i}.worker.spillgate"))
            .collect();
        let rights = Rights::of(names.iter().map(String::as_str));
        assert!(rights.to_string().len() < 250, "{rights}");
    }
}
