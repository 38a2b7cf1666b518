//! The link between the processes of a cluster. [`wire`]: what travels on it, and how it is written. [`links`]: the sessions of a
//! process with the others, each on a connection that it makes anew when it is lost. [`serve`]: the port on which others reach it.
//! [`tls`]: certificates on both sides of each connection. [`revisions`]: what is published, and what operators ask.

pub mod bounds;
mod complaints;
mod dial;
pub mod links;
mod outlet;
pub mod revisions;
pub mod serve;
mod session;
pub mod tls;
mod visit;
pub mod wire;

pub use complaints::Complaints;
pub use outlet::{CUT_OFF_BYTES, WAITING_BYTES_MAX, WAITING_MAX};
pub use visit::{STRANGER_BYTES_MAX, host_of};
