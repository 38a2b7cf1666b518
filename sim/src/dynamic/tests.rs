use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::distribution::BatchForm;
use spillgate_recipes::schedulers;

use super::*;

fn instance(workload: &Workload, seed: u64) -> Instance {
    workload
        .instance(&mut ChaCha8Rng::seed_from_u64(seed))
        .unwrap()
}

/// Mean finish rate over seeds.
fn finish_rate(workload: &Workload, seeds: u64, name: SchedulePolicy) -> f64 {
    let rates = (0..seeds).map(|seed| run(&instance(workload, seed), name).unwrap().finish_rate);
    rates.sum::<f64>() / seeds as f64
}

fn static_model(slo: f64, requests: usize) -> Workload {
    let mode = Mode {
        mean_ms: 50.0,
        deviation_ms: 0.0,
        weight: 1.0,
        shape: Shape::Normal,
    };
    Workload {
        modes: vec![mode],
        ..Workload::reference(slo, requests)
    }
}

/// The figures of an independent reading of the paper, and of our rule there; `cargo run --release --example
/// dynamic_table` has the longer run of it.
#[test]
fn the_reference_workload_gives_the_reference_figures() {
    let slos = [1.5, 2.0, 3.0, 4.0, 5.0];
    let orloj = [0.61, 0.72, 0.82, 0.88, 0.92];
    let goodput = [0.65, 0.76, 0.85, 0.91, 0.94];
    let (mut sum, mut shared) = (0.0, 0.0);
    for ((slo, orloj), goodput) in slos.into_iter().zip(orloj).zip(goodput) {
        let workload = Workload::reference(slo, 4_000);
        let got = finish_rate(&workload, 3, SchedulePolicy::ORLOJ);
        assert!(
            (got - orloj).abs() <= 0.02,
            "orloj at {slo}: {got}, not {orloj}"
        );
        let ours = finish_rate(&workload, 3, SchedulePolicy::GOODPUT);
        assert!(
            ours >= goodput - 0.01,
            "goodput at {slo}: {ours}, not {goodput}"
        );
        sum += (ours - got) / 5.0;
        shared += (ours - finish_rate(&workload, 3, schedulers::ORLOJ_SHARED)) / 5.0;
    }
    assert!(sum >= 0.025 && shared >= 0.05, "{sum} {shared}");
}

#[test]
fn a_static_model_is_served_as_well_as_by_clockwork() {
    for slo in [1.5, 2.0, 3.0, 4.0, 5.0] {
        let workload = static_model(slo, 2_000);
        let clockwork = finish_rate(&workload, 2, SchedulePolicy::CLOCKWORK);
        for name in [
            SchedulePolicy::GOODPUT,
            SchedulePolicy::ORLOJ,
            SchedulePolicy::EDF,
        ] {
            let got = finish_rate(&workload, 2, name);
            assert!(
                got >= clockwork - 0.01,
                "{name} at {slo}: {got}, {clockwork}"
            );
        }
    }
}

#[test]
fn nobody_beats_the_clairvoyant_and_runs_repeat() {
    for slo in [1.5, 4.0] {
        let instance = instance(&Workload::reference(slo, 400), 7);
        let mark = clairvoyant(&instance);
        assert_eq!(mark, clairvoyant(&instance));
        assert!(mark.utilisation <= 1.0 && mark.batch_mean >= 1.0);
        for name in schedulers::ALL {
            let finish = run(&instance, name).unwrap();
            assert_eq!(finish, run(&instance, name).unwrap());
            assert!(finish.finish_rate <= mark.finish_rate, "{name} at {slo}");
            assert!(finish.utilisation <= 1.0);
            let mean: f64 = finish.by_application.iter().sum::<f64>() / 2.0;
            // Half of the requests each, about.
            assert!((mean - finish.finish_rate).abs() < 0.05);
        }
    }
}

#[test]
fn little_to_serve_is_served_by_all() {
    let workload = Workload {
        load: 0.05,
        ..Workload::reference(5.0, 300)
    };
    for name in schedulers::ALL {
        let finish = run(&instance(&workload, 1), name).unwrap();
        // Even then one action in fifty comes behind an overrun under `clockwork-mean`.
        assert!(finish.finish_rate > 0.97, "{name}: {finish:?}");
    }
    assert_eq!(clairvoyant(&instance(&workload, 1)).finish_rate, 1.0);
}

