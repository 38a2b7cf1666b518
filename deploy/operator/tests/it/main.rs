//! Decisions over a cluster that does at once what it is told.

mod certificates;
mod cluster;
mod rollouts;
mod sets;
mod specs;
mod troubles;
