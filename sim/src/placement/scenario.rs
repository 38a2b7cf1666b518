//! A scenario: models, devices, and requests one by one. Its folder has `models.csv`, `arrivals.csv` (or `.gz`), `clients.csv` and
//! `system.json`, so that another program can serve the same requests.

use std::time::Duration;

use serde::Deserialize;
use spillgate_pipeline::id::{ModelId, WeightsId};
use spillgate_pipeline::pipeline::BACKGROUND_PART;
use spillgate_pipeline::time::Timestamp;
use thiserror::Error;

/// Most models, devices and clients of a scenario.
pub(crate) const COUNT_MAX: usize = 65_536;
/// Largest number in a column: times in milliseconds stay exact far beyond it.
const NUMBER_MAX: f64 = 1e12;

/// A line of a file that is not right.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {problem}")]
pub struct ScenarioError {
    /// The file of the folder.
    pub file: &'static str,
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// One model.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioModel {
    /// Its name.
    pub name: String,
    /// Pages of its weights.
    pub pages: u32,
    /// Time to read its weights.
    pub load: Duration,
    /// Input of one request, kB (1,000 bytes).
    pub input_kb: f64,
    /// Output of one request, kB.
    pub output_kb: f64,
    /// Execution time of a batch of each size.
    pub execution: Vec<Duration>,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives.
    pub at: Timestamp,
    /// Its model.
    pub model: ModelId,
    /// The time until its deadline.
    pub slo: Duration,
}

/// A client that sends its next request when one is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedLoop {
    /// Its model.
    pub model: ModelId,
    /// Requests that it has under way.
    pub concurrency: u32,
    /// The time until the deadline of each.
    pub slo: Duration,
}

/// Devices, links and noise.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Number of devices.
    pub gpus: u16,
    /// Pages of the weight cache of each.
    pub pages_per_gpu: u32,
    /// Size of a page, MB.
    pub page_mb: f64,
    /// What a link carries, MB/ms.
    pub link_mb_per_ms: f64,
    /// Travel of a message between placement and device, ms.
    pub net_ms: f64,
    /// Requests that arrive earlier are not counted, s.
    pub warm_s: f64,
    /// Closed-loop clients send nothing after this time, s.
    pub end_s: f64,
    /// Standard deviation of the normal factor by whose absolute value durations exceed their profile.
    pub noise_sigma: f64,
    /// How often there is a jitter.
    pub noise_jitter_p: f64,
    /// Its largest length, ms.
    pub noise_jitter_ms: f64,
    /// How often there is a spike.
    pub noise_spike_p: f64,
    /// Its mean length, ms: it lies between a half and one and a half of this.
    pub noise_spike_ms: f64,
    /// Seed of all three.
    pub noise_seed: u64,
    /// For each device, the models that are there from the start, by id and parted by blanks.
    pub initial: Vec<String>,
}

/// What is served.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Devices, links and noise.
    pub system: System,
    /// Batch sizes, rising from 1.
    pub sizes: Vec<u32>,
    /// Models, by id.
    pub models: Vec<ScenarioModel>,
    /// Requests, in order of arrival.
    pub arrivals: Vec<Arrival>,
    /// Clients with a closed loop.
    pub clients: Vec<ClosedLoop>,
    /// Models that are there from the start, by device.
    pub resident: Vec<Vec<WeightsId>>,
}

impl Scenario {
    /// Reads the texts of a scenario's files.
    ///
    /// # Errors
    /// The first line that is not right.
    pub fn parse(
        system: System,
        models: &str,
        arrivals: &str,
        clients: &str,
    ) -> Result<Scenario, ScenarioError> {
        check(&system)?;
        let (sizes, models) = parse_models(models)?;
        let n = models.len();
        let arrivals = parse_arrivals(arrivals, n)?;
        let clients = rows(CLIENTS, clients, "model,concurrency,slo_ms", |row| {
            Ok(ClosedLoop {
                model: row.model(0, n)?,
                concurrency: row.count(1, "concurrency")?,
                slo: match row.fields[2].trim() {
                    "none" => NO_SLO,
                    _ => row.ms(2, "slo_ms")?,
                },
            })
        })?;
        let mut resident = Vec::new();
        for (i, text) in system.initial.iter().enumerate() {
            let ids = text.split_whitespace().map(|id| {
                let id = id.parse::<u32>().ok().filter(|id| (*id as usize) < n);
                id.map(WeightsId).ok_or_else(|| {
                    let problem = format!(
                        "initial[{i}] is {text:?}; write ids of models below {n}, parted by blanks"
                    );
                    error(SYSTEM, 1, problem)
                })
            });
            resident.push(ids.collect::<Result<Vec<WeightsId>, ScenarioError>>()?);
        }
        Ok(Scenario {
            system,
            sizes,
            models,
            arrivals,
            clients,
            resident,
        })
    }
}