#[test]
fn nothing_to_serve_is_no_error() {
    let time = BatchTime::new(BatchForm::Padded, 1.0, 1.0, 0.0).unwrap();
    let empty = Instance::new(time, vec![1], Duration::from_millis(5));
    for name in schedulers::ALL {
        assert_eq!(run(&empty, name).unwrap(), Finish::default());
    }
    assert_eq!(clairvoyant(&empty), Finish::default());
}

/// Twelve milliseconds for a batch of two: the second of them is late.
#[test]
fn a_batch_takes_what_its_longest_member_makes_it() {
    let time = BatchTime::new(BatchForm::Padded, 2.0, 0.5, 0.0).unwrap();
    let mut instance = Instance::new(time, vec![2], Duration::from_millis(13));
    let job = |ms: u64, length_ms| Job {
        at: Timestamp::from_ns(ms * 1_000_000),
        application: Application(0),
        length_ms,
    };
    instance.jobs = vec![job(0, 5.0), job(3, 10.0), job(3, 4.0)];
    instance.history = vec![(Application(0), 4.0); 20];
    let finish = run(&instance, SchedulePolicy::STATIC).unwrap();
    // 0 to 7 ms alone, then 7 to 19 ms both that came at 3 and had until 16.
    assert!((finish.finish_rate - 1.0 / 3.0).abs() < 1e-12);
    assert_eq!(finish.batch_mean, 1.5);
    assert_eq!(finish.utilisation, 1.0);
}

/// Lengths grow tenfold in the middle of a run: with samples of what was served, the scheduler follows.
#[test]
fn a_model_that_becomes_ten_times_as_slow_is_still_served() {
    let workload = Workload {
        load: 0.3,
        ..Workload::reference(3.0, 2_000)
    };
    let mut instance = instance(&workload, 3);
    let middle = instance.jobs[1_000].at;
    instance
        .jobs
        .retain(|job| job.at < middle || job.at.as_ns() % 3 == 0);
    for job in &mut instance.jobs {
        if job.at >= middle {
            job.length_ms *= 10.0;
        }
    }
    instance.slo = Duration::from_millis(900);
    instance.sample_every = 1;
    let finish = run(&instance, SchedulePolicy::GOODPUT).unwrap();
    assert!(finish.finish_rate > 0.9, "{finish:?}");
}

#[test]
fn a_burst_brings_its_share_of_the_requests() {
    let workload = Workload::reference(3.0, 0);
    let mut rates = vec![1.0; 200];
    rates[100..120].fill(11.0);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let instance = workload.instance_at(&rates, &mut rng).unwrap();
    // 200 s at 1.5 times what single requests of 55 ms would take.
    let all = instance.jobs.len() as f64;
    assert!((all / (200.0 * 1.5 / 0.055) - 1.0).abs() < 0.05, "{all}");
    let seconds = |job: &&Job| (100.0..120.0).contains(&job.at.as_secs_f64());
    let burst = instance.jobs.iter().filter(seconds).count() as f64;
    assert!((burst / all - 0.55).abs() < 0.03, "{burst} of {all}");
    let refused = workload.instance_at(&[0.0; 9], &mut rng).unwrap_err();
    assert!(matches!(refused, WorkloadError::Rates(_)));
}

#[test]
fn a_workload_that_is_none_is_refused() {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let reference = || Workload::reference(2.0, 10);
    let wrong = [
        Workload {
            modes: vec![],
            ..reference()
        },
        Workload {
            load: 0.0,
            ..reference()
        },
        Workload {
            slo: f64::NAN,
            ..reference()
        },
        Workload {
            least_ms: 30.0,
            ..reference()
        },
    ];
    for workload in wrong {
        assert_eq!(
            workload.instance(&mut rng).unwrap_err(),
            WorkloadError::Numbers
        );
    }
    let workload = Workload {
        fixed_share: f64::NAN,
        ..reference()
    };
    assert!(matches!(
        workload.instance(&mut rng),
        Err(WorkloadError::Time(_))
    ));
}
