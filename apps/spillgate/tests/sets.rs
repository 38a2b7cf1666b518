//! Sets of processes that are started one by one, as on several machines: real processes of the program, real sockets; the
//! devices are emulated.

#[path = "sets/addresses.rs"]
mod addresses;
#[path = "sets/attacks.rs"]
mod attacks;
#[path = "sets/certificates.rs"]
mod certificates;
#[path = "sets/misfits.rs"]
mod misfits;
#[path = "sets/set.rs"]
mod set;
#[path = "sets/tls.rs"]
mod tls;
