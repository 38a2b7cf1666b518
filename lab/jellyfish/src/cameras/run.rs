//! Drives cameras, links, workers and the scheduler through one run.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_camera::ClockAnswer;
use spillgate_controller_policy::adaptation::STEPS_DEFAULT;
use spillgate_pipeline::id::{ClientId, VariantId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_sim::agenda::{Agenda, Rank};
use spillgate_sim::draw::normal;
use spillgate_sim::network::EmulatedUplink;

use super::camera::{Camera, Frame, Reporting};
use super::edf::Edf;
use super::mind::{CameraMind, Left};
use super::report::{CamerasReport, End, Tally};
use super::setting::{Contender, ENCODING, HOST, LoopSetting, OF_P99, ROUND_TRIP};
use super::worker::{Next, Worker};
use crate::adaptation::{
    Adaptation, AdaptationCommand, AdaptationConfig, AdaptationEvent, BadConfig, ClientReport,
    SWITCH_TIME_DEFAULT,
};

/// Shortest part of its profiled time that a batch may take.
const TAKES_LEAST: f64 = 0.5;

#[derive(Debug)]
enum Event {
    Capture(usize),
    /// A frame is encoded.
    Leaves(Frame),
    Acknowledged {
        camera: usize,
        left: Left,
        arrived: Timestamp,
    },
    /// A camera's report is due.
    Report(usize),
    /// The server hears it.
    Reported(usize, ClientReport),
    /// The camera hears the answer.
    Answered(usize, ClockAnswer),
    Told(usize, Option<(VariantId, WorkerId)>),
    Arrived(Frame),
    Executed {
        worker: usize,
        variant: usize,
        frames: Vec<Frame>,
    },
    Loaded(usize),
    /// A worker has waited for a fuller batch.
    Waited(usize),
    /// A decision is due.
    Wakeup,
}

/// Who takes frames.
#[derive(Debug)]
enum Serving {
    Adapted(Box<Adaptation>, Vec<Worker>),
    Fixed(Edf),
}

struct Run<'a> {
    setting: &'a LoopSetting,
    agenda: Agenda<Event>,
    cameras: Vec<Camera>,
    serving: Serving,
    /// By worker.
    is_busy: Vec<bool>,
    /// Order of arrivals.
    n_arrived: u64,
    noise: ChaCha8Rng,
    tally: Tally,
    end: Timestamp,
    wakes_at: Option<Timestamp>,
}

/// Serves the cameras of a setting under that contender.
///
/// # Errors
/// When the scheduler refuses the variants.
pub fn run(setting: &LoopSetting, contender: Contender) -> Result<CamerasReport, BadConfig> {
    let mut run = Run::new(setting, contender)?;
    while let Some((now, event)) = run.agenda.pop() {
        run.on_event(now, event);
    }
    Ok(run.tally.finish(setting.n_workers, ROUND_TRIP / 2))
}

impl<'a> Run<'a> {
    fn new(setting: &'a LoopSetting, contender: Contender) -> Result<Self, BadConfig> {
        let mut rng = ChaCha8Rng::seed_from_u64(setting.seed);
        let mut agenda = Agenda::default();
        let starts = setting.starts(&mut rng);
        let mut cameras = Vec::new();
        let wish = match contender {
            Contender::Adapted(_) => 0,
            Contender::Fixed(variant) => variant,
        };
        for (i, (kind, start)) in setting.cameras.iter().zip(&starts).enumerate() {
            let link = EmulatedUplink::new(setting.rates.clone(), start.offset, ROUND_TRIP, HOST);
            let mind = CameraMind::new(contender, *kind, wish, &setting.zoo);
            cameras.push(Camera::new(*kind, link, mind));
            agenda.push(start.at, Rank::Arrival, Event::Capture(i));
            agenda.push(start.at, Rank::Wakeup, Event::Report(i));
        }
        let (begins, end) = setting.window(&starts);
        Ok(Run {
            agenda,
            cameras,
            serving: Serving::new(setting, contender)?,
            is_busy: vec![false; setting.n_workers],
            n_arrived: 0,
            noise: ChaCha8Rng::seed_from_u64(rng.random()),
            tally: Tally::new((begins, end), &setting.zoo),
            setting,
            end,
            wakes_at: None,
        })
    }

