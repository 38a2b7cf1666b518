//! Arrival times of requests, the same for every server, and the answers of a perfect server to them.

use std::fmt::Write as _;
use std::time::Duration;

/// Times of a Poisson process, in seconds; equal seeds give equal times.
pub(super) fn poisson(rate: f64, seconds: f64, seed: u64) -> Vec<f64> {
    // SplitMix64: enough for waiting times, and the same on every machine.
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / 2f64.powi(64)
    };
    let mut times = Vec::new();
    let mut now = 0.0;
    loop {
        now -= (1.0 - uniform()).max(f64::MIN_POSITIVE).ln() / rate;
        if now >= seconds {
            return times;
        }
        times.push(now);
    }
}

/// As the load client reads them.
pub(super) fn lines(times: &[f64]) -> String {
    times.iter().fold(String::new(), |mut text, time| {
        let _ = writeln!(text, "{time:.6}");
        text
    })
}

/// How many can be answered in time by two modules that take `span` each. Serving in order of arrival, without the
/// requests that would be late, is optimal here: all requests take equally long and may wait equally long.
pub(super) fn ideal(times: &[f64], span: Duration, deadline: Duration) -> usize {
    let (span, deadline) = (span.as_secs_f64(), deadline.as_secs_f64());
    let mut free = 0.0_f64;
    let mut good = 0;
    for time in times {
        let start = free.max(*time);
        // The second module takes as long as the first, so no request waits there.
        if start + 2.0 * span <= time + deadline {
            free = start + span;
            good += 1;
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_rate_and_depend_on_the_seed_only() {
        let times = poisson(100.0, 100.0, 1);
        assert!((9_600..10_400).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted() && times[0] > 0.0 && times[times.len() - 1] < 100.0);
        assert_eq!(times, poisson(100.0, 100.0, 1));
        assert_ne!(times, poisson(100.0, 100.0, 2));
        // Waiting times of a Poisson process vary as much as they are long.
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.9..1.1).contains(&(variance.sqrt() / mean)));
    }

    #[test]
    fn the_ideal_is_what_fits() {
        let ms = Duration::from_millis;
        // All at once: the n-th ends after 20 (n + 1) ms.
        assert_eq!(ideal(&[0.0; 30], ms(20), ms(200)), 9);
        assert_eq!(ideal(&[0.0, 1.0, 2.0], ms(20), ms(200)), 3);
        assert_eq!(ideal(&[0.0], ms(120), ms(200)), 0);
        let times = poisson(200.0, 60.0, 3);
        assert!((2_990..3_010).contains(&ideal(&times, ms(20), ms(200))));
    }

    #[test]
    fn times_are_written_to_the_microsecond() {
        assert_eq!(lines(&[0.5, 1.25]), "0.500000\n1.250000\n");
    }
}
