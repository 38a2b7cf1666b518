//! The results of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::request::{Outcome, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::weights::fleet::DeviceAccount;
use spillgate_worker_policy::weights::store::WeightStoreAccount;

use crate::accuracies::Accuracies;
use crate::clients::{self, ClientLoad, Served};
use crate::world::{ClusterReport, FramesReport, SimConfig};

/// Totals of one run. docs/glossary.md has the measures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Requests that were offered.
    pub requests: u64,
    /// Completed in time.
    pub good: u64,
    /// Completed late.
    pub late: u64,
    /// Dropped, refused requests included.
    pub dropped: u64,
    /// Requests completed in time, per second of the run.
    pub goodput: f64,
    /// The same, each request counted by the accuracy of the variant that served it, where a module's variants state theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_weighted: Option<f64>,
    /// (dropped + late + failed) / requests.
    pub drop_rate: f64,
    /// Device time spent on requests that did not complete in time / all device time.
    pub invalid_rate: f64,
    /// Failed: their worker died.
    pub failed: u64,
    /// Drops by module and reason.
    pub drops: BTreeMap<String, BTreeMap<String, u64>>,
    /// Least number of requests completed in time over the seconds of the run.
    pub goodput_min: f64,
    /// Part of the device time that was used.
    pub utilisation: f64,
    /// Part of the device time in which finished requests ran again, to learn their times alone.
    pub rerun_utilisation: f64,
    /// Latency of completed requests in milliseconds: p50.
    pub latency_ms_p50: f64,
    /// p90.
    pub latency_ms_p90: f64,
    /// p99.
    pub latency_ms_p99: f64,
    /// Mean.
    pub latency_ms_mean: f64,
    /// Mean batch size over all batches.
    pub batch_size_mean: f64,
    /// Requests offered in each second.
    pub offered_by_second: Vec<u32>,
    /// Of the requests offered in each second, those completed in time.
    pub good_by_second: Vec<u32>,
    /// Completed in time / all, of the requests that have an application.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub applications: BTreeMap<String, Finished>,
    /// By client, where the run has clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Served>,
    /// Requests of clients without an SLO, where there are any: no other figure but those by client counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// Jain's index of the clients that asked for more than their share ([`clients::jain`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jain: Option<f64>,
    /// Completed in time / all.
    pub finish_rate: f64,
    /// Messages between gateways, controllers and devices, by request.
    pub messages_per_request: f64,
    /// Their bytes by request, without payloads.
    pub bytes_per_request: f64,
    /// How models got into memory, where the pipeline has families or a placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Models>,
    /// What happened between the processes, where they exchange only messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReport>,
    /// What became of the frames of cameras, by the cameras' clocks, where there are any. The other figures are those of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cameras: Option<FramesReport>,
    /// Events of the run.
    pub events: u64,
    /// Hash over every event: equal runs have equal hashes.
    pub trace_hash: String,
}

/// How models got into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Models {
    /// Models that were read.
    pub loads: u64,
    /// Requests of batches that waited until their model was read, on the way through a module.
    pub cold_requests: u64,
    /// Models that gave way to others.
    pub unloads: u64,
    /// Part of the time in which models were read: of the time of devices, or under a placement of that of their links.
    pub load_utilisation: f64,
    /// What devices refused, under a placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedActions>,
}

/// Actions that devices refused, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RefusedActions {
    /// Batches whose window had passed.
    pub late_batch: u64,
    /// LOADs whose window had passed.
    pub late_load: u64,
    /// Actions whose model gave way before they began.
    pub not_loaded: u64,
    /// LOADs for which there were too few free pages.
    pub no_pages: u64,
}

/// The requests of clients without an SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Background {
    /// Requests offered.
    pub requests: u64,
    /// Completed.
    pub completed: u64,
    /// Part of the device time that they used.
    pub utilisation: f64,
}

/// The outcomes of the requests of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Finished {
    /// Requests offered.
    pub requests: u64,
    /// Completed in time.
    pub good: u64,
    /// good / requests.
    pub finish_rate: f64,
}

/// Gathers a report.
pub(crate) struct Tally {
    pipeline: Arc<Pipeline>,
    report: Report,
    latencies: Vec<Duration>,
    busy_ns: u64,
    background_ns: u64,
    rerun_ns: u64,
    load_ns: u64,
    invalid_ns: u64,
    batches: u64,
    batch_members: u64,
    messages: u64,
    bytes: u64,
    failed: u64,
    accuracies: Accuracies,
    /// By application.
    applications: Vec<Finished>,
    /// By client: requests completed in time.
    good_of: Vec<u64>,
    clients: Option<ClientLoad>,
    /// Requests offered in each second.
    offered: Vec<u32>,
    /// Of these, completed in time.
    good_offered: Vec<u32>,
    /// Requests completed in time in each second.
    good: Vec<u32>,
}

