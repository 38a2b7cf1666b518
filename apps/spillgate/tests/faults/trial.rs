//! One run of a case: a set of processes under load, and what holds in every case.

use std::process::ChildStderr;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::client::{Load, Sheet};
use crate::fault::Fault;
use crate::findings::Findings;
use crate::set::{Plan, Set};

/// No process grows by more than this, in MB.
pub(super) const GROWTH_MAX: f64 = 48.0;
/// Throughput is back when a second brings this part of what it should.
const BACK: f64 = 0.85;
/// The second that is looked at moves by so much.
const STEP: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// A set of processes that serves.
pub(super) struct Trial {
    pub(super) set: Set,
    load: Load,
}

/// What became of all requests.
pub(super) struct Served {
    /// By gateway.
    pub(super) sheets: Vec<Sheet>,
    pub(super) findings: Findings,
    /// The longest time that a process took to end.
    pub(super) stopped_within: Duration,
    /// Pipes of logs that nobody read.
    pub(super) unread: Vec<(String, ChildStderr)>,
}

impl Trial {
    /// Starts the processes, and sends so many requests a second to each gateway for a while.
    pub(super) fn start(
        runtime: &Handle,
        plan: &Plan,
        rate: f64,
        warm_up: Duration,
    ) -> anyhow::Result<Self> {
        let set = Set::start(runtime, plan)?;
        let load = Load::start(runtime, &set.gateways, rate);
        std::thread::sleep(warm_up);
        set.begin_memory();
        Ok(Trial { set, load })
    }

    /// Sends no more, waits for all answers, ends the processes, and looks at what holds in every case: each request has one
    /// answer, its own, with each module in it once; no process died; memory is bounded; all end in order.
    pub(super) fn finish(mut self) -> Served {
        let sheets = self.load.finish();
        let mut findings = Findings::default();
        for (gateway, sheet) in sheets.iter().enumerate() {
            findings.count(gateway, sheet);
        }
        findings.at_most("growth of memory", self.set.growth(), GROWTH_MAX, " MB");
        for dead in self.set.dead() {
            findings.holds(false, || dead);
        }
        let unread = self.set.take_unread();
        let (wrong, stopped_within) = self.set.stop();
        findings.holds(wrong.is_empty(), || wrong.join("; "));
        Served {
            sheets,
            findings,
            stopped_within,
            unread,
        }
    }

    /// A process has a fault for a while. The gateways notice it.
    pub(super) fn disturb(
        &mut self,
        fault: Fault,
        name: &str,
        how_long: Duration,
    ) -> anyhow::Result<Disturbance> {
        let marks = self.set.marks();
        let struck_at = Instant::now();
        fault.strike(&mut self.set, name)?;
        let mut noticed_at = struck_at;
        if let Some(what) = fault.noticed() {
            let what = format!("{what}\"{name}\"");
            for peer in self.set.peers(name) {
                let mark = marks[&peer];
                noticed_at = noticed_at.max(self.set.waits_said(&peer, mark, &what)?);
            }
        }
        std::thread::sleep(how_long.saturating_sub(struck_at.elapsed()));
        let healed_at = fault.heal(&mut self.set, name)?;
        let met_at = match fault.noticed() {
            Some(_) => self.set.waits_met(name, &marks)?,
            None => healed_at,
        };
        Ok(Disturbance {
            struck_at,
            noticed_at,
            healed_at,
            met_at,
        })
    }
}

/// When something happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disturbance {
    pub(super) struck_at: Instant,
    /// When the last peer noticed it.
    pub(super) noticed_at: Instant,
    /// When the process was there again.
    pub(super) healed_at: Instant,
    /// When all its peers had met it again.
    pub(super) met_at: Instant,
}

impl Served {
    /// What holds, and that each request was completed.
    pub(super) fn completes_all(mut self) -> Findings {
        let (mut failed, mut bad) = (0, 0);
        for sheet in &self.sheets {
            let all = sheet.all();
            failed += all.failed;
            bad += all.bad();
        }
        self.findings.at_most("failed", failed as f64, 0.0, "");
        self.findings.at_most("not completed", bad as f64, 0.0, "");
        self.findings
    }

    /// Completed requests a second in this time.
    pub(super) fn rate(&self, from: Instant, to: Instant) -> f64 {
        let times = Sheet::completions(&self.sheets);
        let n = times.iter().filter(|t| **t >= from && **t < to).count();
        n as f64 / (to - from).as_secs_f64()
    }

    /// How many seconds after `from` throughput is back at this many a second: the first second that brings so many begins then.
    pub(super) fn back_after(&self, from: Instant, rate: f64) -> f64 {
        let last = Sheet::completions(&self.sheets)
            .last()
            .copied()
            .unwrap_or(from);
        let mut at = from;
        while at + SECOND <= last {
            if self.rate(at, at + SECOND) >= BACK * rate {
                return (at - from).as_secs_f64();
            }
            at += STEP;
        }
        f64::INFINITY
    }
}
