use super::*;
use crate::weights::placement::queues::Waiting;
use crate::weights::placement::{DeviceSpec, Model, PlacementConfig, PlacementPolicy, Weights};
use spillgate_pipeline::id::RequestId;
use std::time::Duration;

/// Whether the device holds the model, its estimates by size, and the deadlines of its requests. In ns.
type Offer<'a> = (bool, &'a [u64], &'a [u64]);
/// Model, size, position of the first request, required start in ns.
type Choice = (u32, u32, usize, u64);

const SIZES: [u32; 5] = [1, 2, 4, 8, 16];

fn placement(offers: &[Offer<'_>]) -> Placement {
    let weights = Weights {
        pages: 1,
        load: Duration::from_millis(8),
    };
    let models = (0..).zip(offers).map(|(i, (_, estimates, _))| Model {
        weights: WeightsId(i),
        neighbours: Vec::new(),
        execution: estimates
            .iter()
            .copied()
            .map(Duration::from_nanos)
            .collect(),
        input: Duration::ZERO,
    });
    let resident = offers.iter().enumerate().filter(|(_, (held, ..))| *held);
    let device = DeviceSpec {
        pages: offers.len() as u32,
        resident: resident.map(|(i, _)| WeightsId(i as u32)).collect(),
    };
    let config = PlacementConfig {
        sizes: SIZES.to_vec(),
        weights: vec![weights; offers.len()],
        models: models.collect(),
        devices: vec![device],
        travel: Duration::ZERO,
        is_fair: false,
        background_time: Duration::MAX,
    };
    let mut placement = Placement::new(PlacementPolicy::CLOCKWORK, config);
    for (i, (_, _, deadlines)) in offers.iter().enumerate() {
        for deadline in *deadlines {
            let waiting = Waiting {
                id: RequestId(0),
                deadline: Timestamp::from_ns(*deadline),
                kept_free: Duration::ZERO,
                slo: Duration::from_millis(100),
            };
            placement.queues.push(ModelId(i as u32), waiting);
        }
        placement.requeued(ModelId(i as u32));
    }
    placement
}

fn view(placement: &Placement, free: u64) -> View<'_> {
    let free = Timestamp::from_ns(free);
    View {
        device: &placement.devices[0],
        arrival: free,
        free,
    }
}

fn by_required_start(free: u64, offers: &[Offer<'_>]) -> Option<Choice> {
    let placement = placement(offers);
    let chosen = placement.by_required_start(view(&placement, free))?;
    let strategy = placement.strategy(view(&placement, free), chosen.model)?;
    assert_eq!(strategy.chosen, chosen);
    Some(plain(&strategy))
}

/// Without what is expected to come meanwhile.
fn by_moore_hodgson(free: u64, offers: &[Offer<'_>]) -> Option<Choice> {
    let placement = placement(offers);
    let view = view(&placement, free);
    let ready = view.device.ready();
    let mut strategies: Vec<Strategy> = ready
        .filter_map(|(_, model)| placement.strategy(view, model))
        .collect();
    strategies.sort_unstable_by_key(|s| (s.required_start, s.chosen.model));
    let jobs = strategies.iter().map(|s| Job {
        latest: s.required_start.as_ns() as f64,
        takes: placement.estimate(s.chosen.model, s.chosen.at).as_nanos() as f64,
        gains: f64::from(SIZES[s.chosen.at]),
    });
    let jobs: Vec<Job> = jobs.collect();
    let kept = most_in_time(free as f64, &jobs, 1.0);
    kept.first.map(|first| plain(&strategies[first]))
}

fn plain(strategy: &Strategy) -> Choice {
    let Chosen {
        model, at, first, ..
    } = strategy.chosen;
    (model.0, SIZES[at], first, strategy.required_start.as_ns())
}

#[test]
fn choices_equal_those_of_an_independent_program() {
    let offers: [Offer<'_>; 2] = [
        (
            true,
            &[12_310_000, 16_230_000, 25_790_000, 44_650_000, 78_170_000],
            &[
                108_944_806,
                109_230_736,
                123_001_085,
                132_763_979,
                141_843_562,
                142_418_403,
                150_451_836,
                171_648_692,
                174_121_195,
                195_949_334,
                196_648_275,
                200_402_163,
                201_238_772,
            ],
        ),
        (
            true,
            &[6_840_000, 8_450_000, 11_950_000, 18_300_000, 31_030_000],
            &[
                118_727_141,
                123_648_773,
                124_165_323,
                142_574_293,
                143_086_321,
                147_048_483,
                153_783_277,
                155_170_810,
                168_326_336,
                171_700_124,
                180_181_768,
                184_209_845,
                184_482_989,
                195_641_163,
                196_869_576,
                200_576_782,
            ],
        ),
    ];
    let free = 108_572_398;
    assert_eq!(
        by_required_start(free, &offers),
        Some((0, 4, 4, 116_053_562))
    );
    assert_eq!(
        by_moore_hodgson(free, &offers),
        Some((1, 8, 3, 124_274_293))
    );
}

#[test]
fn a_model_that_is_not_there_offers_nothing() {
    let offers: [Offer<'_>; 2] = [(false, &[10, 20], &[100]), (true, &[10, 20], &[105])];
    assert_eq!(by_required_start(50, &offers), Some((1, 1, 0, 95)));
    assert_eq!(by_required_start(96, &offers), None);
}

#[test]
fn the_model_of_the_first_request_in_time_runs_next() {
    // The first request of model 0 is too late; of the others, that of model 1 is the first.
    let offers: [Offer<'_>; 2] = [(true, &[10, 18], &[55, 90, 95]), (true, &[20, 30], &[80])];
    let placement = placement(&offers);
    let chosen = placement.by_deadline(view(&placement, 50));
    assert_eq!(
        chosen.map(|c| (c.model, c.at, c.first)),
        Some((ModelId(1), 0, 0))
    );
    let chosen = placement.by_deadline(view(&placement, 61));
    assert_eq!(
        chosen.map(|c| (c.model, c.at, c.first)),
        Some((ModelId(0), 1, 1))
    );
}
