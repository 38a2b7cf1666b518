use std::time::Duration;

use spillgate_pipeline::testing::noop_pipeline;

use super::*;

const SLO: Duration = Duration::from_millis(100);

fn request(id: u64) -> Request {
    Request {
        id: RequestId(id),
        sent_at: Timestamp::ZERO,
        deadline: Timestamp::ZERO + SLO,
        application: spillgate_pipeline::schedule::Application::default(),
        client: Default::default(),
        decoding_us: 0,
    }
}

fn controller(pipeline: &Pipeline, module: u16, workers: &[WorkerId]) -> ModuleController {
    let n = pipeline.modules.len();
    let planned = Planned {
        batch: vec![4; n],
        execution: vec![vec![Duration::from_millis(10); 4]; n].into(),
        workers: vec![1; n],
        alone: false,
    };
    let pipeline = Arc::new(pipeline.clone());
    ModuleController::new(&pipeline, ModuleId(module), &Arc::new(planned), workers, 1)
}

/// What the controller says to an event, as text: commands carry what cannot be compared.
fn on(controller: &mut ModuleController, event: Event<'_>) -> Vec<String> {
    let mut out = Vec::new();
    controller.on_event(Timestamp::ZERO, event, &mut out);
    out.iter().map(said).collect()
}

fn said(command: &Command) -> String {
    format!("{command:?}")
}

fn branch(from: u16, present: bool, condition: Option<bool>) -> Event<'static> {
    Event::Branch {
        request: request(1),
        from: ModuleId(from),
        present,
        condition,
    }
}

#[test]
fn a_join_waits_for_both_branches() {
    let diamond = noop_pipeline(SLO, &[&[0], &[1], &[1], &[2, 3]], &[]);
    let mut join = controller(&diamond, 4, &[WorkerId(9)]);
    assert!(on(&mut join, branch(2, true, None)).is_empty());
    let sent = Command::Send {
        request: request(1),
        worker: WorkerId(9),
    };
    assert_eq!(on(&mut join, branch(3, true, None)), [said(&sent)]);
}

#[test]
fn a_condition_decides_and_a_skip_travels_on() {
    let chain = noop_pipeline(SLO, &[&[0], &[0], &[2]], &[None, Some(1)]);
    let mut conditional = controller(&chain, 2, &[WorkerId(0)]);
    assert!(on(&mut conditional, branch(0, true, None)).is_empty());
    assert_eq!(
        on(&mut conditional, branch(1, true, Some(false))),
        [said(&Command::Skip(request(1)))]
    );
    let mut after = controller(&chain, 3, &[WorkerId(1)]);
    assert_eq!(
        on(&mut after, branch(2, false, None)),
        [said(&Command::Skip(request(1)))]
    );
}

#[test]
fn a_dead_worker_fails_what_it_had_and_gets_no_more() {
    let chain = noop_pipeline(SLO, &[&[0]], &[]);
    let mut module = controller(&chain, 1, &[WorkerId(0)]);
    on(&mut module, branch(0, true, None));
    assert_eq!(
        on(&mut module, Event::WorkerDown(WorkerId(0))),
        [said(&Command::Fail(RequestId(1)))]
    );
    let dropped = Command::Drop {
        request: RequestId(1),
        reason: DropReason::NoWorker,
        estimate: None,
    };
    assert_eq!(on(&mut module, branch(0, true, None)), [said(&dropped)]);
}

#[test]
fn a_forgotten_request_is_cancelled_where_it_is() {
    let chain = noop_pipeline(SLO, &[&[0]], &[]);
    let mut module = controller(&chain, 1, &[WorkerId(0)]);
    on(&mut module, branch(0, true, None));
    let cancel = Command::CancelAt {
        request: RequestId(1),
        worker: WorkerId(0),
    };
    assert_eq!(
        on(&mut module, Event::Forget(RequestId(1))),
        [said(&cancel)]
    );
    assert!(on(&mut module, Event::Forget(RequestId(1))).is_empty());
}
