//! What a certificate lets a process be.
//!
//! A certificate has DNS names. In the set `prod`, `worker.prod` lets its holder be a worker, `controller.prod` a controller, and
//! `gateway.prod` a gateway; `operator.prod` lets them publish what all processes are to serve. With `a-0.worker.prod` the holder may be a worker by the name `a-0` only; a certificate that names
//! processes for a role is good for these alone, whatever other names it has for the role. Other names say nothing, those of other
//! sets among them. Names are compared without regard to case, as DNS does.

use std::fmt;
use std::sync::Arc;

use crate::membership::Member;

/// The set of processes that name none.
pub const SET_DEFAULT: &str = "spillgate";
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

    /// The kinds of a process's roles.
    pub fn of(member: &Member) -> Vec<Kind> {
        let has = |kind: &Kind| match kind {
            Kind::Gateway => member.is_gateway,
            Kind::Controller => !member.controllers.is_empty(),
            Kind::Worker => member.is_worker(),
        };
        Kind::ALL.into_iter().filter(has).collect()
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

/// A process that is dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkProcess {
    /// Its name; `None` where only its address is known.
    pub name: Option<Arc<str>>,
    /// What it is.
    pub kinds: Vec<Kind>,
}

impl LinkProcess {
    /// The process that a controller lists, or a topology names.
    pub fn of(member: &Member) -> Self {
        LinkProcess {
            name: Some(member.name.clone()),
            kinds: Kind::of(member),
        }
    }

    /// A process with controllers, of which only the address is known.
    pub fn controller() -> Self {
        LinkProcess {
            name: None,
            kinds: vec![Kind::Controller],
        }
    }
}

/// What a certificate lets its holder be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The set in which they hold.
    set: String,
    /// The names that mean something there: a kind, and the process if one is named.
    names: Vec<(Kind, Option<String>)>,
    /// One of them lets its holder publish what all processes are to serve.
    is_operator: bool,
    /// The other names, for messages.
    others: Vec<String>,
}

