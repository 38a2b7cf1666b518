mod ends;
mod steps;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use spillgate_backend::operator::{Inputs, Operator, OperatorError, Outputs, Prepare};
use spillgate_backend::{Input, Output};
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::action::{RefusalCause, Window, Work};
use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_process::clock::{Signal, TestClock};
use spillgate_process::job::Failure;
use spillgate_process::value::Tensor;

use super::*;
use crate::device::{Models, ModelsConfig, WorkerModels};
use crate::timer::TimerThread;
use crate::weights::Loader;

const WORKER: WorkerId = WorkerId(0);
const SOON: Duration = Duration::from_secs(20);
const MS: Duration = Duration::from_millis(1);

/// What happened, in order.
#[derive(Debug, PartialEq)]
enum Seen {
    /// Weights are being read.
    Reads(u32),
    /// The inputs of a batch of that many are prepared.
    Prepares(u32, usize),
    /// A batch of that many runs.
    Runs(u32, usize),
    /// The same, as another variant than the first.
    RunsAs(u32, usize, usize),
    /// The operator of weights is gone; the name of the thread.
    Gone(u32, String),
    Ran(u64, Vec<Ran>),
    Done(u64, End),
}

#[derive(Debug, PartialEq)]
enum End {
    Ran,
    Refused(RefusalCause),
    Failed(String),
}

/// How a model behaves.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Sound,
    /// It is read when the test lets it.
    ReadsAtGate,
    /// It runs when the test lets it.
    RunsAtGate,
    Unreadable,
    PanicsReading,
    PanicsRunning,
    PanicsGoing,
    AnswersTooFew,
    /// Its second request fails.
    FailsOne,
    /// Its steps are apart, and the model runs when the test lets it.
    Steps,
    /// The same, but it panics in the step before or after.
    StepsPanic {
        before: bool,
    },
}

/// What the fakes share with the test.
struct Stage {
    kinds: Vec<Kind>,
    seen: Mutex<Sender<Seen>>,
    /// How many of those that wait at the gate may go on.
    passes: Mutex<usize>,
    opened: Signal,
}

impl Stage {
    fn note(&self, seen: Seen) {
        let _ = self.seen.lock().send(seen);
    }

    /// Lets one that waits at the gate go on, now or later.
    fn open(&self) {
        *self.passes.lock() += 1;
        self.opened.notify_one();
    }

    fn wait(&self) {
        let mut passes = self.passes.lock();
        while *passes == 0 {
            self.opened.wait(&mut passes);
        }
        *passes -= 1;
    }
}

struct Fake {
    stage: Arc<Stage>,
    model: u32,
}

impl Operator for Fake {
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        self.stage.note(match variant {
            0 => Seen::Runs(self.model, batch.len()),
            _ => Seen::RunsAs(self.model, variant, batch.len()),
        });
        let mut results: Vec<_> = batch.iter().map(|_| Ok(Vec::new())).collect();
        match self.stage.kinds[self.model as usize] {
            Kind::RunsAtGate => self.stage.wait(),
            Kind::PanicsRunning => panic!("told to"),
            Kind::AnswersTooFew => results.truncate(1),
            Kind::FailsOne => results[1] = Err(OperatorError::Other("no picture".to_owned())),
            _ => {}
        }
        results
    }

    fn example(&self, _: usize) -> Inputs {
        Vec::new()
    }

    fn preparation(&self) -> Option<Arc<dyn Prepare>> {
        let (stage, model) = (self.stage.clone(), self.model);
        let has_steps = matches!(
            stage.kinds[model as usize],
            Kind::Steps | Kind::StepsPanic { .. }
        );
        has_steps.then(|| Arc::new(steps::Steps { stage, model }) as Arc<dyn Prepare>)
    }

    fn forward(&mut self, _: usize, input: &Input) -> Result<Output, OperatorError> {
        let n = input.tensor.shape[0] as usize;
        self.stage.note(Seen::Runs(self.model, n));
        if self.stage.kinds[self.model as usize] == Kind::Steps {
            self.stage.wait();
        }
        Ok(Output::Host(vec![input.tensor.clone()]))
    }
}

impl std::ops::Drop for Fake {
    fn drop(&mut self) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default().to_owned();
        let panics = self.stage.kinds[self.model as usize] == Kind::PanicsGoing;
        let is_unloaded = name.starts_with("load ");
        self.stage.note(Seen::Gone(self.model, name));
        assert!(!panics || !is_unloaded, "told to");
    }
}

struct FakeLoader(Arc<Stage>);

