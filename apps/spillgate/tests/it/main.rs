//! The program and its server, in this process and as processes of their own.

mod accuracy;
mod adapting;
mod admin;
mod authority;
mod clients;
mod families;
mod handoff;
mod intake;
mod large;
mod models;
mod onnx;
mod outputs;
mod placed;
mod policies;
mod process;
mod processes;
mod reload;
mod scaling;
mod scenario;
mod scheduling;
mod security;
mod serving;
mod sets;
mod shutdown;
mod simulated;
mod support;
