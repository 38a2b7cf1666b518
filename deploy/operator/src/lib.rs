//! The Kubernetes operator of Spillgate. A user writes a `Pipeline` ([`crd`]); the operator checks it with the compiler of pipelines
//! ([`definition`]), has Kubernetes run the processes ([`render`]), rolls another revision out ([`record`]), follows the numbers of
//! workers that controllers want, issues certificates ([`authority`]), and says what there is ([`conditions`]).
//!
//! [`decide`] decides: it is given the time and all that was observed of a set, and gives the objects that there should be. The
//! driver ([`operator`]) reads, applies and asks, and decides nothing. No state is kept between two passes but in the cluster, so an
//! operator that begins anew goes on.

pub mod authority;
pub mod conditions;
pub mod crd;
pub mod decide;
pub mod definition;
pub mod names;
pub mod operator;
pub mod processes;
pub mod record;
pub mod render;
pub mod set;

use sha2::{Digest, Sha256};

/// Eight hexadecimal digits that tell texts apart.
pub(crate) fn short_hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
