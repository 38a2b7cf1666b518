//! Drop policies of the laboratory, each in a file of its own. To add one: its file, lines below, and its name in
//! `DropPolicy::LABORATORY` (`pipeline/src/policy/drop.rs`).

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
mod spillgate_ahead;
mod spillgate_hbf;
mod spillgate_lbf;
mod spillgate_nodoor;

use spillgate_pipeline::policy::DropPolicy;

/// Makes the handles from the files.
macro_rules! drop_policies {
    ($($name:ident => $file:ident,)*) => {
        $(
            #[doc = concat!("See `drops/", stringify!($file), ".rs`.")]
            pub const $name: DropPolicy = DropPolicy::new(&$file::RECIPE);
        )*

        /// Those of this crate.
        pub const OWN: [DropPolicy; [$($name),*].len()] = [$($name),*];
    };
}

drop_policies! {
    SPILLGATE_NODOOR => spillgate_nodoor,
    SPILLGATE_AHEAD => spillgate_ahead,
    SPILLGATE_HBF => spillgate_hbf,
    SPILLGATE_LBF => spillgate_lbf,
    PARD_BACK => pard_back,
    PARD_SF => pard_sf,
    PARD_OC => pard_oc,
    PARD_SPLIT => pard_split,
    PARD_WCL => pard_wcl,
    PARD_LOWER => pard_lower,
    PARD_UPPER => pard_upper,
    PARD_FCFS => pard_fcfs,
    PARD_HBF => pard_hbf,
    PARD_LBF => pard_lbf,
    PARD_INSTANT => pard_instant,
}

/// All that there are, those that files name among them, each beside what it varies.
pub const ALL: [DropPolicy; DropPolicy::OFFERED.len() + OWN.len()] = [
    DropPolicy::SPILLGATE,
    SPILLGATE_NODOOR,
    SPILLGATE_AHEAD,
    SPILLGATE_HBF,
    SPILLGATE_LBF,
    DropPolicy::PARD,
    PARD_BACK,
    PARD_SF,
    PARD_OC,
    PARD_SPLIT,
    PARD_WCL,
    PARD_LOWER,
    PARD_UPPER,
    PARD_FCFS,
    PARD_HBF,
    PARD_LBF,
    PARD_INSTANT,
    DropPolicy::NEXUS_SPLIT,
    DropPolicy::NEXUS,
    DropPolicy::CLIPPER_PLUS_PLUS,
    DropPolicy::DEADLINE,
    DropPolicy::NONE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_there_once() {
        for policy in DropPolicy::OFFERED.into_iter().chain(OWN) {
            let named = ALL.iter().filter(|p| p.name() == policy.name());
            assert_eq!(named.count(), 1, "{policy:?}");
        }
    }

    #[test]
    fn the_product_says_of_these_names_where_they_are() {
        assert_eq!(OWN.map(DropPolicy::name), DropPolicy::LABORATORY);
        for own in OWN {
            assert_eq!(DropPolicy::by_name(own.name()), None);
        }
    }
}
