//! Whole runs of the simulator.

mod adaptation;
mod background;
mod models;
mod shares;
mod swarm;
mod work;