    fn on_event(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Capture(camera) => self.capture(now, camera),
            Event::Leaves(frame) => self.leave(now, frame),
            Event::Acknowledged {
                camera,
                left,
                arrived,
            } => {
                let mind = &mut self.cameras[camera].mind;
                mind.acknowledged(now, left, arrived, &self.setting.zoo);
            }
            Event::Report(camera) => self.report(now, camera),
            Event::Reported(camera, report) => self.reported(now, camera, report),
            Event::Answered(camera, answer) => self.cameras[camera].answered(now, &answer),
            Event::Told(camera, served) => {
                let wish = served.map_or(0, |(variant, _)| variant.0 as usize);
                let mind = &mut self.cameras[camera].mind;
                mind.told(now, wish, &self.setting.zoo);
            }
            Event::Arrived(frame) => self.arrive(now, frame),
            Event::Executed {
                worker,
                variant,
                frames,
            } => {
                self.is_busy[worker] = false;
                self.end_all(now, &frames, End::Executed(variant));
                self.go_on(now, worker);
            }
            Event::Loaded(worker) => {
                if let Serving::Adapted(_, workers) = &mut self.serving {
                    workers[worker].cache.loaded();
                }
                self.load(now, worker);
                self.go_on(now, worker);
            }
            Event::Waited(worker) => self.go_on(now, worker),
            Event::Wakeup => {
                if self.wakes_at == Some(now) {
                    self.wakes_at = None;
                    self.tell(now, AdaptationEvent::Wakeup);
                }
            }
        }
    }

    fn capture(&mut self, now: Timestamp, idx: usize) {
        let camera = &self.cameras[idx];
        let frame = camera.capture(now, idx, &self.setting.zoo);
        let next = now + camera.gap();
        self.agenda
            .push(now + ENCODING, Rank::Arrival, Event::Leaves(frame));
        if next < self.end {
            self.agenda.push(next, Rank::Arrival, Event::Capture(idx));
        }
    }

    /// A camera sends a frame, or holds it back.
    fn leave(&mut self, now: Timestamp, frame: Frame) {
        let camera = frame.camera;
        let Some((left, sent)) = self.cameras[camera].send(now, &frame, &self.setting.zoo) else {
            return self.end_all(now, &[frame], End::Unsent);
        };
        let acknowledged = Event::Acknowledged {
            camera,
            left,
            arrived: sent.arrives,
        };
        self.agenda
            .push(sent.acknowledged, Rank::Device, acknowledged);
        self.agenda
            .push(sent.arrives, Rank::Arrival, Event::Arrived(frame));
    }

    /// A camera reports, if it does so by itself.
    fn report(&mut self, now: Timestamp, idx: usize) {
        let Some(reporting) = self.cameras[idx].send_report(now) else {
            return;
        };
        let Reporting {
            report,
            answer,
            sent,
            next,
        } = reporting;
        if let Some(report) = report {
            self.agenda
                .push(sent.arrives, Rank::Arrival, Event::Reported(idx, report));
        }
        self.agenda.push(
            sent.acknowledged,
            Rank::Device,
            Event::Answered(idx, answer),
        );
        if next < self.end {
            self.agenda.push(next, Rank::Wakeup, Event::Report(idx));
        }
    }

    /// The server hears what a camera reports.
    fn reported(&mut self, now: Timestamp, idx: usize, report: ClientReport) {
        let client = ClientId(idx as u32);
        self.tell(now, AdaptationEvent::Reported { client, report });
    }

    /// The server gets a frame and what its camera reports.
    fn arrive(&mut self, now: Timestamp, mut frame: Frame) {
        if let Some(report) = frame.report {
            self.reported(now, frame.camera, report);
        }
        self.n_arrived += 1;
        let key = (frame.deadline, self.n_arrived);
        let served = self.cameras[frame.camera].served;
        match &mut self.serving {
            Serving::Fixed(edf) => {
                frame.has_place = true;
                edf.queue.insert(key, frame);
                let free = self.is_busy.iter().position(|is_busy| !is_busy);
                free.into_iter().for_each(|w| self.go_on(now, w));
            }
            Serving::Adapted(_, workers) => {
                frame.has_place = served.is_some();
                let waits = |w: &usize| workers[*w].queue.len() + workers[*w].spare.len();
                // Without a place it goes to whoever has most idle time.
                let idlest = || {
                    let all = 0..workers.len();
                    let ready = all.filter(|w| workers[*w].cache.active().is_some());
                    ready.min_by_key(|w| (self.is_busy[*w], waits(w)))
                };
                let worker = match served {
                    Some((_, worker)) => Some(worker.0 as usize),
                    None => idlest(),
                };
                let Some(worker) = worker else {
                    return self.end_all(now, &[frame], End::Dropped);
                };
                workers[worker].queue_of(&frame).insert(key, frame);
                self.go_on(now, worker);
            }
        }
    }

    /// A worker that is free takes what is next.
    fn go_on(&mut self, now: Timestamp, worker: usize) {
        if self.is_busy[worker] {
            return;
        }
        let zoo = &self.setting.zoo;
        let mut dropped = Vec::new();
        let next = match &mut self.serving {
            Serving::Fixed(edf) => edf.next(now, zoo, &mut dropped),
            Serving::Adapted(_, workers) => workers[worker].next(now, zoo, &mut dropped),
        };
        match next {
            Next::Rest => {}
            Next::Wait(until) => self.agenda.push(until, Rank::Wakeup, Event::Waited(worker)),
            Next::Run { variant, frames } => {
                let profiled = zoo.execution(variant)[frames.len() - 1];
                let part = 1.0 + self.setting.noise * (normal(&mut self.noise) - OF_P99);
                let done = now + profiled.mul_f64(part.max(TAKES_LEAST));
                self.is_busy[worker] = true;
                self.tally.busy(now, done);
                let executed = Event::Executed {
                    worker,
                    variant,
                    frames,
                };
                self.agenda.push(done, Rank::Device, executed);
            }
        }
        self.end_all(now, &dropped, End::Dropped);
    }

    fn end_all(&mut self, now: Timestamp, frames: &[Frame], end: End) {
        for frame in frames {
            self.tally.ended(now, frame, end, self.setting.zoo.sizes());
        }
    }

    /// The scheduler hears of something, and what it says is done.
    fn tell(&mut self, now: Timestamp, event: AdaptationEvent) {
        let Serving::Adapted(adaptation, _) = &mut self.serving else {
            return;
        };
        let mut out = Vec::new();
        adaptation.on_event(now, event, &mut out);
        let due = adaptation.next_wakeup().map(|at| at.max(now));
        // After the last frame nothing is to be decided.
        let due = due.filter(|at| *at < self.end);
        if let Some(at) = due
            && self.wakes_at.is_none_or(|wakes_at| at < wakes_at)
        {
            self.wakes_at = Some(at);
            self.agenda.push(at, Rank::Wakeup, Event::Wakeup);
        }
        for command in out {
            self.carry_out(now, command);
        }
    }

    fn carry_out(&mut self, now: Timestamp, command: AdaptationCommand) {
        let Serving::Adapted(_, workers) = &mut self.serving else {
            return;
        };
        match command {
            AdaptationCommand::Run { worker, setting } => {
                let worker = worker.0 as usize;
                workers[worker].batch = setting.batch as usize;
                if let Some(is_hit) = workers[worker].cache.switch(setting.variant) {
                    self.tally.switched(now, is_hit);
                }
                self.load(now, worker);
                self.go_on(now, worker);
            }
            AdaptationCommand::Prefetch { worker, variants } => {
                let worker = worker.0 as usize;
                workers[worker].cache.prefetch(variants);
                self.load(now, worker);
            }
            AdaptationCommand::Tell { client, served } => {
                let camera = client.0 as usize;
                self.cameras[camera].served = served;
                let heard = now + ROUND_TRIP / 2;
                self.agenda
                    .push(heard, Rank::Device, Event::Told(camera, served));
            }
        }
    }

    /// A worker loads what it lacks.
    fn load(&mut self, now: Timestamp, worker: usize) {
        let Serving::Adapted(_, workers) = &mut self.serving else {
            return;
        };
        if let Some(variant) = workers[worker].cache.begin() {
            let done = now + self.setting.zoo.loading(variant.0 as usize);
            self.agenda.push(done, Rank::Device, Event::Loaded(worker));
        }
    }
}

impl Serving {
    fn new(setting: &LoopSetting, contender: Contender) -> Result<Self, BadConfig> {
        let method = match contender {
            Contender::Fixed(variant) => return Ok(Serving::Fixed(Edf::new(variant))),
            Contender::Adapted(method) => method,
        };
        let mut adaptation = Adaptation::new(AdaptationConfig {
            method,
            variants: setting.zoo.variants().to_vec(),
            workers: (0..setting.n_workers as u32).map(WorkerId).collect(),
            switch_time: SWITCH_TIME_DEFAULT,
            load_max: setting.load_max,
            n_prefetched: setting.n_cached.saturating_sub(1),
            steps: STEPS_DEFAULT,
            seed: setting.seed,
        })?;
        let margin = AdaptationEvent::Rest(setting.margin);
        adaptation.on_event(Timestamp::ZERO, margin, &mut Vec::new());
        let worker = |_| Worker::new(setting.n_cached);
        Ok(Serving::Adapted(
            Box::new(adaptation),
            (0..setting.n_workers).map(worker).collect(),
        ))
    }
}