impl Scenario {
    /// The longest time of a batch with requests without an SLO, as [`Pipeline::background_time`](spillgate_pipeline::Pipeline) of one module
    /// has it.
    pub(super) fn background_time(&self) -> Duration {
        let clients = self.clients.iter().map(|c| c.slo);
        let all = self.arrivals.iter().map(|a| a.slo).chain(clients);
        let least = all.filter(|slo| *slo < NO_SLO).min();
        least.map_or(Duration::MAX, |slo| slo.mul_f64(BACKGROUND_PART))
    }
}

/// What clients without an SLO have.
pub const NO_SLO: Duration = Duration::MAX;

/// The columns of the requests of a scenario.
pub const ARRIVAL_COLUMNS: &str = "time_s,model,slo_ms";

/// Reads requests for that many models.
///
/// # Errors
/// The first line that is not right.
pub fn parse_arrivals(text: &str, models: usize) -> Result<Vec<Arrival>, ScenarioError> {
    let mut before = Timestamp::ZERO;
    rows(ARRIVALS, text, ARRIVAL_COLUMNS, |row| {
        let arrival = Arrival {
            at: Timestamp::from_ns((row.number(0, "time_s")? * 1e9).round() as u64),
            model: row.model(1, models)?,
            slo: row.ms(2, "slo_ms")?,
        };
        if arrival.at < before {
            return Err(row.wrong("the time is before that of the line above; sort the rows"));
        }
        before = arrival.at;
        Ok(arrival)
    })
}

const MODELS: &str = "models.csv";
const ARRIVALS: &str = "arrivals.csv";
const CLIENTS: &str = "clients.csv";
const SYSTEM: &str = "system.json";

fn error(file: &'static str, line: usize, problem: String) -> ScenarioError {
    ScenarioError {
        file,
        line,
        problem,
    }
}

fn check(system: &System) -> Result<(), ScenarioError> {
    let wrong = |problem: String| Err(error(SYSTEM, 1, problem));
    let numbers = [
        ("page_mb", system.page_mb),
        ("net_ms", system.net_ms),
        ("warm_s", system.warm_s),
        ("end_s", system.end_s),
        ("noise_sigma", system.noise_sigma),
        ("noise_jitter_p", system.noise_jitter_p),
        ("noise_jitter_ms", system.noise_jitter_ms),
        ("noise_spike_p", system.noise_spike_p),
        ("noise_spike_ms", system.noise_spike_ms),
    ];
    for (name, value) in numbers {
        if !(0.0..=NUMBER_MAX).contains(&value) {
            return wrong(format!("{name} is {value}; write a number from 0"));
        }
    }
    if !(system.link_mb_per_ms > 0.0 && system.link_mb_per_ms <= NUMBER_MAX) {
        return wrong(format!(
            "link_mb_per_ms is {}; write a number above 0",
            system.link_mb_per_ms
        ));
    }
    if system.gpus == 0 {
        return wrong("gpus is 0; write at least 1".to_owned());
    }
    if system.initial.len() != usize::from(system.gpus) {
        return wrong(format!(
            "initial has {} entries for {} gpus; write one for each",
            system.initial.len(),
            system.gpus
        ));
    }
    Ok(())
}

