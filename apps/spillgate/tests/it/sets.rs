//! Sets of processes that are started one by one, as on several machines: real processes of the program, real sockets; the
//! devices are emulated.

mod attacks;
mod certificates;
mod misfits;
mod pipelines;
mod registered;
mod rollouts;
mod set;
mod tls;
