//! Starts and refusals of batches on one device, against those of an independent program.

use super::*;

/// Received, earliest, latest, duration; whether it ran; when it started or was refused. All in ns.
type Case = [(u64, u64, u64, u64, bool, u64)];

/// Its weights are there and inputs take no time.
fn assert_case(case: &Case) {
    let mut actions = fresh(&[WeightsId(0)]);
    let mut answered = vec![None; case.len()];
    let mut received = 0;
    let mut running: Option<(u64, ActionId)> = None;
    while answered.iter().any(Option::is_none) {
        let arrives = case.get(received).map(|c| c.0);
        let ends = running.map(|(end, _)| end);
        let wakes = actions.next_wakeup().map(Timestamp::as_ns);
        let now = [arrives, ends, wakes].into_iter().flatten().min();
        let now = now.expect("not all are answered");
        let out = if ends == Some(now) {
            let (_, id) = running.take().expect("a batch ends");
            Executor::executed(&mut actions, at(now), id)
        } else if arrives == Some(now) {
            let id = ActionId(received as u64);
            let (_, earliest, latest, ..) = case[received];
            let window = Window {
                earliest: at(earliest),
                latest: at(latest),
            };
            let work = Work::Infer {
                model: ModelId(0),
                weights: WeightsId(0),
                members: vec![()],
            };
            let action = Action {
                id,
                work,
                window,
                starts_at: window.earliest,
                expected_end: window.latest,
            };
            received += 1;
            let mut out = Executor::receive(&mut actions, at(now), action);
            out.extend(Executor::input_ready(&mut actions, at(now), id));
            out
        } else {
            Executor::wake(&mut actions, at(now))
        };
        for command in out {
            match command {
                ActionCommand::Execute(id) => {
                    let i = id.0 as usize;
                    answered[i] = Some((true, now));
                    running = Some((now + case[i].3, id));
                }
                ActionCommand::Refuse(id, cause) => {
                    assert_eq!(cause, RefusalCause::Late);
                    answered[id.0 as usize] = Some((false, now));
                }
                _ => {}
            }
        }
    }
    let expected: Vec<_> = case.iter().map(|c| Some((c.4, c.5))).collect();
    assert_eq!(answered, expected);
}

#[test]
fn starts_and_refusals_equal_those_of_an_independent_program() {
    let cases: [&Case; 3] = [
        &[
            (965890, 2585853, 4622373, 3894326, true, 2585853),
            (3255772, 3893766, 6906109, 1791646, true, 6480179),
            (5533933, 8346101, 8480196, 1444421, true, 8346101),
            (9261238, 14424481, 15667192, 4034319, false, 34757106),
            (9674708, 14134890, 18081007, 3026392, false, 34757106),
            (10524017, 11261773, 12507058, 23495333, true, 11261773),
            (12007477, 17752257, 22381544, 6879241, false, 34757106),
            (13977889, 17568024, 20561923, 2289574, false, 34757106),
        ],
        &[
            (3400973, 4160274, 5195883, 2958776, true, 4160274),
            (5087621, 5765201, 6818937, 5382638, false, 7119050),
            (8553832, 9318083, 11882873, 21976236, true, 9318083),
        ],
        &[
            (2964292, 3948924, 6078563, 1822508, true, 3948924),
            (4041817, 9080230, 9468227, 4456909, true, 9083101),
            (6621488, 7179787, 8940867, 1903314, true, 7179787),
            (7318675, 12218382, 18081266, 21810861, false, 19436154),
            (9228724, 9267831, 13644072, 5896144, true, 13540010),
            (9701511, 14246569, 18293829, 5927029, false, 19436154),
            (10371478, 12359566, 13204156, 6870743, false, 19436154),
        ],
    ];
    cases.into_iter().for_each(assert_case);
}
