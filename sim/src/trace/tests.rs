//! What is read is what was written, what is drawn has the stated law, and what is wrong is said.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;

fn mean_and_cv(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    (mean, var.sqrt() / mean)
}

#[test]
fn a_window_is_found_by_index_and_replayed_at_its_pace() {
    let trace = parse_trace("hour,count\n3,100\n5,50\r\n6,10\n7,20.5\n").unwrap();
    assert_eq!(trace.unit, "hour");
    let window = |offset, rows, seconds_per_row| Window {
        offset,
        rows,
        seconds_per_row,
    };
    assert_eq!(
        trace.rates(window(5, 2, 2)).unwrap(),
        [25.0, 25.0, 5.0, 5.0]
    );
    assert_eq!(trace.window_from(6, 1), window(6, 2, 1));
    assert_eq!(trace.rates(trace.window_from(6, 1)).unwrap(), [10.0, 20.5]);
    for (offset, rows) in [(3, 2), (4, 1), (7, 2), (9, 1), (u64::MAX, 3)] {
        let error = trace
            .rates(window(offset, rows, 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains("inside hours 3 to 7"), "{error}");
    }
    let error = trace.rates(window(5, 0, 1)).unwrap_err().to_string();
    assert!(error.contains("no length"), "{error}");
}

#[test]
fn wrong_traces_name_the_line_and_what_is_right() {
    for (text, line, right) in [
        ("", 1, "second,rate"),
        ("time,rate\n0,1\n", 1, "second,rate"),
        ("second,rate\n", 2, "no rows"),
        ("second,rate\n0,1\n\n", 3, "one row a line"),
        ("second,rate\n0,1\n1\n", 3, "one row a line"),
        ("second,rate\n0.5,1\n", 2, "whole number"),
        ("minute,count\n0,1\n1,-3\n", 3, "a number from 0"),
        ("minute,count\n0,NaN\n", 2, "a number from 0"),
        ("minute,count\n0,1\n2,1\n2,1\n", 4, "sort the rows"),
    ] {
        let error = parse_trace(text).unwrap_err();
        assert_eq!(error.line, Some(line), "{text:?}: {error}");
        assert!(error.to_string().contains(right), "{text:?}: {error}");
    }
}

#[test]
fn arrivals_are_read_exactly() {
    let times = parse_arrivals("0\n0.0125\n0.0125\n3e1\n").unwrap();
    let ns: Vec<u64> = times.iter().map(|t| t.as_ns()).collect();
    assert_eq!(ns, [0, 12_500_000, 12_500_000, 30_000_000_000]);
    for (text, line, right) in [
        ("", 1, "no arrivals"),
        ("0.1\n\n0.2\n", 2, "a blank line"),
        ("# times\n0.1\n", 1, "a comment"),
        ("0.1\nsoon\n", 2, "seconds from 0"),
        ("0.1\n-0.2\n", 2, "seconds from 0"),
        ("inf\n", 1, "seconds from 0"),
        ("0.2\n0.1\n", 2, "sort the times"),
    ] {
        let error = parse_arrivals(text).unwrap_err();
        assert_eq!(error.line, Some(line), "{text:?}: {error}");
        assert!(error.to_string().contains(right), "{text:?}: {error}");
    }
}

#[test]
fn scaling_keeps_the_shape() {
    assert_eq!(scaled(&[1.0, 3.0], 20.0).unwrap(), [10.0, 30.0]);
    assert!(scaled(&[0.0, 0.0], 20.0).is_err());
    assert!(scaled(&[], 20.0).is_err());
    assert!(scaled(&[1.0], 0.0).is_err());
    assert!(scaled(&[1.0], f64::NAN).is_err());
}

#[test]
fn poisson_arrivals_have_the_rate_of_their_second() {
    let rates: Vec<f64> = (0..3000).map(|s| [0.0, 50.0, 200.0][s % 3]).collect();
    let times = poisson_arrivals(&rates, &mut ChaCha8Rng::seed_from_u64(3));
    assert!(times.is_sorted());
    let mut counts = vec![0.0; 3000];
    let mut inside = 0.0;
    for t in &times {
        counts[(t.as_ns() / 1_000_000_000) as usize] += 1.0;
        inside += t.as_secs_f64().fract();
    }
    for (phase, rate) in [(0, 0.0), (1, 50.0), (2, 200.0)] {
        let of_phase: Vec<f64> = counts.iter().skip(phase).step_by(3).copied().collect();
        let (mean, cv) = mean_and_cv(&of_phase);
        if rate == 0.0 {
            assert_eq!(mean, 0.0);
            continue;
        }
        // The mean of 1000 Poisson counts, within 5 of its standard deviations; variance = mean.
        assert!((mean - rate).abs() < 5.0 * (rate / 1000.0).sqrt(), "{mean}");
        assert!(((cv * mean).powi(2) / rate - 1.0).abs() < 0.25, "{cv}");
    }
    assert!(
        (inside / times.len() as f64 - 0.5).abs() < 0.01,
        "uniform inside a second"
    );
    let again = poisson_arrivals(&rates, &mut ChaCha8Rng::seed_from_u64(3));
    assert_eq!(times, again);
}

#[test]
fn a_bursty_trace_has_the_stated_burstiness() {
    for (cv, burst) in [(0.2, 1.0), (0.6, 10.0), (1.0, 30.0)] {
        let bursty = Bursty {
            mean: 500.0,
            cv,
            burst,
            seconds: 60_000,
        };
        let rates = bursty.rates(&mut ChaCha8Rng::seed_from_u64(1));
        let (mean, seen) = mean_and_cv(&rates);
        assert!((mean - 500.0).abs() < 1e-6);
        assert!((seen / cv - 1.0).abs() < 0.15, "CV {seen} for {cv}");
        let logs: Vec<f64> = rates.iter().map(|r| r.ln()).collect();
        let center = logs.iter().sum::<f64>() / logs.len() as f64;
        let lag = burst as usize;
        let product = |lag: usize| {
            let pairs = logs.iter().zip(&logs[lag..]);
            pairs.map(|(a, b)| (a - center) * (b - center)).sum::<f64>()
        };
        let correlation = product(lag) / product(0);
        assert!(
            (correlation - (-1f64).exp()).abs() < 0.1,
            "{correlation} after {lag} s"
        );
    }
    let constant = Bursty {
        mean: 5.0,
        cv: 0.0,
        burst: 0.0,
        seconds: 3,
    };
    assert_eq!(constant.rates(&mut ChaCha8Rng::seed_from_u64(1)), [5.0; 3]);
}

#[test]
fn reference_windows_are_300_seconds() {
    for reference in REFERENCE_WINDOWS {
        let window = reference.window;
        assert_eq!(window.rows * u64::from(window.seconds_per_row), 300);
        assert!(reference.file.starts_with(reference.trace));
    }
}
