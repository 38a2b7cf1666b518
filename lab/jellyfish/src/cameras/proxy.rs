//! F1 of a frame by its size: what the evaluation measures on videos (§7.1), which are not at hand.

/// Side in pixels and F1: the smallest, the middle and the largest variant of the paper's Figure 15, as reported by the
/// reference that this evaluation is compared with.
pub const F1_POINTS: [(f64, f64); 3] = [(128.0, 0.334), (352.0, 0.757), (608.0, 0.90)];

/// F1 as `limit - lost * exp(-(side - 128) / scale)`: like the accuracy of the profile, it saturates. The three points
/// determine the three numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proxy {
    limit: f64,
    lost: f64,
    scale: f64,
}

impl Proxy {
    /// The curve through [`F1_POINTS`].
    pub(super) fn new() -> Self {
        let [(a, fa), (b, fb), (c, fc)] = F1_POINTS;
        let gained = |scale: f64, side: f64| 1.0 - (-(side - a) / scale).exp();
        // Part of the gain that comes after the middle. It rises with the scale, from none to what a straight line has.
        let wanted = (fc - fb) / (fc - fa);
        let (mut low, mut high) = (1.0, 1e5);
        for _ in 0..100 {
            let scale = 0.5 * (low + high);
            let part = 1.0 - gained(scale, b) / gained(scale, c);
            if part < wanted {
                low = scale;
            } else {
                high = scale;
            }
        }
        let lost = (fc - fa) / gained(low, c);
        Proxy {
            limit: fa + lost,
            lost,
            scale: low,
        }
    }

    /// F1 of a frame that was sent with one side and executed with another: the smaller counts.
    pub(super) fn of(self, sent: u32, executed: u32) -> f64 {
        let side = f64::from(sent.min(executed));
        self.limit - self.lost * (-(side - F1_POINTS[0].0) / self.scale).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_goes_through_its_points_and_rises() {
        let proxy = Proxy::new();
        for (side, f1) in F1_POINTS {
            assert!((proxy.of(side as u32, 1_000) - f1).abs() < 1e-9, "{side}");
        }
        let sides: Vec<f64> = (4..=20).map(|i| proxy.of(32 * i, 32 * i)).collect();
        assert!(sides.is_sorted());
        assert_eq!(proxy.of(608, 128), proxy.of(128, 608));
    }
}
