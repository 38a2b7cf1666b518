//! A sliding window over values that come with time. Its size is bounded, whatever the rate.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// Slots of a window: values in the newest and the oldest slot count as if they came at its middle.
pub(crate) const SLOTS: u64 = 50;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    sum: f64,
    count: u64,
    max: f64,
}

/// A sliding window over values that come with time (PARD §4.2: 5 s, linearly weighted).
#[derive(Clone, Debug)]
pub struct Window {
    slot: Duration,
    born: Timestamp,
    slots: VecDeque<Slot>,
}

impl Window {
    /// An empty window of that length.
    pub fn new(length: Duration, born: Timestamp) -> Self {
        Window {
            born,
            slot: (length / SLOTS as u32).max(Duration::from_nanos(1)),
            slots: VecDeque::with_capacity(SLOTS as usize + 1),
        }
    }

    fn number(&self, at: Timestamp) -> u64 {
        at.as_ns() / self.slot.as_nanos() as u64
    }

    /// Adds values: their sum, their number and the largest. Values with an old time count as now.
    pub fn add(&mut self, now: Timestamp, sum: f64, count: u64, max: f64) {
        let number = self.number(now);
        match self.slots.back_mut() {
            Some(last) if last.number >= number => {
                last.sum += sum;
                last.count += count;
                last.max = last.max.max(max);
            }
            _ => {
                self.slots.push_back(Slot {
                    number,
                    sum,
                    count,
                    max,
                });
                self.forget(number);
            }
        }
    }

    /// Forgets all values. The time since it began goes on.
    pub fn clear(&mut self) {
        self.slots.clear();
    }

    /// Removes one of the newest values, which should not have been counted.
    pub fn take_back(&mut self, mut n: u64) {
        for slot in self.slots.iter_mut().rev() {
            let taken = slot.count.min(n);
            slot.count -= taken;
            n -= taken;
            if n == 0 {
                return;
            }
        }
    }

    fn forget(&mut self, newest: u64) {
        while let Some(first) = self.slots.front()
            && first.number + SLOTS <= newest
        {
            self.slots.pop_front();
        }
    }

    /// The mean, values weighted linearly by age: the newest 1, the oldest 0. `None` for an empty window.
    pub fn weighted_mean(&mut self, now: Timestamp) -> Option<f64> {
        let newest = self.number(now);
        self.forget(newest);
        let (mut sum, mut weights) = (0.0, 0.0);
        for slot in &self.slots {
            let age = newest.saturating_sub(slot.number) as f64;
            let weight = (1.0 - age / SLOTS as f64).max(0.0);
            sum += weight * slot.sum;
            weights += weight * slot.count as f64;
        }
        (weights > 0.0).then(|| sum / weights)
    }

    /// Values in the window.
    pub fn count(&mut self, now: Timestamp) -> u64 {
        let newest = self.number(now);
        self.forget(newest);
        self.slots.iter().map(|s| s.count).sum()
    }

    /// Values a second, over the window or over the time since the start if that is shorter.
    pub fn rate(&mut self, now: Timestamp) -> f64 {
        let length = (self.slot * SLOTS as u32).as_secs_f64();
        let span = length.min(now.since(self.born).as_secs_f64());
        let span = span.max(self.slot.as_secs_f64());
        self.count(now) as f64 / span
    }

    /// The largest value in the window; 0 for an empty one.
    pub fn max(&mut self, now: Timestamp) -> f64 {
        let newest = self.number(now);
        self.forget(newest);
        self.slots.iter().map(|s| s.max).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Timestamp {
        Timestamp::from_ns(n * 1_000_000)
    }

    #[test]
    fn the_newest_weighs_one_and_the_oldest_nothing() {
        let mut window = Window::new(Duration::from_secs(5), ms(0));
        assert_eq!(window.weighted_mean(ms(0)), None);
        window.add(ms(0), 10.0, 1, 10.0);
        window.add(ms(2_500), 20.0, 1, 20.0);
        // Ages 5 s (gone at the next slot) and 2.5 s, then only one is left.
        let mean = window.weighted_mean(ms(4_900)).unwrap();
        assert!(mean > 19.0 && mean < 20.0, "{mean}");
        assert_eq!(window.weighted_mean(ms(5_000)), Some(20.0));
        assert_eq!(window.max(ms(5_000)), 20.0);
        assert_eq!(window.count(ms(5_000)), 1);
        assert_eq!(window.weighted_mean(ms(60_000)), None);
    }

    #[test]
    fn a_rate_counts_over_the_time_that_has_passed() {
        let mut window = Window::new(Duration::from_secs(5), ms(0));
        for i in 0..1000 {
            window.add(ms(i), 0.0, 1, 0.0);
        }
        let rate = window.rate(ms(1_000));
        assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
    }

    /// A rate over the time since the epoch would be a hundredth of this one.
    #[test]
    fn a_window_that_begins_late_reads_its_first_second_right() {
        let mut window = Window::new(Duration::from_secs(5), ms(100_000));
        for i in 0..1000 {
            window.add(ms(100_000 + i), 0.0, 1, 0.0);
        }
        let rate = window.rate(ms(101_000));
        assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
    }
}
