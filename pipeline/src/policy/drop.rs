//! The drop policies that pipeline files and the command line name. Each has a file of its own, with its recipe. To add a policy: write
//! its file, add a `mod` line and a line of the list below, add it to docs/policy.md, and update the golden texts that list all names
//! (`UPDATE_EXPECT=1 cargo test`). Whoever wants another one hands its recipe in, as the laboratory does (`lab/recipes`).

mod clipper_plus_plus;
mod deadline;
mod nexus;
mod nexus_split;
mod none;
mod pard;
mod spillgate;

use std::fmt;

use super::recipe::Recipe;

/// A drop policy: the handle of its recipe.
#[derive(Clone, Copy, PartialEq)]
pub struct DropPolicy(&'static Recipe);

/// Makes the handles and their order from one list.
macro_rules! drop_policies {
    ($($name:ident => $file:ident,)*) => {
        impl DropPolicy {
            $(
                #[doc = concat!("See `policy/drop/", stringify!($file), ".rs`.")]
                pub const $name: DropPolicy = DropPolicy::new(&$file::RECIPE);
            )*

            /// Those that pipeline files and the command line name, in the order of the documentation.
            pub const OFFERED: [DropPolicy; [$(DropPolicy::$name),*].len()] = [$(DropPolicy::$name),*];
        }
    };
}

drop_policies! {
    SPILLGATE => spillgate,
    PARD => pard,
    NEXUS_SPLIT => nexus_split,
    NEXUS => nexus,
    CLIPPER_PLUS_PLUS => clipper_plus_plus,
    DEADLINE => deadline,
    NONE => none,
}

impl DropPolicy {
    /// Names of the laboratory's ablations and bounds, for those who write one in a file.
    pub const LABORATORY: [&str; 15] = [
        "spillgate-nodoor",
        "spillgate-ahead",
        "spillgate-hbf",
        "spillgate-lbf",
        "pard-back",
        "pard-sf",
        "pard-oc",
        "pard-split",
        "pard-wcl",
        "pard-lower",
        "pard-upper",
        "pard-fcfs",
        "pard-hbf",
        "pard-lbf",
        "pard-instant",
    ];

    /// The policy of that recipe.
    ///
    /// # Panics
    /// When fields of the recipe contradict each other.
    pub const fn new(recipe: &'static Recipe) -> Self {
        recipe.assert_valid();
        DropPolicy(recipe)
    }

    /// How it works.
    pub const fn recipe(self) -> &'static Recipe {
        self.0
    }

    /// Its name in files, tables and reports.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// The one of that name among those that are offered.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::OFFERED.into_iter().find(|p| p.name() == name)
    }
}

impl fmt::Debug for DropPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_and_differ() {
        for policy in DropPolicy::OFFERED {
            assert_eq!(DropPolicy::by_name(policy.name()), Some(policy));
        }
        assert_eq!(DropPolicy::by_name("pards"), None);
    }

    #[test]
    fn the_names_users_write() {
        let names = DropPolicy::OFFERED.map(DropPolicy::name).join(" ");
        expect_test::expect!["spillgate pard nexus-split nexus clipper++ deadline none"]
            .assert_eq(&names);
    }
}
