use proptest::prelude::*;

use super::*;

const MODELS: u32 = 4;
const DEVICES: u16 = 2;
const PAGES: [u32; 3] = [1, 2, 0];
/// Two models run with the same weights.
const WEIGHTS_OF: [WeightsId; MODELS as usize] =
    [WeightsId(0), WeightsId(1), WeightsId(1), WeightsId(2)];

fn second(s: f64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs_f64(s)
}

fn fresh() -> Rates {
    let transfers = PAGES.map(|pages| (pages, Duration::from_millis(3 + u64::from(pages))));
    let neighbours = vec![Vec::new(); MODELS as usize];
    Rates::new(
        &WEIGHTS_OF,
        neighbours,
        transfers.into_iter(),
        usize::from(DEVICES),
    )
}

/// Requests a second from all arrivals there were.
fn slow(now: Timestamp, arrivals: &[Timestamp]) -> f64 {
    let each = arrivals
        .iter()
        .map(|at| (-now.since(*at).as_secs_f64() / 7.0).exp());
    each.sum::<f64>() / 7.0
}

#[test]
fn a_rate_fades_by_e_in_seven_seconds() {
    let mut rates = fresh();
    rates.arrived(second(1.0), ModelId(0));
    assert!((rates.rate(second(1.0), ModelId(0)) - 1.0 / 7.0).abs() < 1e-12);
    let faded = rates.rate(second(8.0), ModelId(0));
    assert!((faded - (-1.0_f64).exp() / 7.0).abs() < 1e-12);
}

#[test]
fn a_request_counts_a_tenth_for_neighbours_with_other_weights() {
    let neighbours = vec![
        vec![ModelId(1), ModelId(3)],
        vec![ModelId(2)],
        vec![],
        vec![],
    ];
    let transfers = PAGES.map(|pages| (pages, Duration::from_millis(3)));
    let mut rates = Rates::new(&WEIGHTS_OF, neighbours, transfers.into_iter(), 1);
    assert_eq!(
        rates.ahead().collect::<Vec<_>>(),
        [WeightsId(1), WeightsId(2)]
    );
    rates.arrived(second(1.0), ModelId(0));
    rates.arrived(second(1.0), ModelId(1));
    let all = [0, 1, 2, 3].map(|m| rates.rate(second(1.0), ModelId(m)) * 7.0);
    for (got, exact) in all.into_iter().zip([1.0, 1.1, 0.0, 0.1]) {
        assert!((got - exact).abs() < 1e-12, "{all:?}");
    }
}

proptest! {
    /// Steps of up to ten minutes pass the moment of rescaling several times; the longest one lets any count overflow.
    #[test]
    fn rates_and_their_order_equal_sums_over_all_arrivals(
        steps in prop::collection::vec((0..MODELS, prop_oneof![8 => 0.0..5.0f64, 2 => 0.0..600.0f64, 1 => Just(9e3)], 0..6u16), 0..60),
    ) {
        let mut rates = fresh();
        let mut arrivals: Vec<Vec<Timestamp>> = vec![Vec::new(); MODELS as usize];
        let mut held: Vec<Vec<WeightsId>> = vec![Vec::new(); usize::from(DEVICES)];
        let mut now = Timestamp::ZERO;
        for (model, passes, kind) in steps {
            now = now + Duration::from_secs_f64(passes);
            let model = ModelId(model);
            if kind < DEVICES {
                let weights = WEIGHTS_OF[model.idx()];
                let there = &mut held[usize::from(kind)];
                if let Some(i) = there.iter().position(|w| *w == weights) {
                    there.remove(i);
                    rates.released(weights, DeviceId(kind));
                } else {
                    there.push(weights);
                    rates.held(weights, DeviceId(kind));
                }
            } else {
                arrivals[model.idx()].push(now);
                rates.arrived(now, model);
            }
            let worth = |weights: WeightsId| {
                let pages = PAGES[weights.idx()];
                let transfer = 0.003 + 0.001 * f64::from(pages);
                let with = arrivals.iter().zip(WEIGHTS_OF).filter(|(_, of)| *of == weights);
                let rate: f64 = with.map(|(arrivals, _)| slow(now, arrivals)).sum();
                rate * transfer / f64::from(pages.max(1))
            };
            for model in (0..MODELS).map(ModelId) {
                let exact = slow(now, &arrivals[model.idx()]);
                prop_assert!((rates.rate(now, model) - exact).abs() <= 1e-9 * exact + 1e-90);
            }
            for (device, there) in held.iter().enumerate() {
                let least: Vec<WeightsId> = rates.least(DeviceId(device as u16)).collect();
                prop_assert_eq!(least.len(), there.len());
                prop_assert!(there.iter().all(|m| least.contains(m)));
                let is_ordered = least.is_sorted_by(|a, b| worth(*a) <= worth(*b) * (1.0 + 1e-9) + 1e-90);
                prop_assert!(is_ordered);
            }
        }
    }
}