impl Loader for FakeLoader {
    fn load(&mut self, weights: WeightsId, _: bool) -> Result<Box<dyn Operator>, OperatorError> {
        let stage = &self.0;
        stage.note(Seen::Reads(weights.0));
        match stage.kinds[weights.idx()] {
            Kind::ReadsAtGate => stage.wait(),
            Kind::Unreadable => return Err(OperatorError::Other("its file is cut".to_owned())),
            Kind::PanicsReading => panic!("told to"),
            _ => {}
        }
        Ok(Box::new(Fake {
            stage: stage.clone(),
            model: weights.0,
        }))
    }
}

struct Upstream(Arc<Stage>);

impl Reports for Upstream {
    fn ran(&self, batch: RanBatch) {
        assert_eq!(batch.results.len(), batch.members.len());
        assert!(batch.started_at <= batch.ended_at);
        self.0.note(Seen::Ran(batch.id.0, batch.results));
    }

    fn done(&self, _: DeviceId, done: Done) {
        let end = match done.ended {
            Ended::Ran { .. } => End::Ran,
            Ended::Refused(cause) => End::Refused(cause),
            Ended::Failed(why) => End::Failed(why.to_string()),
        };
        self.0.note(Seen::Done(done.id.0, end));
    }
}

/// A device with a cache of two pages, and models with weights of a page each. The last model is another variant that runs with the weights
/// of the first.
struct Bench {
    device: PlacedHandle,
    threads: DeviceThreads,
    stage: Arc<Stage>,
    seen: Receiver<Seen>,
    clock: TestClock,
    _timers: TimerThread,
}

fn try_start(kinds: &[Kind], resident: &[u32]) -> (Result<Bench, OperatorError>, Arc<Stage>) {
    let (seen_tx, seen) = channel();
    let clock = TestClock::default();
    let stage = Arc::new(Stage {
        kinds: kinds.to_vec(),
        seen: Mutex::new(seen_tx),
        passes: Mutex::new(0),
        opened: Signal::new(&clock.clock()),
    });
    let timers = TimerThread::start(&clock.clock(), "timer").unwrap();
    let pipeline = Arc::new(noop_pipeline(MS * 1000, &[&[0]], &[]));
    let worker = WorkerModels {
        pipeline,
        module: ModuleId(1),
        models: (0..=kinds.len() as u32).map(ModelId).collect(),
        by_variant: false,
    };
    let resident: Vec<WeightsId> = resident.iter().copied().map(WeightsId).collect();
    let actions = Actions::new(2, vec![1; kinds.len()], &resident);
    let model = |i| (WeightsId((i % kinds.len()) as u32), i / kinds.len());
    let loader = FakeLoader(stage.clone());
    let config = DeviceConfig {
        id: DeviceId(0),
        name: "fake:0".to_owned(),
        models: Models::Of(ModelsConfig {
            loader: Box::new(move || Ok(Box::new(loader))),
            too_large: Vec::new(),
            needed: resident.clone(),
            resident,
            models: (0..=kinds.len()).map(model).collect(),
            workers: Arc::new([(WORKER, worker)].into_iter().collect()),
        }),
        core: None,
    };
    let upstream = Arc::new(Upstream(stage.clone()));
    let device = super::start(config, actions, &clock.clock(), &timers, upstream);
    let bench = device.map(|(device, threads)| Bench {
        device,
        threads,
        stage: stage.clone(),
        seen,
        clock,
        _timers: timers,
    });
    (bench, stage)
}

fn start(kinds: &[Kind], resident: &[u32]) -> Bench {
    let bench = try_start(kinds, resident)
        .0
        .unwrap_or_else(|e| panic!("{e}"));
    for model in resident {
        assert_eq!(bench.next(), Seen::Reads(*model));
    }
    bench
}

fn member() -> BatchItem<Arc<Job>> {
    let frame = Frame {
        format: FrameFormat::Bytes,
        data: Default::default(),
        width: 0,
        height: 0,
    };
    let request = Request::new(RequestId(0), Timestamp::ZERO, Timestamp::MAX);
    BatchItem {
        worker: WORKER,
        request,
        arrived_at: Timestamp::ZERO,
        batched_at: Timestamp::ZERO,
        load: None,
        payload: Arc::new(Job::unaccounted(frame, 2)),
    }
}

fn infer(model: u32, size: usize) -> Work<BatchItem<Arc<Job>>> {
    Work::Infer {
        model: ModelId(model),
        weights: WeightsId(model),
        members: (0..size).map(|_| member()).collect(),
    }
}

impl Bench {
    /// Sends an action that may start at any time.
    fn send(&self, id: u64, work: Work<BatchItem<Arc<Job>>>) -> Vec<Done> {
        self.send_in(id, work, Timestamp::ZERO, Timestamp::MAX)
    }

