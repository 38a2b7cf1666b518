//! Random draws that several simulations need.

use rand::Rng;

/// A standard normal draw, by Box and Muller.
pub fn normal(rng: &mut impl Rng) -> f64 {
    // 1 - u lies in (0, 1], so that the logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// Seconds until the next arrival of a Poisson process with that rate.
pub fn gap(rng: &mut impl Rng, rate: f64) -> f64 {
    // 1 - u lies in (0, 1], so that the logarithm is finite.
    -(1.0 - rng.random::<f64>()).ln() / rate
}
