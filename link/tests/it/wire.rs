//! The wire between processes: packets come back as they were sent, whatever bytes come is read or refused, and the packets that
//! travel most have a known size.

mod arbitrary;
mod recorded;
mod refused;
mod roundtrip;
mod sizes;