impl Rights {
    /// The rights in a set of a certificate with these DNS names.
    pub fn of<'a>(set: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let set = set.to_ascii_lowercase();
        let (mut in_set, mut others) = (Vec::new(), Vec::new());
        let (operator, mut is_operator) = (format!("operator.{set}"), false);
        for name in names {
            let name = name.to_ascii_lowercase();
            is_operator |= name == operator;
            let rest = name
                .strip_suffix(&set)
                .and_then(|rest| rest.strip_suffix('.'));
            let understood = rest.and_then(|rest| {
                let (process, kind) = match rest.rsplit_once('.') {
                    Some((process, kind)) => (Some(process.to_owned()), kind),
                    None => (None, rest),
                };
                let kind = Kind::ALL.into_iter().find(|k| k.to_string() == kind)?;
                Some((kind, process))
            });
            match understood {
                Some(understood) => in_set.push(understood),
                None => others.push(name),
            }
        }
        Rights {
            set,
            names: in_set,
            is_operator,
            others,
        }
    }

    /// Why the holder may not be what it greets as: what is wrong, and what would be right. `None` if it may.
    pub fn refuse_peer(&self, peer: &Member) -> Option<String> {
        let name = &*peer.name;
        let mut kinds = Kind::of(peer).into_iter();
        let missing = kinds.find(|kind| !self.allows(*kind, Some(name)))?;
        Some(format!(
            "peer {name} greets as {missing}, its certificate is for {self}; {}",
            self.remedy(missing, Some(name))
        ))
    }

    /// Why the holder may not be the process that was dialled: what is wrong, and what would be right. `None` if it may.
    pub fn refuse_member(&self, member: &LinkProcess) -> Option<String> {
        let name = member.name.as_deref();
        let mut kinds = member.kinds.iter();
        let missing = *kinds.find(|kind| !self.allows(**kind, name))?;
        let who = name.unwrap_or("there");
        Some(format!(
            "process {who} should be a {missing}, its certificate is for {self}; {}",
            self.remedy(missing, name)
        ))
    }

    /// Why the holder may not publish what all processes are to serve: what is wrong, and what would be right. `None` if it may.
    pub fn refuse_operator(&self) -> Option<String> {
        (!self.is_operator).then(|| {
            format!(
                "an operator's certificate has the DNS name operator.{}, and this one is for {self}",
                self.set
            )
        })
    }

    /// Of a process without a name, any name will do: its greeting says which it has.
    fn allows(&self, kind: Kind, process: Option<&str>) -> bool {
        let of_kind = || self.names.iter().filter(|(of, _)| *of == kind);
        let mut named = of_kind().filter_map(|(_, process)| process.as_deref());
        match (process, of_kind().any(|(_, process)| process.is_some())) {
            (Some(process), true) => named.any(|name| name.eq_ignore_ascii_case(process)),
            _ => of_kind().next().is_some(),
        }
    }

    fn remedy(&self, kind: Kind, process: Option<&str>) -> String {
        let set = &self.set;
        let alone = process.map_or_else(String::new, |process| {
            format!(", or {process}.{kind}.{set} for this process alone")
        });
        format!("give it a certificate with the name {kind}.{set}{alone}")
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = &self.set;
        let names = self.names.iter().map(|(kind, process)| match process {
            Some(process) => format!("{process}.{kind}.{set}"),
            None => format!("{kind}.{set}"),
        });
        let mut names: Vec<String> = names.collect();
        if names.is_empty() {
            f.write_str("no role of set ")?;
            f.write_str(set)?;
            if self.others.is_empty() {
                return Ok(());
            }
            f.write_str(", but for ")?;
            names.clone_from(&self.others);
        }
        let shown = &names[..names.len().min(SHOWN_MAX)];
        f.write_str(&shown.join(", "))?;
        match names.len() > SHOWN_MAX {
            true => f.write_str(" and more"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::MemberDevice;
    use spillgate_pipeline::id::{Incarnation, ModuleId};

    fn member(name: &str, kinds: &[Kind]) -> Member {
        let has = |kind| kinds.contains(&kind);
        let device = MemberDevice {
            name: "cpu:0".into(),
            workers: vec![ModuleId(1).into()],
        };
        Member {
            name: name.into(),
            incarnation: Incarnation(1),
            version: "0.1.0".into(),
            address: None,
            is_gateway: has(Kind::Gateway),
            controllers: has(Kind::Controller)
                .then_some(ModuleId(1))
                .into_iter()
                .collect(),
            devices: has(Kind::Worker).then_some(device).into_iter().collect(),
        }
    }

    fn refused(names: &[&str], name: &str, kinds: &[Kind]) -> Option<String> {
        let rights = Rights::of(SET_DEFAULT, names.iter().copied());
        rights.refuse_peer(&member(name, kinds))
    }

    const WORKER: [Kind; 1] = [Kind::Worker];

    #[test]
    fn a_name_of_the_kind_is_enough_and_one_of_another_kind_is_not() {
        assert_eq!(refused(&["worker.spillgate"], "a-1", &WORKER), None);
        assert_eq!(refused(&["Worker.Spillgate"], "a-1", &WORKER), None);
        assert_eq!(
            refused(&["worker.spillgate"], "control", &[Kind::Controller]).unwrap(),
            "peer control greets as controller, its certificate is for worker.spillgate; give it a certificate with \
             the name controller.spillgate, or control.controller.spillgate for this process alone"
        );
    }

    #[test]
    fn a_process_with_several_roles_needs_a_name_for_each() {
        let names = ["gateway.spillgate", "controller.spillgate"];
        let kinds = [Kind::Controller, Kind::Gateway];
        assert_eq!(refused(&names, "front", &kinds), None);
        let refused = refused(&names[..1], "front", &kinds).unwrap();
        assert!(refused.contains("greets as controller"), "{refused}");
    }

    #[test]
    fn a_named_process_is_that_process_alone() {
        let names = ["a-1.worker.spillgate"];
        assert_eq!(refused(&names, "a-1", &WORKER), None);
        let expected = "peer a-2 greets as worker, its certificate is for a-1.worker.spillgate";
        let of_other = refused(&names, "a-2", &WORKER).unwrap();
        assert!(of_other.starts_with(expected), "{of_other}");
        // The name of the kind beside it makes it no wider.
        let wide = ["worker.spillgate", "a-1.worker.spillgate"];
        assert!(refused(&wide, "a-2", &WORKER).is_some());
        assert_eq!(refused(&wide, "a-1", &WORKER), None);
    }

    #[test]
    fn a_certificate_is_for_its_set() {
        let of =
            |set: &str, name: &str| Rights::of(set, [name]).refuse_peer(&member("a-1", &WORKER));
        assert_eq!(of("prod", "worker.prod"), None);
        assert_eq!(of("prod", "a-1.worker.prod"), None);
        assert_eq!(of("prod.example.org", "worker.prod.example.org"), None);
        assert_eq!(
            of("prod", "worker.test").unwrap(),
            "peer a-1 greets as worker, its certificate is for no role of set prod, but for worker.test; give it a \
             certificate with the name worker.prod, or a-1.worker.prod for this process alone"
        );
        assert!(of("prod", "worker.spillgate").is_some());
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
            let refused = refused(&[name], "a-1", &WORKER);
            assert!(refused.is_some(), "{name}");
        }
        let refused = refused(&[], "a-1", &WORKER).unwrap();
        let expected = "its certificate is for no role of set spillgate; give";
        assert!(refused.contains(expected), "{refused}");
    }

    #[test]
    fn the_process_that_is_dialled_needs_a_name_for_each_of_its_kinds() {
        let member = LinkProcess {
            name: Some("rest".into()),
            kinds: vec![Kind::Controller, Kind::Worker],
        };
        let of = |member: &LinkProcess, names: &[&str]| {
            Rights::of(SET_DEFAULT, names.iter().copied()).refuse_member(member)
        };
        let names = ["controller.spillgate", "rest.worker.spillgate"];
        assert_eq!(of(&member, &names), None);
        assert_eq!(
            of(&member, &["controller.spillgate"]).unwrap(),
            "process rest should be a worker, its certificate is for controller.spillgate; give it a certificate \
             with the name worker.spillgate, or rest.worker.spillgate for this process alone"
        );
        assert!(of(&member, &["controller.spillgate", "other.worker.spillgate"]).is_some());
        // Of one that is known by its address, the greeting says which it is.
        let controller = LinkProcess::controller();
        assert_eq!(of(&controller, &["x.controller.spillgate"]), None);
        assert!(of(&controller, &["worker.spillgate"]).is_some());
    }

    #[test]
    fn many_names_are_not_all_repeated() {
        let names: Vec<String> = (0..100)
            .map(|i| format!("a-{i}.worker.spillgate"))
            .collect();
        for set in ["spillgate", "other"] {
            let rights = Rights::of(set, names.iter().map(String::as_str));
            assert!(rights.to_string().len() < 300, "{rights}");
        }
    }
}
