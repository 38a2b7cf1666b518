//! The client's commands against small servers, which do what each test needs.

mod adapting;
mod bench;
mod fake;
mod stream;
mod video;
