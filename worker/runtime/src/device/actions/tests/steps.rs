//! Batches whose steps are apart.

use spillgate_backend::operator::Pass;

use super::*;

pub(super) struct Steps {
    pub(super) stage: Arc<Stage>,
    pub(super) model: u32,
}

impl Prepare for Steps {
    fn prepare(self: Arc<Self>, _: usize, batch: &[Inputs]) -> Pass {
        let n = batch.len();
        self.stage.note(Seen::Prepares(self.model, n));
        let kind = self.stage.kinds[self.model as usize];
        assert!(kind != Kind::StepsPanic { before: true }, "told to");
        let input = Tensor::new(vec![n as i64], vec![0.0; n]);
        Pass::new(Some(input), move |passed| {
            assert!(kind != Kind::StepsPanic { before: false }, "told to");
            let (_, output) = passed.expect("the model ran");
            let n = output.expect("it ran well")[0].shape[0];
            (0..n).map(|_| Ok(Vec::new())).collect()
        })
    }
}

#[test]
fn inputs_are_prepared_while_another_batch_executes() {
    let bench = start(&[Kind::Steps], &[0]);
    bench.send(1, infer(0, 1));
    bench.expect([Seen::Prepares(0, 1), Seen::Runs(0, 1)]);
    bench.send(2, infer(0, 2));
    bench.expect([Seen::Prepares(0, 2)]);
    bench.stage.open();
    bench.stage.open();
    // The second executes beside the results of the first.
    let seen: Vec<Seen> = (0..5).map(|_| bench.next()).collect();
    let place = |of: Seen| seen.iter().position(|s| *s == of).expect("it happens");
    assert!(place(Seen::Ran(1, vec![Ok(vec![])])) < place(Seen::Done(1, End::Ran)));
    assert!(place(Seen::Done(1, End::Ran)) < place(Seen::Done(2, End::Ran)));
    assert!(place(Seen::Runs(0, 2)) < place(Seen::Ran(2, vec![Ok(vec![]); 2])));
}

#[test]
fn a_panic_before_or_after_the_model_fails_its_batch_alone() {
    let panics = |before| Kind::StepsPanic { before };
    let bench = start(&[panics(true), panics(false)], &[0, 1]);
    for round in 0..2 {
        let (first, second) = (2 * round, 2 * round + 1);
        bench.send(first, infer(0, 2));
        let results = vec![failed("the module panicked: told to"); 2];
        bench.expect([
            Seen::Prepares(0, 2),
            Seen::Ran(first, results.clone()),
            Seen::Done(first, End::Ran),
        ]);
        bench.send(second, infer(1, 2));
        bench.expect([
            Seen::Prepares(1, 2),
            Seen::Runs(1, 2),
            Seen::Ran(second, results),
            Seen::Done(second, End::Ran),
        ]);
    }
}

#[test]
fn a_batch_that_is_late_when_its_inputs_are_ready_is_refused() {
    let bench = start(&[Kind::Steps], &[0]);
    bench.send(1, infer(0, 1));
    bench.expect([Seen::Prepares(0, 1), Seen::Runs(0, 1)]);
    let soon = bench.clock.now() + MS;
    bench.send_in(2, infer(0, 1), Timestamp::ZERO, soon);
    bench.expect([Seen::Prepares(0, 1)]);
    bench.clock.advance(MS * 2);
    bench.stage.open();
    let seen: Vec<Seen> = (0..3).map(|_| bench.next()).collect();
    let refused = Seen::Done(2, End::Refused(RefusalCause::Late));
    assert!(seen.contains(&refused), "{seen:?}");
}
