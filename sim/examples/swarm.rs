//! Swarm runs of seeds in order, on all cores: `cargo xtask swarm`. Prints each seed that breaks, with the command that repeats it.

#![allow(
    clippy::disallowed_methods,
    reason = "it drives runs; it decides nothing in them"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use spillgate_recipes::drops;
use spillgate_sim::swarm;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let (Some(Ok(first)), Some(Ok(n))) = (args.next(), args.next()) else {
        eprintln!("usage: swarm FIRST_SEED SEEDS");
        return ExitCode::from(2);
    };
    let (next, broken) = (AtomicU64::new(first), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + n {
                        return;
                    }
                    if let Err(breach) = swarm::check(seed, &drops::ALL, None) {
                        println!("seed {seed}: {breach}\n  cargo xtask swarm --seed {seed}");
                        broken.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner();
    println!("swarm: {n} seeds from {first}, {broken} broken");
    ExitCode::from(u8::from(broken > 0))
}