fn parse_models(text: &str) -> Result<(Vec<u32>, Vec<ScenarioModel>), ScenarioError> {
    const BEFORE: &str = "id,name,weights_mb,pages,load_ms,input_kb,output_kb";
    const SIZE: &str = "exec_ms_b";
    let header = text.lines().next().unwrap_or("").trim();
    let sizes = header.strip_prefix(BEFORE).and_then(|sizes| {
        let sizes = sizes.split(',').skip(1).map(|column| {
            let size = column.strip_prefix(SIZE)?;
            size.parse::<u32>().ok()
        });
        sizes.collect::<Option<Vec<u32>>>()
    });
    let rises = |sizes: &Vec<u32>| sizes.first() == Some(&1) && sizes.is_sorted_by(|a, b| a < b);
    let Some(sizes) = sizes.filter(rises) else {
        let problem = format!(
            "the header is {header:?}; write {BEFORE},{SIZE}1 and a column {SIZE}N for each larger size"
        );
        return Err(error(MODELS, 1, problem));
    };
    let mut id = 0;
    let models = rows(MODELS, text, header, |row| {
        if row.count(0, "id")? != id {
            return Err(row.wrong(&format!("the id is not {id}; number the models from 0")));
        }
        id += 1;
        let execution = (0..sizes.len()).map(|i| row.ms(7 + i, header_of(header, 7 + i)));
        let model = ScenarioModel {
            name: row.fields[1].to_owned(),
            pages: row.count(3, "pages")?,
            load: row.ms(4, "load_ms")?,
            input_kb: row.number(5, "input_kb")?,
            output_kb: row.number(6, "output_kb")?,
            execution: execution.collect::<Result<Vec<Duration>, ScenarioError>>()?,
        };
        if model.execution.contains(&Duration::ZERO) {
            return Err(row.wrong("an execution time is 0; write more"));
        }
        Ok(model)
    })?;
    if models.is_empty() {
        return Err(error(MODELS, 2, "there are no models".to_owned()));
    }
    Ok((sizes, models))
}

fn header_of(header: &str, column: usize) -> &str {
    header.split(',').nth(column).unwrap_or("exec_ms")
}

struct Row<'a> {
    file: &'static str,
    line: usize,
    fields: Vec<&'a str>,
}

impl Row<'_> {
    fn wrong(&self, problem: &str) -> ScenarioError {
        error(self.file, self.line, problem.to_owned())
    }

    fn number(&self, at: usize, name: &str) -> Result<f64, ScenarioError> {
        let text = self.fields[at];
        let value = text.trim().parse::<f64>().ok();
        value
            .filter(|v| (0.0..=NUMBER_MAX).contains(v))
            .ok_or_else(|| self.wrong(&format!("{name} is {text:?}; write a number from 0")))
    }

    fn count(&self, at: usize, name: &str) -> Result<u32, ScenarioError> {
        let text = self.fields[at];
        let value = text.trim().parse::<u32>().ok();
        value.filter(|v| (*v as usize) < COUNT_MAX).ok_or_else(|| {
            let problem = format!("{name} is {text:?}; write a whole number below {COUNT_MAX}");
            self.wrong(&problem)
        })
    }

    fn ms(&self, at: usize, name: &str) -> Result<Duration, ScenarioError> {
        let ms = self.number(at, name)?;
        Ok(Duration::from_nanos((ms * 1e6).round() as u64))
    }

    fn model(&self, at: usize, models: usize) -> Result<ModelId, ScenarioError> {
        let id = self.count(at, "model")?;
        if id as usize >= models {
            return Err(self.wrong(&format!("there is no model {id}; there are {models}")));
        }
        Ok(ModelId(id))
    }
}

fn rows<T>(
    file: &'static str,
    text: &str,
    header: &str,
    mut row: impl FnMut(&Row<'_>) -> Result<T, ScenarioError>,
) -> Result<Vec<T>, ScenarioError> {
    let mut lines = text.lines();
    let found = lines.next().unwrap_or("").trim();
    if found != header {
        let problem = format!("the header is {found:?}; write {header}");
        return Err(error(file, 1, problem));
    }
    let columns = header.split(',').count();
    let mut read = Vec::new();
    for (i, text) in lines.enumerate() {
        let fields: Vec<&str> = text.split(',').collect();
        let line = i + 2;
        if fields.len() != columns {
            let problem = format!("{text:?} has {} columns; write {columns}", fields.len());
            return Err(error(file, line, problem));
        }
        read.push(row(&Row { file, line, fields })?);
    }
    Ok(read)
}
