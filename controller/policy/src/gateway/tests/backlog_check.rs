//! The backlog check of the first module.

use spillgate_protocol::message::BacklogCheck;

use super::*;

/// Two modules with a worker each, and a check that wants 30 ms there, 20 ms behind it and a tenth of the time that is left.
fn behind_a_check(drop: DropPolicy) -> Harness {
    let mut pipeline = noop_pipeline(SLO, &[&[0], &[1]], &[]);
    pipeline.policy.drop = drop;
    let mut harness = harness_of(pipeline, 1);
    let plan = ModulePlan {
        shape: BatchShape {
            size: 1,
            execution: MS * 30,
        },
        admits: 1.0,
        backlog_check: Some(BacklogCheck {
            execution: MS * 30,
            downstream: MS * 20,
            margin: 0.1,
        }),
        part: 1.0,
        knows_gateways: true,
        guidance: Guidance::NONE,
    };
    let controller = Address::Controller(ModuleId(1));
    harness.on(Event::Greeted(controller, LIFE));
    let plan = ToGateway::Plan(ModuleId(1), Box::new(plan));
    harness.on(Event::Message(controller, LIFE, plan));
    harness
}

/// The check counts the backlog before a request: workers serve it before waiting requests of a lower class.
#[test]
fn the_backlog_check_drops_no_request_for_those_of_a_lower_class() {
    let dropped =
        |ids: &[u64]| -> Vec<(u64, &str)> { ids.iter().map(|id| (*id, "dropped")).collect() };
    for (drop, expected) in [
        (DropPolicy::SPILLGATE, dropped(&[3, 6])),
        (DropPolicy::DEADLINE, dropped(&[3, 4, 5, 6])),
    ] {
        let mut harness = behind_a_check(drop);
        // A request must begin within 40 ms, so that two may wait.
        for (id, class) in [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1)] {
            harness.submit_of(id, class);
        }
        assert_eq!(harness.ended, expected);
    }
}

/// A frame that was long on a slow link has used some of its time without any backlog: the margin is for backlogs.
#[test]
fn the_margin_of_the_backlog_check_is_a_part_of_the_time_that_is_left() {
    // The worker is idle, so 50 ms are needed, and a tenth of what is left.
    for (used_ms, expected) in [(0, vec![]), (44, vec![]), (45, vec![(7, "dropped")])] {
        let mut harness = behind_a_check(DropPolicy::SPILLGATE);
        harness.at(used_ms);
        harness.submit_sent(7, Party::ONLY, Timestamp::ZERO);
        assert_eq!(harness.ended, expected, "{used_ms} ms were used");
    }
}
