//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Models,
        "segments of a classifier with early exits",
        count(crate::early_exit::EXITS_MAX),
        "refused when it is built",
        "modules.NAME.options"
    ),
    bound!(
        Models,
        "characters that a text generator reads",
        count(crate::text_generator::WIDTH_MAX),
        "refused when it is built; a longer text fails",
        "modules.NAME.options"
    ),
    bound!(
        Models,
        "steps of a text generator",
        count(crate::text_generator::OUTPUT_MAX),
        "refused when it is built",
        "modules.NAME.options"
    ),
    bound!(
        Models,
        "a file of class names",
        bytes(crate::labels::LABELS_BYTES_MAX),
        "an error with its path"
    ),
];
