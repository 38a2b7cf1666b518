//! Jellyfish's problem on its own, for figures: its solvers and a periodic scheduler, and the paper's evaluation in virtual time.

pub mod adaptation;
pub mod cameras;
