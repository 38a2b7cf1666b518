//! The reference workload of dynamic requests: finish rates of every scheduler at each SLO.
//! `cargo run --release -p spillgate-sim --example dynamic_table -- [REQUESTS] [SEEDS] [static]`

// An example is a program: it takes arguments, which the crate itself must not.
#![allow(clippy::disallowed_methods)]

use std::error::Error;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_recipes::schedulers;
use spillgate_sim::dynamic::{Finish, Instance, Mode, Shape, Workload, clairvoyant, run};

const SLOS: [f64; 5] = [1.5, 2.0, 3.0, 4.0, 5.0];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let requests = args.next().map_or(Ok(4000), |text| text.parse())?;
    let seeds = args.next().map_or(Ok(4), |text| text.parse::<u64>())?;
    let is_static = args.next().is_some_and(|word| word == "static");
    let scenes: Vec<Vec<Instance>> = SLOS
        .iter()
        .map(|&slo| {
            let mut workload = Workload::reference(slo, requests);
            if is_static {
                workload.modes = vec![Mode {
                    mean_ms: 50.0,
                    deviation_ms: 0.0,
                    weight: 1.0,
                    shape: Shape::Normal,
                }];
            }
            (0..seeds)
                .map(|seed| workload.instance(&mut ChaCha8Rng::seed_from_u64(seed)))
                .collect()
        })
        .collect::<Result<_, _>>()?;
    println!("finish rate at SLO = {SLOS:?} x P99, mean; batch size and utilisation at 3 x");
    for name in schedulers::ALL {
        line(name.name(), &scenes, |instance| Ok(run(instance, name)?))?;
    }
    line("clairvoyant", &scenes, |instance| Ok(clairvoyant(instance)))
}

fn line(
    name: &str,
    scenes: &[Vec<Instance>],
    run: impl Fn(&Instance) -> Result<Finish, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut text = format!("{name:14}");
    let (mut sum, mut at_three) = (0.0, Finish::default());
    for (i, of_slo) in scenes.iter().enumerate() {
        let mut mean = 0.0;
        for instance in of_slo {
            let finish = run(instance)?;
            mean += finish.finish_rate / of_slo.len() as f64;
            if i == 2 {
                at_three = finish;
            }
        }
        text += &format!(" {mean:.3}");
        sum += mean / scenes.len() as f64;
    }
    println!(
        "{text}  {sum:.4}  {:5.2} {:.2}",
        at_three.batch_mean, at_three.utilisation
    );
    Ok(())
}
