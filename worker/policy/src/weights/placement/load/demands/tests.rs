use proptest::prelude::*;

use super::*;

const WEIGHTS: u32 = 4;
const DEVICES: u16 = 3;

/// Demand for weights, whether each device holds them, the other load of each, and the expected load of each and priority.
type Case = (f64, &'static [(bool, f64, f64)], f64);

fn assert_case((demand, devices, priority): Case) {
    let mut demands = Demands::new(devices.len() + 1, devices.len());
    let weights = WeightsId(0);
    for (i, (_, other, _)) in devices.iter().enumerate() {
        // Each device has weights of its own that make its other load.
        let own = WeightsId(i as u32 + 1);
        demands.held(own, DeviceId(i as u16));
        demands.changed(own, *other);
    }
    for (i, (holds, ..)) in devices.iter().enumerate() {
        if *holds {
            demands.held(weights, DeviceId(i as u16));
        }
    }
    demands.changed(weights, demand);
    for (i, (_, _, load)) in devices.iter().enumerate() {
        assert!((demands.load(DeviceId(i as u16)) - load).abs() < 1e-9);
    }
    assert!((demands.priority(weights, demand) - priority).abs() < 1e-9);
}

#[test]
fn priorities_and_loads_equal_those_of_an_independent_program() {
    assert_case((
        2.9804,
        &[
            (true, 1.0963, 1.433_162_362_454_546_9),
            (false, 0.0395, 0.0395),
            (true, 0.1397, 2.783_237_637_540_453),
        ],
        1.795_545_052_589_976_5,
    ));
    assert_case((1.753, &[(true, 0.0245, 1.7775)], 0.766_783_403_656_821_3));
    assert_case((1.8054, &[(false, 0.03, 0.03)], 1.8054));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Changed(f64),
    /// By that device, unless it does already; else released.
    Held(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..50u32).prop_map(|asked| Step::Changed(f64::from(asked) * 0.1)),
        (0..DEVICES).prop_map(Step::Held),
    ]
}

proptest! {
    #[test]
    fn indexes_equal_a_sort_and_loads_add_up(steps in prop::collection::vec((0..WEIGHTS, step()), 0..60)) {
        let mut demands = Demands::new(WEIGHTS as usize, usize::from(DEVICES));
        let mut slow: Vec<(f64, Vec<DeviceId>)> = vec![(0.0, Vec::new()); WEIGHTS as usize];
        for (weights, step) in steps {
            let id = WeightsId(weights);
            let (asked, holders) = &mut slow[weights as usize];
            match step {
                Step::Changed(demand) => {
                    *asked = demand;
                    demands.changed(id, demand);
                }
                Step::Held(device) => {
                    let device = DeviceId(device);
                    if let Some(i) = holders.iter().position(|h| *h == device) {
                        holders.remove(i);
                        demands.released(id, device);
                    } else {
                        holders.push(device);
                        demands.held(id, device);
                    }
                }
            }
            let models = slow.iter().enumerate().filter(|(_, (asked, _))| *asked > 0.0);
            let mut sorted: Vec<(f64, WeightsId)> = models.map(|(i, (asked, _))| (*asked, WeightsId(i as u32))).collect();
            sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
            prop_assert_eq!(demands.descending().collect::<Vec<_>>(), sorted.clone());
            let unheld = sorted.iter().map(|(_, m)| *m).filter(|m| slow[m.idx()].1.is_empty());
            prop_assert_eq!(demands.unheld().collect::<Vec<_>>(), unheld.collect::<Vec<_>>());
            let held: f64 = slow.iter().filter(|(_, holders)| !holders.is_empty()).map(|(asked, _)| asked).sum();
            let loads = (0..DEVICES).map(|d| demands.load(DeviceId(d)));
            prop_assert!((loads.clone().sum::<f64>() - held).abs() < 1e-9);
            prop_assert!(loads.into_iter().all(|load| load > -1e-9));
            for (i, (asked, holders)) in slow.iter().enumerate() {
                let id = WeightsId(i as u32);
                prop_assert_eq!(demands.holders(id), holders.as_slice());
                prop_assert_eq!(demands.demand(id), *asked);
                prop_assert!(*asked <= 0.0 || demands.priority(id, *asked) <= *asked);
            }
        }
    }
}
