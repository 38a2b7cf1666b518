//! PeerLinks between processes, and what travels on them.

mod links;
mod wire;
