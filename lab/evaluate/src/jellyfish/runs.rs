//! Runs of many settings with several seeds each, and their means.

use std::time::Duration;

use spillgate_jellyfish::adaptation::Method;
use spillgate_jellyfish::cameras::{CamerasReport, Contender, LoopSetting, Way, Zoo, run, serve};
use spillgate_pipeline::policy::AdaptName;

use super::Given;
use crate::in_parallel;
use crate::report::{Report, mean};

/// Head of the table behind the page.
pub(super) const CSV_HEAD: &str = "section,case,contender,seeds,frames,dropped,unserved,unsent,late,missed,f1,utilisation,\
     switches,hits,p50_ms,p99_ms,served\n";

/// What lies between cameras and devices.
#[derive(Clone, Copy, Debug)]
pub(super) enum Server {
    /// Workers that clients are bound to, or one queue.
    Loop(Contender),
    /// What serves.
    Pipeline(Way),
}

/// Place of `jellyfish` among [`contenders`].
pub(super) const JELLYFISH: usize = 0;
/// Of the scheduler that binds clients to workers.
pub(super) const BOUND: usize = 1;
/// Of what serves.
pub(super) const SERVED: usize = 6;

/// Who chooses variants, by its name on the page.
pub(super) fn contenders(zoo: &Zoo) -> [(&'static str, Server); 8] {
    let bound = |method| Server::Loop(Contender::Adapted(method));
    let fixed = |variant| Server::Loop(Contender::Fixed(variant));
    let served = |name| Server::Pipeline(Way::Adapt(name));
    [
        ("jellyfish", bound(Method::Jellyfish)),
        ("spillgate", bound(Method::Spillgate)),
        ("greedy", bound(Method::Greedy)),
        ("B_L", fixed(0)),
        ("B_M", fixed(zoo.middle())),
        ("B_H", fixed(zoo.sizes().len() - 1)),
        ("adapt: spillgate", served(AdaptName::Spillgate)),
        ("adapt: jellyfish", served(AdaptName::Jellyfish)),
    ]
}

/// One setting under one contender.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) contender: String,
    pub(super) server: Server,
    /// Its seed is set for each run, and so is how long it counts.
    pub(super) setting: LoopSetting,
}

impl Case {
    fn run(&self, seed: u64, counted: Duration) -> anyhow::Result<CamerasReport> {
        let mut setting = self.setting.clone();
        (setting.seed, setting.counted) = (seed, counted);
        match self.server {
            Server::Loop(contender) => Ok(run(&setting, contender)?),
            Server::Pipeline(way) => Ok(serve(&setting, way)?),
        }
    }
}

/// Means over the seeds of a setting.
#[derive(Clone, Debug)]
pub(super) struct Means {
    reports: Vec<CamerasReport>,
}

impl Means {
    fn mean(&self, of: impl Fn(&CamerasReport) -> f64) -> f64 {
        mean(self.reports.iter().map(of))
    }

    fn sum(&self, of: impl Fn(&CamerasReport) -> usize) -> usize {
        self.reports.iter().map(of).sum()
    }

    /// Part of the frames that were late, dropped or not sent.
    pub(super) fn missed(&self) -> f64 {
        self.mean(CamerasReport::miss_rate)
    }

    pub(super) fn f1(&self) -> f64 {
        self.mean(|r| r.f1)
    }

    pub(super) fn utilisation(&self) -> f64 {
        self.mean(|r| r.utilisation)
    }

    pub(super) fn p50_ms(&self) -> f64 {
        self.mean(|r| r.p50_ms)
    }

    pub(super) fn p99_ms(&self) -> f64 {
        self.mean(|r| r.p99_ms)
    }

    /// Switches, and of them those to a variant that was there.
    pub(super) fn switches(&self) -> (usize, usize) {
        (self.sum(|r| r.switches), self.sum(|r| r.hits))
    }

    fn line(&self, section: &str, case: &Case, report: &mut Report) {
        let part = |of: f64| format!("{of:.5}");
        let n_variants = case.setting.zoo.sizes().len();
        let served = (0..n_variants).map(|v| self.sum(|r| r.served[v]).to_string());
        let served = served.collect::<Vec<_>>().join(" ");
        let (switches, hits) = self.switches();
        report.line(&[
            &section,
            &case.name,
            &case.contender,
            &self.reports.len(),
            &self.sum(|r| r.frames),
            &self.sum(|r| r.dropped),
            &self.sum(|r| r.unserved),
            &self.sum(|r| r.unsent),
            &self.sum(|r| r.late),
            &part(self.missed()),
            &part(self.f1()),
            &part(self.utilisation()),
            &switches,
            &hits,
            &format!("{:.2}", self.p50_ms()),
            &format!("{:.2}", self.p99_ms()),
            &served,
        ]);
    }
}

/// Runs all, in order, and writes a line for each.
pub(super) fn run_cases(
    section: &str,
    cases: &[Case],
    given: &Given,
    report: &mut Report,
) -> anyhow::Result<Vec<Means>> {
    let todo: Vec<(usize, u64)> = (0..cases.len())
        .flat_map(|i| (1..=u64::from(given.seeds)).map(move |seed| (i, seed)))
        .collect();
    let done = in_parallel(&todo, |(i, seed)| {
        cases[*i].run(*seed, Duration::from_secs(given.seconds.into()))
    })?;
    let by_case = done.chunks(given.seeds as usize).map(<[_]>::to_vec);
    let all: Vec<Means> = by_case.map(|reports| Means { reports }).collect();
    for (case, means) in cases.iter().zip(&all) {
        means.line(section, case, report);
    }
    Ok(all)
}

/// `1.23`, of a part.
pub(super) fn percent(part: f64) -> String {
    format!("{:.2}", part * 100.0)
}
