//! Whether workers of one module on one kind of device plan by one profile.

use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::profile::device_kind;
use spillgate_protocol::membership::Member;

/// A module on a kind of device.
type Planned = (ModuleId, String);

/// The hashes of the profiles by which the workers of a process plan.
type Profiles = Vec<(Planned, u64)>;

/// Those of all processes, by name.
#[derive(Default)]
pub(crate) struct ProfileAgreement(Mutex<IndexMap<Arc<str>, Profiles, FxBuildHasher>>);

impl ProfileAgreement {
    /// A process is there. Returns what is wrong with its profiles and what would be right, if others plan by other ones.
    pub(crate) fn joined(&self, member: &Member, pipeline: &Pipeline) -> Option<String> {
        let devices = member.devices.iter();
        let own: Profiles = devices
            .flat_map(|device| {
                let kind = device_kind(&device.name);
                device
                    .workers
                    .iter()
                    .map(move |w| ((w.module, kind.to_owned()), w.profile))
            })
            .collect();
        let mut all = self.0.lock();
        all.swap_remove(&member.name);
        let differs = own.iter().find_map(|(planned, profile)| {
            let mut others = all
                .iter()
                .flat_map(|(name, of)| of.iter().map(move |p| (name, p)));
            let (other, _) = others.find(|(_, (of, by))| of == planned && by != profile)?;
            Some((planned, other))
        });
        let wrong = differs.map(|((module, kind), other)| {
            let name = &member.name;
            let module = pipeline.modules.get(module.idx()).map_or("?", |m| &m.name);
            format!(
                "{name} plans {module} on {kind} by another profile than {other}; give both the same --profiles"
            )
        });
        all.insert(member.name.clone(), own);
        wrong
    }

    /// A process has left.
    pub(crate) fn left(&self, member: &Member) {
        self.0.lock().swap_remove(&member.name);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_pipeline::id::Incarnation;
    use spillgate_pipeline::testing::noop_pipeline;
    use spillgate_protocol::membership::{MemberDevice, MemberWorker};

    use super::*;

    #[test]
    fn workers_of_one_kind_of_device_that_plan_otherwise_are_named() {
        let pipeline = noop_pipeline(Duration::from_secs(1), &[&[0], &[1]], &[]);
        let member = |name: &str, device: &str, profile| Member {
            name: name.into(),
            incarnation: Incarnation(1),
            version: "0.1.0".into(),
            address: None,
            is_gateway: false,
            controllers: Vec::new(),
            devices: vec![MemberDevice {
                name: device.into(),
                workers: vec![MemberWorker {
                    module: ModuleId(1),
                    profile,
                }],
            }],
        };
        let agreement = ProfileAgreement::default();
        let joined = |of: &Member| agreement.joined(of, &pipeline);
        assert_eq!(joined(&member("a", "cuda:0", 1)), None);
        assert_eq!(joined(&member("b", "cuda:1", 1)), None);
        assert_eq!(joined(&member("c", "cpu:0", 2)), None, "of another kind");
        assert_eq!(
            joined(&member("d", "cuda:0", 2)).unwrap(),
            "d plans m1 on cuda by another profile than a; give both the same --profiles"
        );
        // It begins anew with the right one.
        assert_eq!(joined(&member("d", "cuda:0", 1)), None);
        agreement.left(&member("a", "cuda:0", 1));
        agreement.left(&member("b", "cuda:0", 1));
        agreement.left(&member("d", "cuda:0", 1));
        assert_eq!(joined(&member("e", "cuda:0", 3)), None);
    }
}
