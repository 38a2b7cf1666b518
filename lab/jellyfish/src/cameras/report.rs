//! What a run came to.

use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use super::camera::Frame;
use super::proxy::Proxy;
use super::setting::Zoo;

/// Figures of a run, over the frames that were captured while it counted.
#[derive(Clone, Debug, PartialEq)]
pub struct CamerasReport {
    /// Frames captured.
    pub frames: usize,
    /// Of them dropped by a worker.
    pub dropped: usize,
    /// Of them dropped as no worker had a place for their camera, nor idle time.
    pub unserved: usize,
    /// Of them not sent, as those before them waited for the link.
    pub unsent: usize,
    /// Of them executed too late.
    pub late: usize,
    /// Mean F1 of those in time, by the proxy; 0 of none.
    pub f1: f64,
    /// Part of the workers' time in which they executed.
    pub utilisation: f64,
    /// Times that a worker was told another variant.
    pub switches: usize,
    /// Of them those to a variant that it held.
    pub hits: usize,
    /// Latency of executed frames in ms; 0 of none.
    pub p50_ms: f64,
    /// The same.
    pub p99_ms: f64,
    /// Executed frames, by variant.
    pub served: Vec<usize>,
}

impl CamerasReport {
    /// Part of the frames that were late, dropped or not sent.
    pub fn miss_rate(&self) -> f64 {
        let missed = self.dropped + self.unserved + self.unsent + self.late;
        missed as f64 / self.frames.max(1) as f64
    }

    /// Part of the switches to a variant that was held; `None` without switches.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.switches > 0).then(|| self.hits as f64 / self.switches as f64)
    }
}

/// How a frame ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Executed with this variant.
    Executed(usize),
    Dropped,
    /// Its camera held it back.
    Unsent,
}

/// Counts as the run goes.
#[derive(Debug)]
pub(super) struct Tally {
    /// What counts: frames captured, and time, from the first to before the second.
    window: (Timestamp, Timestamp),
    proxy: Proxy,
    latencies: Vec<Duration>,
    busy: Duration,
    f1: f64,
    report: CamerasReport,
}

impl Tally {
    pub(super) fn new(window: (Timestamp, Timestamp), zoo: &Zoo) -> Self {
        Tally {
            window,
            proxy: Proxy::new(),
            latencies: Vec::new(),
            busy: Duration::ZERO,
            f1: 0.0,
            report: CamerasReport {
                frames: 0,
                dropped: 0,
                unserved: 0,
                unsent: 0,
                late: 0,
                f1: 0.0,
                utilisation: 0.0,
                switches: 0,
                hits: 0,
                p50_ms: 0.0,
                p99_ms: 0.0,
                served: vec![0; zoo.len()],
            },
        }
    }

    fn counts(&self, at: Timestamp) -> bool {
        self.window.0 <= at && at < self.window.1
    }

    /// A worker executes from then to then.
    pub(super) fn busy(&mut self, from: Timestamp, to: Timestamp) {
        let (from, to) = (from.max(self.window.0), to.min(self.window.1));
        self.busy += to.since(from);
    }

    /// A worker is told another variant.
    pub(super) fn switched(&mut self, now: Timestamp, is_hit: bool) {
        if self.counts(now) {
            self.report.switches += 1;
            self.report.hits += usize::from(is_hit);
        }
    }

    /// A frame ends.
    pub(super) fn ended(&mut self, now: Timestamp, frame: &Frame, end: End, sizes: &[u32]) {
        if !self.counts(frame.captured) {
            return;
        }
        self.report.frames += 1;
        match end {
            End::Dropped if frame.has_place => self.report.dropped += 1,
            End::Dropped => self.report.unserved += 1,
            End::Unsent => self.report.unsent += 1,
            End::Executed(variant) => {
                self.report.served[variant] += 1;
                self.latencies.push(now.since(frame.captured));
                if now > frame.deadline {
                    self.report.late += 1;
                } else {
                    self.f1 += self.proxy.of(sizes[frame.size], sizes[variant]);
                }
            }
        }
    }

    /// The report. `back` is the time that a result takes to its camera.
    pub(super) fn finish(mut self, n_workers: usize, back: Duration) -> CamerasReport {
        let mut report = self.report;
        let in_time = self.latencies.len() - report.late;
        report.f1 = self.f1 / in_time.max(1) as f64;
        let time = self.window.1.since(self.window.0) * n_workers as u32;
        report.utilisation = self.busy.as_secs_f64() / time.as_secs_f64();
        self.latencies.sort_unstable();
        let quantile = |q: f64| {
            let rank = (q * self.latencies.len() as f64).ceil() as usize;
            let latency = self.latencies.get(rank.max(1) - 1);
            latency.map_or(0.0, |l| (*l + back).as_secs_f64() * 1e3)
        };
        report.p50_ms = quantile(0.5);
        report.p99_ms = quantile(0.99);
        report
    }
}
