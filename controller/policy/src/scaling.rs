//! Scaling: how many workers each module should have, from the *offered* rate at the entry.
//!
//! What a module sees is what the gate and the modules before it let through: a scaler that looks at that spirals
//! down behind them (NOTES). So the offered rate counts, times the part of the requests that run each module.
//! Workers are asked for at once and take their cold start; they are given back only after a whole cool-down in
//! which fewer would have done.

use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::time::Timestamp;

/// Spare capacity that is kept: the rate is followed at this multiple, so that batches need not be full.
const HEADROOM: f64 = 1.1;

/// What a scaler is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingConfig {
    /// Least workers by module; the source's is not used.
    pub least: Vec<u32>,
    /// Most workers by module.
    pub most: Vec<u32>,
    /// Requests a second of one worker in planned batches, by module.
    pub throughput: Vec<f64>,
    /// How long fewer workers must have been enough before any is given back.
    pub cool_down: Duration,
}

/// A change of a module's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The module.
    pub module: ModuleId,
    /// Workers it should have from now on, those on their way included.
    pub workers: u32,
}

/// The scaler of one pipeline.
#[derive(Clone, Debug)]
pub struct Scaler {
    config: ScalingConfig,
    /// Workers that each module has or waits for.
    asked: Vec<u32>,
    /// Since when fewer would do, and the most that were needed since.
    spare: Vec<Option<(Timestamp, u32)>>,
}

impl Scaler {
    /// A scaler of modules that have the least workers.
    pub fn new(config: ScalingConfig) -> Self {
        Scaler {
            asked: config.least.clone(),
            spare: vec![None; config.least.len()],
            config,
        }
    }

    /// Workers that each module has or waits for.
    pub fn asked(&self) -> &[u32] {
        &self.asked
    }

    /// The offered rate in requests a second, and the part of them that runs each module: what is to change.
    pub fn offered(
        &mut self,
        now: Timestamp,
        rate: f64,
        probability: &[f64],
        out: &mut Vec<Change>,
    ) {
        for module in 1..self.asked.len() {
            let part = probability.get(module).copied().unwrap_or(1.0);
            let needed = rate * part * HEADROOM / self.config.throughput[module];
            let (least, most) = (self.config.least[module], self.config.most[module]);
            let needed = (needed.max(0.0).ceil() as u32).clamp(least, most.max(least));
            let asked = self.asked[module];
            let workers = if needed >= asked {
                self.spare[module] = None;
                needed
            } else {
                let (since, peak) = self.spare[module].unwrap_or((now, 0));
                let peak = peak.max(needed);
                let cooled = now.since(since) >= self.config.cool_down;
                self.spare[module] = (!cooled).then_some((since, peak));
                if cooled { peak } else { asked }
            };
            if workers != asked {
                self.asked[module] = workers;
                out.push(Change {
                    module: ModuleId(module as u16),
                    workers,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaler() -> Scaler {
        Scaler::new(ScalingConfig {
            least: vec![0, 1, 1],
            most: vec![0, 10, 4],
            throughput: vec![f64::INFINITY, 100.0, 200.0],
            cool_down: Duration::from_secs(30),
        })
    }

    fn at(scaler: &mut Scaler, second: u64, rate: f64) -> Vec<(u16, u32)> {
        let mut out = Vec::new();
        let now = Timestamp::ZERO + Duration::from_secs(second);
        scaler.offered(now, rate, &[1.0, 1.0, 0.5], &mut out);
        out.iter().map(|c| (c.module.0, c.workers)).collect()
    }

    #[test]
    fn rises_at_once_and_falls_after_the_cool_down() {
        let mut s = scaler();
        assert_eq!(at(&mut s, 0, 50.0), []);
        assert_eq!(at(&mut s, 1, 450.0), [(1, 5), (2, 2)]);
        assert_eq!(
            at(&mut s, 2, 5_000.0),
            [(1, 10), (2, 4)],
            "not over the most"
        );
        assert_eq!(at(&mut s, 3, 450.0), []);
        assert_eq!(
            at(&mut s, 20, 600.0),
            [],
            "the most needed meanwhile is kept"
        );
        assert_eq!(at(&mut s, 33, 100.0), [(1, 7), (2, 2)]);
        assert_eq!(
            at(&mut s, 34, 800.0),
            [(1, 9), (2, 3)],
            "and rises at once again"
        );
        assert_eq!(s.asked(), [0, 9, 3]);
    }

    #[test]
    fn a_short_lull_gives_nothing_back() {
        let mut s = scaler();
        at(&mut s, 0, 900.0);
        for second in 1..200 {
            let rate = if second % 20 == 0 { 900.0 } else { 0.0 };
            assert_eq!(at(&mut s, second, rate), [], "{second}");
        }
    }
}