    fn send_in(
        &self,
        id: u64,
        work: Work<BatchItem<Arc<Job>>>,
        earliest: Timestamp,
        latest: Timestamp,
    ) -> Vec<Done> {
        let mut refused = Vec::new();
        let action = Action {
            id: ActionId(id),
            work,
            window: Window { earliest, latest },
            starts_at: earliest,
            expected_end: earliest,
        };
        self.device.receive(action, &mut refused);
        refused
    }

    fn next(&self) -> Seen {
        self.seen.recv_timeout(SOON).expect("something happens")
    }

    fn expect(&self, all: impl IntoIterator<Item = Seen>) {
        for seen in all {
            assert_eq!(self.next(), seen);
        }
    }
}

fn refused(id: u64, cause: RefusalCause) -> Vec<Done> {
    let ended = Ended::Refused(cause);
    let id = ActionId(id);
    vec![Done::new(id, ended)]
}

fn failed(why: &str) -> Ran {
    Err(Failure::Module(why.to_owned()))
}

/// The model runs a batch of one.
fn serves(bench: &Bench, id: u64, model: u32) {
    assert_eq!(bench.send(id, infer(model, 1)), []);
    bench.expect([
        Seen::Runs(model, 1),
        Seen::Ran(id, vec![Ok(vec![])]),
        Seen::Done(id, End::Ran),
    ]);
}

#[test]
fn the_results_of_a_batch_come_before_its_end() {
    let bench = start(&[Kind::Sound], &[0]);
    assert_eq!(bench.send(1, infer(0, 3)), []);
    bench.expect([
        Seen::Runs(0, 3),
        Seen::Ran(1, vec![Ok(vec![]); 3]),
        Seen::Done(1, End::Ran),
    ]);
}

#[test]
fn a_model_that_is_loaded_serves() {
    let bench = start(&[Kind::Sound], &[]);
    bench.send(1, Work::Load(WeightsId(0)));
    bench.expect([Seen::Reads(0), Seen::Done(1, End::Ran)]);
    serves(&bench, 2, 0);
}

#[test]
fn models_that_run_with_the_same_weights_are_variants_of_one_operator() {
    let bench = start(&[Kind::Sound], &[0]);
    let other = Work::Infer {
        model: ModelId(1),
        weights: WeightsId(0),
        members: vec![member(), member()],
    };
    bench.send(1, other);
    bench.expect([
        Seen::RunsAs(0, 1, 2),
        Seen::Ran(1, vec![Ok(vec![]); 2]),
        Seen::Done(1, End::Ran),
    ]);
    serves(&bench, 2, 0);
}

#[test]
fn a_slow_load_does_not_delay_a_batch_of_another_model() {
    let bench = start(&[Kind::Sound, Kind::ReadsAtGate], &[0]);
    bench.send(1, Work::Load(WeightsId(1)));
    bench.expect([Seen::Reads(1)]);
    serves(&bench, 2, 0);
    bench.stage.open();
    bench.expect([Seen::Done(1, End::Ran)]);
}

#[test]
fn a_slow_batch_does_not_delay_a_load() {
    let bench = start(&[Kind::RunsAtGate, Kind::Sound], &[0]);
    bench.send(1, infer(0, 1));
    bench.expect([Seen::Runs(0, 1)]);
    bench.send(2, Work::Load(WeightsId(1)));
    bench.expect([Seen::Reads(1), Seen::Done(2, End::Ran)]);
    bench.stage.open();
    bench.expect([Seen::Ran(1, vec![Ok(vec![])]), Seen::Done(1, End::Ran)]);
}

#[test]
fn a_batch_whose_window_has_passed_is_refused_and_never_runs() {
    let bench = start(&[Kind::Sound], &[0]);
    let past = bench.clock.now() - MS;
    let done = bench.send_in(1, infer(0, 1), Timestamp::ZERO, past);
    assert_eq!(done, refused(1, RefusalCause::Late));
    serves(&bench, 2, 0);
}

#[test]
fn a_batch_whose_window_passes_while_another_runs_is_refused() {
    let bench = start(&[Kind::RunsAtGate], &[0]);
    bench.send(1, infer(0, 1));
    bench.expect([Seen::Runs(0, 1)]);
    let now = bench.clock.now();
    assert_eq!(bench.send_in(2, infer(0, 1), now, now + MS * 5), []);
    bench.clock.advance(MS * 10);
    bench.stage.open();
    bench.expect([
        Seen::Done(2, End::Refused(RefusalCause::Late)),
        Seen::Ran(1, vec![Ok(vec![])]),
        Seen::Done(1, End::Ran),
    ]);
}

#[test]
fn a_batch_does_not_start_before_its_window() {
    let bench = start(&[Kind::Sound], &[0]);
    let earliest = bench.clock.now() + MS * 30;
    assert_eq!(bench.send_in(1, infer(0, 1), earliest, Timestamp::MAX), []);
    bench.clock.advance(MS * 30 - Duration::from_nanos(1));
    assert!(bench.seen.try_recv().is_err());
    bench.clock.advance_to(earliest);
    bench.expect([Seen::Runs(0, 1)]);
}