fn count_in(seconds: &mut Vec<u32>, at: Timestamp) {
    let second = (at.as_ns() / 1_000_000_000) as usize;
    if seconds.len() <= second {
        seconds.resize(second + 1, 0);
    }
    seconds[second] += 1;
}

impl Tally {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let has_models =
            config.families.is_some() || !config.fleets.is_empty() || !config.memory.is_empty();
        let refused = (!config.fleets.is_empty()).then(RefusedActions::default);
        let models = has_models.then(|| Models {
            refused,
            ..Models::default()
        });
        Tally {
            pipeline: config.pipeline.clone(),
            report: Report {
                models,
                ..Report::default()
            },
            latencies: Vec::with_capacity(config.arrivals.len()),
            busy_ns: 0,
            background_ns: 0,
            rerun_ns: 0,
            load_ns: 0,
            invalid_ns: 0,
            batches: 0,
            batch_members: 0,
            messages: 0,
            bytes: 0,
            failed: 0,
            accuracies: Accuracies::of(&config.pipeline),
            applications: Vec::new(),
            good_of: vec![0; config.clients.as_ref().map_or(0, |c| c.clients.len())],
            clients: config.clients.clone(),
            offered: Vec::new(),
            good_offered: Vec::new(),
            good: Vec::new(),
        }
    }

    pub(crate) fn offered(&mut self, now: Timestamp, application: Application) {
        self.report.requests += 1;
        if self.applications.len() <= application.idx() {
            self.applications
                .resize(application.idx() + 1, Finished::default());
        }
        self.applications[application.idx()].requests += 1;
        count_in(&mut self.offered, now);
    }

    /// A request without an SLO was offered.
    pub(crate) fn offered_background(&mut self) {
        self.background().requests += 1;
    }

    fn background(&mut self) -> &mut Background {
        self.report.background.get_or_insert_default()
    }

    /// A request without an SLO, by its place in the workload, ended after it used that much device time.
    fn background_ended(&mut self, ordinal: usize, outcome: Outcome, used: u64) {
        self.background_ns += used;
        if outcome == Outcome::Completed {
            self.background().completed += 1;
            self.completed_of(ordinal);
        }
    }

    /// The client of that request has one more completed.
    fn completed_of(&mut self, ordinal: usize) {
        if let Some(clients) = &self.clients {
            // Frames of cameras are beside the workload.
            if let Some((client, _)) = clients.requests.get(ordinal) {
                self.good_of[usize::from(*client)] += 1;
            }
        }
    }

    pub(crate) fn refused(&mut self, reason: &'static str) {
        self.report.dropped += 1;
        self.dropped_at("source", reason);
    }

    fn dropped_at(&mut self, module: &str, reason: &str) {
        let reasons = self.report.drops.entry(module.to_owned()).or_default();
        *reasons.entry(reason.to_owned()).or_default() += 1;
    }

    /// A request, by its place in the workload, ended after it used that much device time.
    pub(crate) fn ended(
        &mut self,
        request: &Request,
        ordinal: usize,
        at: Timestamp,
        outcome: Outcome,
        used: u64,
    ) {
        if request.background {
            return self.background_ended(ordinal, outcome, used);
        }
        self.busy_ns += used;
        let pipeline = self.pipeline.clone();
        match outcome {
            Outcome::Completed => {
                self.report.good += 1;
                self.accuracies.count(request);
                self.applications[request.application.idx()].good += 1;
                self.latencies.push(at.since(request.sent_at));
                self.completed_of(ordinal);
                count_in(&mut self.good, at);
                count_in(&mut self.good_offered, request.sent_at);
                return;
            }
            Outcome::Late => {
                self.report.late += 1;
                self.latencies.push(at.since(request.sent_at));
            }
            Outcome::Dropped(drop) => {
                self.report.dropped += 1;
                self.dropped_at(
                    &pipeline.modules[drop.module.idx()].name,
                    drop.reason.label(),
                );
            }
            Outcome::Failed { module } => {
                self.failed += 1;
                self.dropped_at(&pipeline.modules[module.idx()].name, "failed");
            }
        }
        self.invalid_ns += used;
    }

    /// Device time that a request used after it had ended.
    pub(crate) fn wasted(&mut self, used: u64) {
        self.busy_ns += used;
        self.invalid_ns += used;
    }

    /// Device time that a request of the warm-up used.
    pub(crate) fn used(&mut self, used: u64) {
        self.busy_ns += used;
    }

    pub(crate) fn reran(&mut self, took: Duration) {
        self.rerun_ns += took.as_nanos() as u64;
    }

    /// A link carried weights for so long.
    pub(crate) fn link(&mut self, took: Duration) {
        self.load_ns += took.as_nanos() as u64;
    }

    /// That became of the weights of a device.
    pub(crate) fn memory(&mut self, account: &WeightStoreAccount) {
        if let Some(models) = &mut self.report.models {
            models.loads += account.loads;
            models.cold_requests += account.cold;
            models.unloads += account.unloads;
        }
    }

    /// A device under a placement did that.
    pub(crate) fn account(&mut self, account: &DeviceAccount) {
        let Some(models) = &mut self.report.models else {
            return;
        };
        models.loads += account.loads;
        models.cold_requests += account.cold;
        models.unloads += account.unloads;
        if let Some(refused) = &mut models.refused {
            refused.late_batch += account.refused.late_batches;
            refused.late_load += account.refused.late_loads;
            refused.not_loaded += account.refused.not_loaded;
            refused.no_pages += account.refused.no_pages;
        }
    }

    pub(crate) fn batch(&mut self, size: usize) {
        self.batches += 1;
        self.batch_members += size as u64;
    }

    /// A message of that many bytes was sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }

    pub(crate) fn finish(mut self, config: &SimConfig, events: u64, hash: u64) -> Report {
        let mut report = self.report;
        let duration = config.duration.as_secs_f64();
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        self.latencies.sort_unstable();
        let quantile = |q: f64| match self.latencies.len() {
            0 => 0.0,
            n => self.latencies[((n - 1) as f64 * q).round() as usize].as_secs_f64() * 1e3,
        };
        let of_requests = |n: u64| ratio(n as f64, report.requests as f64);
        report.messages_per_request = of_requests(self.messages);
        report.bytes_per_request = of_requests(self.bytes);
        let reported = config.duration.saturating_sub(config.warm_up);
        report.goodput = ratio(report.good as f64, reported.as_secs_f64());
        report.goodput_weighted = self.accuracies.per_second(reported);
        let bad = report.dropped + report.late + self.failed;
        report.drop_rate = ratio(bad as f64, report.requests as f64);
        report.invalid_rate = ratio(self.invalid_ns as f64, self.busy_ns as f64);
        report.failed = self.failed;
        report.finish_rate = ratio(report.good as f64, report.requests as f64);
        if let Some(work) = &config.work {
            let finished = work.names.iter().zip(self.applications);
            report.applications = finished
                .map(|(name, of)| {
                    let finish_rate = ratio(of.good as f64, of.requests as f64);
                    (name.clone(), Finished { finish_rate, ..of })
                })
                .collect();
        }
        if let Some(load) = &self.clients {
            report.jain = clients::jain(load, &self.good_of, config.duration);
            report.clients = load.served(&self.good_of);
        }
        report.latency_ms_p50 = quantile(0.5);
        report.latency_ms_p90 = quantile(0.9);
        report.latency_ms_p99 = quantile(0.99);
        let total: Duration = self.latencies.iter().sum();
        report.latency_ms_mean = ratio(total.as_secs_f64() * 1e3, self.latencies.len() as f64);
        report.batch_size_mean = ratio(self.batch_members as f64, self.batches as f64);
        let n_devices = config
            .workers
            .iter()
            .flatten()
            .max()
            .map_or(0, |d| u64::from(*d) + 1);
        let of_devices = |ns: u64| ratio(ns as f64 * 1e-9, duration * n_devices as f64);
        report.utilisation = of_devices(self.busy_ns);
        report.rerun_utilisation = of_devices(self.rerun_ns);
        if let Some(models) = &mut report.models {
            models.load_utilisation = of_devices(self.load_ns);
        }
        if let Some(background) = &mut report.background {
            background.utilisation = of_devices(self.background_ns);
        }
        self.good.resize((duration.ceil() as usize).max(1), 0);
        let seconds = self.good.iter().skip(config.warm_up.as_secs() as usize);
        report.goodput_min = seconds.copied().min().map_or(0.0, f64::from);
        report.offered_by_second = self.offered;
        report.good_by_second = self.good_offered;
        report.events = events;
        report.trace_hash = format!("{hash:016x}");
        report
    }
}
