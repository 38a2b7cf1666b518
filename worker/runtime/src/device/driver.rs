//! What the threads of a device and its handles share: the chooser behind a lock, and what it has commanded that is not done yet.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use spillgate_backend::operator::{Inputs, OperatorError};
use spillgate_pipeline::id::{ActionId, DeviceId, WeightsId};
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::{Clock, Signal};

use super::models::Serving;
use crate::timer::{Alarm, Sleeper};

/// What decides about the batches and the weights of a device.
pub(super) trait Chooser: Sized + Send + 'static {
    /// What happens to it.
    type Event<'e>;
    /// What the executing thread runs.
    type Run: Send;
    /// Names what the loading thread reads.
    type Read: Send;
    /// What the reporting thread brings, where there is one.
    type Report: Send;
    /// What others are to hear, without the lock.
    type Outgoing: Default;
    /// Who hears.
    type Upstream: Send + Sync;

    /// Inputs are prepared, and what ended is reported, on threads of their own.
    const HAS_STEPS: bool;

    /// Takes in one event. `serving` tells what is in memory.
    fn on_event(
        &mut self,
        now: Timestamp,
        event: Self::Event<'_>,
        serving: &Serving,
        work: &mut Work<Self>,
        outgoing: &mut Self::Outgoing,
    );

    /// The next moment at which something happens without an event from outside.
    fn next_wakeup(&self) -> Option<Timestamp>;

    /// That moment has come.
    fn wakeup() -> Self::Event<'static>;

    /// Brings what others are to hear.
    fn send(shared: &Shared<Self>, outgoing: Self::Outgoing);

    /// Prepares the inputs of a batch that waits.
    fn prepare(shared: &Shared<Self>, batch: ActionId);

    /// Runs one batch. `inputs` is empty between batches.
    fn execute(shared: &Shared<Self>, run: Self::Run, inputs: &mut Vec<Inputs>);

    /// What was to be read is there, or cannot be.
    fn read(
        shared: &Shared<Self>,
        read: Self::Read,
        started_at: Timestamp,
        result: Result<(), OperatorError>,
    );

    /// Brings what ended to where it is awaited.
    fn report(shared: &Shared<Self>, report: Self::Report);

    /// Weights that were to be there from the start cannot be read, and the device serves without.
    fn lack(&mut self, weights: WeightsId);

    /// The device serves no more.
    fn died(shared: &Shared<Self>, cause: &str);
}

/// What the loading thread is to do.
pub(super) enum LoadTask<R> {
    /// Read weights; the others are given back before.
    Read(R, WeightsId, Vec<WeightsId>),
    Forget(Vec<WeightsId>),
}

/// What was commanded and is not done yet, in order.
pub(super) struct Work<C: Chooser> {
    pub(super) inputs: VecDeque<ActionId>,
    pub(super) runs: VecDeque<C::Run>,
    pub(super) loads: VecDeque<LoadTask<C::Read>>,
    pub(super) reports: VecDeque<C::Report>,
}

pub(super) struct State<C: Chooser> {
    pub(super) chooser: C,
    pub(super) work: Work<C>,
    pub(super) stop: bool,
    /// Threads that have not ended.
    pub(super) busy: usize,
}

pub(super) struct Shared<C: Chooser> {
    pub(super) id: DeviceId,
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) state: Mutex<State<C>>,
    pub(super) inputs: Signal,
    pub(super) runs: Signal,
    pub(super) loads: Signal,
    pub(super) reports: Signal,
    pub(super) serving: Serving,
    pub(super) upstream: C::Upstream,
    /// Set before the device is driven.
    pub(super) alarm: OnceLock<Alarm>,
    pub(super) alive: AtomicBool,
}

impl<C: Chooser> Shared<C> {
    pub(super) fn new(
        (id, name): (DeviceId, String),
        chooser: C,
        serving: Serving,
        clock: &Clock,
        upstream: C::Upstream,
    ) -> Self {
        Shared {
            id,
            name,
            state: Mutex::new(State {
                chooser,
                work: Work {
                    inputs: VecDeque::new(),
                    runs: VecDeque::new(),
                    loads: VecDeque::new(),
                    reports: VecDeque::new(),
                },
                stop: false,
                busy: 0,
            }),
            inputs: Signal::new(clock),
            runs: Signal::new(clock),
            loads: Signal::new(clock),
            reports: Signal::new(clock),
            clock: clock.clone(),
            serving,
            upstream,
            alarm: OnceLock::new(),
            alive: AtomicBool::new(true),
        }
    }

    /// Drives the chooser with one event: tells the threads what to do, and asks to be woken. Returns what others are to hear.
    pub(super) fn decide(&self, event: C::Event<'_>) -> C::Outgoing {
        let now = self.clock.now();
        let mut outgoing = C::Outgoing::default();
        let mut state = self.state.lock();
        let State { chooser, work, .. } = &mut *state;
        let had = work.lens();
        chooser.on_event(now, event, &self.serving, work, &mut outgoing);
        let has = work.lens();
        let wakeup = chooser.next_wakeup();
        drop(state);
        let signals = [&self.runs, &self.inputs, &self.loads, &self.reports];
        for (signal, (had, has)) in signals.into_iter().zip(had.into_iter().zip(has)) {
            if has > had {
                signal.notify_one();
            }
        }
        if let (Some(at), Some(alarm)) = (wakeup, self.alarm.get()) {
            alarm.arm(at);
        }
        outgoing
    }

    /// The same, and tells others what they are to hear.
    pub(super) fn drive(&self, event: C::Event<'_>) {
        let outgoing = self.decide(event);
        C::send(self, outgoing);
    }

    /// Whether its threads live.
    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// The threads end when nothing is left to do.
    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        for changed in [&self.inputs, &self.runs, &self.loads, &self.reports] {
            changed.notify_one();
        }
    }

    /// Something is to be reported.
    pub(super) fn post(&self, report: C::Report) {
        self.state.lock().work.reports.push_back(report);
        self.reports.notify_one();
    }

    /// Waits for what a thread is to do next; `None` when there is nothing and the thread is to end.
    pub(super) fn next<W>(
        &self,
        changed: &Signal,
        is_over: impl Fn(&State<C>) -> bool,
        take: impl Fn(&mut Work<C>) -> Option<W>,
    ) -> Option<W> {
        let mut state = self.state.lock();
        loop {
            let next = take(&mut state.work);
            if next.is_some() || is_over(&state) {
                return next;
            }
            changed.wait(&mut state);
        }
    }
}

impl<C: Chooser> Work<C> {
    /// By signal, in the order of [`Shared::decide`].
    fn lens(&self) -> [usize; 4] {
        let Work {
            inputs,
            runs,
            loads,
            reports,
        } = self;
        [runs.len(), inputs.len(), loads.len(), reports.len()]
    }
}

impl<C: Chooser> Sleeper for Shared<C> {
    fn wake(&self, _now: Timestamp) -> Option<Timestamp> {
        self.drive(C::wakeup());
        // It has armed itself.
        None
    }
}