#[test]
fn a_batch_of_a_model_that_is_not_there_is_refused() {
    let bench = start(&[Kind::Sound, Kind::ReadsAtGate], &[0]);
    let done = bench.send(1, infer(1, 1));
    assert_eq!(done, refused(1, RefusalCause::NotLoaded));
    // It is being read: it is not there yet.
    bench.send(2, Work::Load(WeightsId(1)));
    bench.expect([Seen::Reads(1)]);
    let done = bench.send(3, infer(1, 1));
    assert_eq!(done, refused(3, RefusalCause::NotLoaded));
    bench.stage.open();
    bench.expect([Seen::Done(2, End::Ran)]);
    serves(&bench, 4, 1);
}

#[test]
fn a_load_that_finds_no_room_is_refused() {
    let bench = start(&[Kind::Sound; 3], &[0, 1]);
    let done = bench.send(1, Work::Load(WeightsId(2)));
    assert_eq!(done, refused(1, RefusalCause::NoPages));
}

/// The pages of a LOAD that ends so are free again, and the device serves on.
fn fails_alone(kind: Kind, why: &str) {
    let bench = start(&[Kind::Sound, kind, Kind::Sound], &[0]);
    for id in [1, 2] {
        assert_eq!(bench.send(id, Work::Load(WeightsId(1))), []);
        let end = End::Failed(why.to_owned());
        bench.expect([Seen::Reads(1), Seen::Done(id, end)]);
    }
    let done = bench.send(3, infer(1, 1));
    assert_eq!(done, refused(3, RefusalCause::NotLoaded));
    bench.send(4, Work::Load(WeightsId(2)));
    bench.expect([Seen::Reads(2), Seen::Done(4, End::Ran)]);
    serves(&bench, 5, 0);
    assert!(bench.device.is_alive());
}

#[test]
fn a_load_that_fails_gives_its_pages_back() {
    fails_alone(Kind::Unreadable, "its file is cut");
}

#[test]
fn a_loader_that_panics_fails_that_load_alone() {
    fails_alone(Kind::PanicsReading, "loading panicked: told to");
}

/// A batch of two of model 1 ends so, and the device serves on.
fn ends_with(kind: Kind, results: Vec<Ran>) {
    let bench = start(&[Kind::Sound, kind], &[0, 1]);
    for id in [1, 2] {
        bench.send(id, infer(1, 2));
        bench.expect([
            Seen::Runs(1, 2),
            Seen::Ran(id, results.clone()),
            Seen::Done(id, End::Ran),
        ]);
    }
    serves(&bench, 3, 0);
    assert!(bench.device.is_alive());
}

#[test]
fn an_operator_that_panics_fails_that_batch_alone() {
    let why = failed("the module panicked: told to");
    ends_with(Kind::PanicsRunning, vec![why.clone(), why]);
}

#[test]
fn an_operator_that_answers_too_few_fails_the_batch() {
    let why = failed("the module answered 1 of 2 requests");
    ends_with(Kind::AnswersTooFew, vec![why.clone(), why]);
}

#[test]
fn a_request_that_cannot_be_computed_fails_alone() {
    ends_with(Kind::FailsOne, vec![Ok(vec![]), failed("no picture")]);
}

#[test]
fn an_operator_that_panics_when_it_goes_takes_nobody_down() {
    let bench = start(&[Kind::PanicsGoing, Kind::Sound], &[0, 1]);
    for id in [1, 3] {
        assert_eq!(bench.send(id, Work::Unload(WeightsId(0))), []);
        bench.expect([Seen::Gone(0, "load fake:0".to_owned())]);
        bench.send(id + 1, Work::Load(WeightsId(0)));
        bench.expect([Seen::Reads(0), Seen::Done(id + 1, End::Ran)]);
    }
    serves(&bench, 5, 1);
    assert!(bench.device.is_alive());
}

#[test]
fn unload_drops_the_operator_on_the_loading_thread() {
    let bench = start(&[Kind::Sound], &[0]);
    serves(&bench, 1, 0);
    assert_eq!(bench.send(2, Work::Unload(WeightsId(0))), []);
    bench.expect([Seen::Gone(0, "load fake:0".to_owned())]);
    let done = bench.send(3, infer(0, 1));
    assert_eq!(done, refused(3, RefusalCause::NotLoaded));
    bench.send(4, Work::Load(WeightsId(0)));
    bench.expect([Seen::Reads(0), Seen::Done(4, End::Ran)]);
    serves(&bench, 5, 0);
}
