//! What the processes of a server say to each other: the [`message`]s between its roles and who may send them, [`session`]s over
//! connections that break, the [`topology`] that says which process holds which roles, and which [`values`] travel only once.
//! No I/O, clock, threads or randomness of its own.

pub mod bounds;
pub mod membership;
pub mod message;
pub mod publication;
pub mod session;
pub mod topology;
pub mod values;
