//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Models,
        "time for which a model runs on its own example before it serves",
        time(crate::operators::WARM_UP_MAX),
        "the other sizes run for the first time with requests"
    ),
    bound!(
        Models,
        "runs on its own example that a model has in any case",
        count(crate::operators::FIRST_RUNS),
        "a model that is loaded while others serve has no more"
    ),
    bound!(
        Models,
        "files of a shared model that are read for one load",
        count(crate::weights::loader::READS_MAX),
        "the load fails"
    ),
    bound!(
        Models,
        "files that the error of a load names",
        count(crate::weights::loader::NAMED_MAX),
        "the number of the others is told"
    ),
];
