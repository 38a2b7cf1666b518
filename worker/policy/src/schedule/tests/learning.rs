//! What is learnt while requests are served: how slow the device is, lengths that change, what batches take.

use super::*;
use spillgate_recipes::schedulers;

/// A scheduler for batches that take half of their longest and half of their sum.
fn sharing_half(name: SchedulePolicy) -> Scheduler {
    let mut config = config(name);
    config.time = BatchTime::new(BatchForm::Shrinking, 0.0, 0.5, 0.5).unwrap();
    Scheduler::new(config).unwrap()
}

#[test]
fn a_device_ten_times_as_slow_is_noticed_and_requests_are_answered() {
    for name in schedulers::ALL {
        let mut scheduler = taught(name);
        let mut now = 1.0;
        let before = scheduler.execution(1);
        for id in 0..40 {
            scheduler.insert(at(now), pending(id, 0, now, 3e3)).unwrap();
            let (batch, gone) = next(&mut scheduler, now);
            assert!(batch.is_some() || !gone.is_empty(), "{name}");
            if let Some(batch) = batch {
                // 45 ms as profiled.
                let took = Duration::from_millis(450);
                scheduler.executed(at(now), batch.size, (batch.expected, batch.lengths), took);
            }
            now += 500.0;
        }
        let adapts = !matches!(name, SchedulePolicy::CLOCKWORK | schedulers::CLOCKWORK_MEAN);
        if adapts {
            let ratio = scheduler.execution(1).div_duration_f64(before);
            assert!(ratio > 4.0 && ratio < 20.0, "{name}: {ratio}");
        }
    }
}

#[test]
fn a_jump_of_lengths_is_told_and_followed() {
    let mut scheduler = taught(SchedulePolicy::GOODPUT);
    let mut jumps = 0;
    for i in 0..40 {
        let length = 200.0 * (0.5 + f64::from(i % 10) / 10.0);
        let learnt = scheduler
            .learn(at(f64::from(i)), Application(0), length)
            .unwrap();
        jumps += usize::from(learnt != Learnt::Added);
    }
    assert_eq!(jumps, 1);
    scheduler
        .insert(at(50.0), pending(0, 0, 50.0, 900.0))
        .unwrap();
    let expected = next(&mut scheduler, 50.0).0.unwrap().expected;
    assert!(expected > Duration::from_millis(75), "{expected:?}");
}

#[test]
fn a_prior_far_off_does_not_scale_what_is_learnt() {
    let mut scheduler = sharing_half(SchedulePolicy::GOODPUT);
    // 50 ms by the profile, 5 ms in truth, alone in its batch each time.
    let took = Duration::from_millis(5);
    for id in 0..40 {
        let now = 1.0 + 100.0 * id as f64;
        scheduler
            .insert(at(now), pending(id, 0, now, 90.0))
            .unwrap();
        let batch = next(&mut scheduler, now).0.unwrap();
        if id >= 10 {
            let expected = batch.expected.as_secs_f64() * 1e3;
            assert!((expected - 5.0).abs() < 0.1, "{id}: {expected}");
        }
        scheduler.executed(at(now), batch.size, (batch.expected, batch.lengths), took);
        let length = scheduler.length_ms(took);
        scheduler.learn(at(now), Application(0), length).unwrap();
    }
    let expected = scheduler.execution(1).as_secs_f64() * 1e3;
    assert!((expected - 5.0).abs() < 0.1, "{expected}");
}

#[test]
fn requests_that_take_no_time_are_served() {
    for name in schedulers::ALL {
        let mut scheduler = sharing_half(name);
        for id in 0..60 {
            let now = 1.0 + id as f64;
            scheduler
                .insert(at(now), pending(id, 0, now, 900.0))
                .unwrap();
            let batch = next(&mut scheduler, now).0;
            let batch = batch.unwrap_or_else(|| panic!("{name}: {id} waits"));
            scheduler.executed(
                at(now),
                batch.size,
                (batch.expected, batch.lengths),
                Duration::ZERO,
            );
            scheduler.learn(at(now), Application(0), 0.0).unwrap();
        }
    }
}

/// Whatever the law: what a batch of one is expected to take alone is summed up in two ways that differ by a hair.
#[test]
fn batches_of_one_tell_how_long_a_busy_device_takes() {
    for width in 1..12u32 {
        let mut scheduler = sharing_half(SchedulePolicy::GOODPUT);
        let mut lengths = 0.0;
        for i in 0..300u32 {
            let length = 20.0 + 3.0 * f64::from(i * i % 97 % width);
            lengths += length / 300.0;
            scheduler.learn(at(1.0), Application(0), length).unwrap();
        }
        for id in 0..300 {
            let now = 10.0 + 100.0 * id as f64;
            scheduler
                .insert(at(now), pending(id, 0, now, 90.0))
                .unwrap();
            let batch = next(&mut scheduler, now).0.unwrap();
            let took = Duration::from_secs_f64(0.7e-3 * lengths);
            scheduler.executed(at(now), batch.size, (batch.expected, batch.lengths), took);
        }
        let ratio = scheduler.execution(1).as_secs_f64() * 1e3 / lengths;
        assert!((ratio - 0.7).abs() < 0.05, "{width}: {ratio}");
    }
}
