//! The list of drop policies. Each has a file of its own, with its recipe. To add a policy: write its file, add a `mod`
//! line and a line of the list below, add it to those that are offered and to docs/policy.md, and update the golden texts that list all names
//! (`UPDATE_EXPECT=1 cargo test`).

mod clipper_plus_plus;
mod deadline;
mod nexus;
mod nexus_split;
mod none;
mod pard;
mod pard_back;
mod pard_fcfs;
mod pard_hbf;
mod pard_instant;
mod pard_lbf;
mod pard_lower;
mod pard_oc;
mod pard_sf;
mod pard_split;
mod pard_upper;
mod pard_wcl;
mod spillgate;
mod spillgate_ahead;
mod spillgate_hbf;
mod spillgate_lbf;
mod spillgate_nodoor;

use super::recipe::Recipe;

/// Makes the names, their order and the way to the recipes from one list.
macro_rules! drop_policies {
    ($($name:ident => $file:ident,)*) => {
        /// Drop policies by name: handles of their recipes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DropPolicyName {
            $(
                #[doc = concat!("See `policy/drop/", stringify!($file), ".rs`.")]
                $name,
            )*
        }

        impl DropPolicyName {
            /// All, in the order of the documentation.
            pub const ALL: [DropPolicyName; [$(DropPolicyName::$name),*].len()] =
                [$(DropPolicyName::$name),*];

            /// How it works.
            pub const fn recipe(self) -> &'static Recipe {
                match self {
                    $(DropPolicyName::$name => &$file::RECIPE,)*
                }
            }
        }

        $(const _: () = $file::RECIPE.assert_valid();)*
    };
}

drop_policies! {
    Spillgate => spillgate,
    SpillgateNodoor => spillgate_nodoor,
    SpillgateAhead => spillgate_ahead,
    SpillgateHbf => spillgate_hbf,
    SpillgateLbf => spillgate_lbf,
    Pard => pard,
    PardBack => pard_back,
    PardSf => pard_sf,
    PardOc => pard_oc,
    PardSplit => pard_split,
    PardWcl => pard_wcl,
    PardLower => pard_lower,
    PardUpper => pard_upper,
    PardFcfs => pard_fcfs,
    PardHbf => pard_hbf,
    PardLbf => pard_lbf,
    PardInstant => pard_instant,
    NexusSplit => nexus_split,
    Nexus => nexus,
    ClipperPlusPlus => clipper_plus_plus,
    Deadline => deadline,
    None => none,
}

impl DropPolicyName {
    /// Those that pipeline files and the command line name. The others are ablations and bounds, which the laboratory and tests run.
    pub const OFFERED: [DropPolicyName; 7] = [
        DropPolicyName::Spillgate,
        DropPolicyName::Pard,
        DropPolicyName::NexusSplit,
        DropPolicyName::Nexus,
        DropPolicyName::ClipperPlusPlus,
        DropPolicyName::Deadline,
        DropPolicyName::None,
    ];

    /// Its name in files, tables and reports.
    pub const fn name(self) -> &'static str {
        self.recipe().name
    }

    /// The policy of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_and_differ() {
        for policy in DropPolicyName::ALL {
            assert_eq!(DropPolicyName::by_name(policy.name()), Some(policy));
        }
        assert_eq!(DropPolicyName::by_name("pards"), None);
    }

    #[test]
    fn the_names_users_write() {
        let names = DropPolicyName::OFFERED.map(DropPolicyName::name).join(" ");
        expect_test::expect!["spillgate pard nexus-split nexus clipper++ deadline none"]
            .assert_eq(&names);
        let names = DropPolicyName::ALL.map(DropPolicyName::name).join(" ");
        expect_test::expect!["spillgate spillgate-nodoor spillgate-ahead spillgate-hbf spillgate-lbf pard pard-back pard-sf pard-oc pard-split pard-wcl pard-lower pard-upper pard-fcfs pard-hbf pard-lbf pard-instant nexus-split nexus clipper++ deadline none"].assert_eq(&names);
    }
}
