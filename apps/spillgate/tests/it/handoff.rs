//! A device that has work does not stand still between two batches. `cargo bench -p spillgate --bench handoff` prints what that costs in
//! real time; the simulator's `--handoff` assumes as much.

use std::time::Duration;

use crate::support::chain::hand_offs;
use spillgate_process::clock::TestClock;

#[test]
fn a_device_that_has_work_does_not_stand_still() {
    for policy in ["spillgate, gate: 0", "pard"] {
        let test = TestClock::default();
        let gaps = hand_offs(policy, &test.clock(), |span| test.advance(span));
        assert!(gaps.len() >= 300, "{policy}: {}", gaps.len());
        assert_eq!(gaps.last(), Some(&Duration::ZERO), "{policy}");
    }
}
