//! Ablations and bounds: recipes beside those that pipeline files and the command line name. Evaluations and tests hand them to the
//! policies; the product knows their names only, to say that they are here.

pub mod drops;
pub mod placements;
pub mod schedulers;
