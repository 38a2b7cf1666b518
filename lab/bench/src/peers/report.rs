//! The measurements, as a table and as a document.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use spillgate_report::Table;

/// What the load client found.
#[derive(Debug, PartialEq)]
pub(super) struct Measured {
    /// Answers in time.
    good: u64,
    /// Part of the device time that went to requests without an answer in time.
    wasted: Option<f64>,
    /// For how long the devices went on when all clients were gone, seconds.
    drain_s: f64,
    /// Of the good answers, milliseconds.
    p99_ms: Option<f64>,
    /// How late the client itself was, 99th percentile, milliseconds.
    lag_p99_ms: f64,
}

impl Measured {
    /// From the client's JSON.
    pub(super) fn read(said: &Value) -> Result<Measured> {
        if let Some(error) = said["error"].as_str() {
            bail!("{error}");
        }
        let number = |key: &str| {
            said[key]
                .as_f64()
                .with_context(|| format!("the load client's result has no {key}"))
        };
        Ok(Measured {
            good: said["good"]
                .as_u64()
                .context("the load client's result has no good")?,
            wasted: said["wasted"].as_f64(),
            drain_s: number("drain_s")?,
            p99_ms: said["p99_ms"].as_f64(),
            lag_p99_ms: number("lag_p99_ms")?,
        })
    }
}

/// One server at one rate.
pub(super) enum Cell {
    Measured(Measured),
    Failed(String),
}

impl Cell {
    /// The text for the terminal.
    pub(super) fn line(&self, seconds: f64) -> String {
        match self {
            Cell::Measured(m) => format!(
                "{:.1} good/s, wasted {}, p99 {}, dead work after the load {:.1} s, client lag p99 {:.1} ms",
                m.good as f64 / seconds,
                percent(m.wasted),
                m.p99_ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms")),
                m.drain_s,
                m.lag_p99_ms,
            ),
            Cell::Failed(reason) => format!("FAILED: {reason}"),
        }
    }

    fn measured(&self) -> Option<&Measured> {
        match self {
            Cell::Measured(measured) => Some(measured),
            Cell::Failed(_) => None,
        }
    }
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.1}%", 100.0 * part))
}

/// One line that says why something could not be measured: the error, and the last of the log if there is any.
/// Paths in it begin at `root`.
pub(super) fn reason(error: &anyhow::Error, log: &str, root: &Path) -> String {
    let mut text = format!("{error:#}");
    if let Some(last) = log.lines().rev().find(|line| !line.trim().is_empty()) {
        let _ = write!(text, "; its output ends: {}", last.trim());
    }
    let text = text.replace(&format!("{}/", root.display()), "");
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// All of a run.
pub(super) struct Report {
    command: String,
    machine: String,
    seconds: f64,
    rates: Vec<u32>,
    offered: Vec<usize>,
    ideal: Vec<usize>,
    versions: Vec<String>,
    rows: Vec<(String, Vec<Cell>)>,
}

impl Report {
    pub(super) fn new(command: String, seconds: f64, rates: &[u32]) -> Report {
        Report {
            command,
            machine: machine_now(),
            seconds,
            rates: rates.to_vec(),
            offered: Vec::new(),
            ideal: Vec::new(),
            versions: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// The load at the next rate, and how much of it a perfect server could answer.
    pub(super) fn offer(&mut self, offered: usize, ideal: usize) {
        self.offered.push(offered);
        self.ideal.push(ideal);
    }

    /// A server takes part.
    pub(super) fn version(&mut self, version: String) {
        self.versions.push(version);
    }

    /// A server with its settings, at all rates.
    pub(super) fn row(&mut self, label: String, cells: Vec<Cell>) {
        self.rows.push((label, cells));
    }

    /// The table, and why cells are missing.
    pub(super) fn table(&self) -> String {
        let good = self.rates.iter().map(|rate| format!("good/s at {rate}"));
        let wasted = self.rates.iter().map(|rate| format!("wasted at {rate}"));
        let head = std::iter::once("server".to_owned())
            .chain(good)
            .chain(wasted);
        let last = "dead work after the load, s".to_owned();
        let mut table = Table::new(head.chain([last]));
        table.row(self.counts("offered", &self.offered));
        table.row(self.counts("ideal: 20 ms exactly, no overhead", &self.ideal));
        for (label, cells) in &self.rows {
            let good = cells.iter().map(|cell| match cell.measured() {
                Some(m) => format!("{:.1}", m.good as f64 / self.seconds),
                None => "failed".to_owned(),
            });
            let wasted = cells.iter();
            let wasted = wasted.map(|cell| percent(cell.measured().and_then(|m| m.wasted)));
            let drains = cells.iter().map(|cell| {
                let measured = cell.measured();
                measured.map_or("-".to_owned(), |m| format!("{:.1}", m.drain_s))
            });
            let drains: Vec<String> = drains.collect();
            let row = std::iter::once(label.clone()).chain(good).chain(wasted);
            table.row(row.chain([drains.join(", ")]));
        }
        let mut text = table.to_string();
        // A server that does not install fails everywhere for one reason.
        let mut told: Vec<&str> = Vec::new();
        for (label, cells) in &self.rows {
            for (rate, cell) in self.rates.iter().zip(cells) {
                if let Cell::Failed(reason) = cell
                    && !told.contains(&reason.as_str())
                {
                    let _ = write!(text, "\n{label}, {rate} req/s, failed: {reason}\n");
                    told.push(reason);
                }
            }
        }
        text
    }

    fn counts(&self, label: &str, counts: &[usize]) -> impl Iterator<Item = String> {
        let rates = counts
            .iter()
            .map(|count| format!("{:.1}", *count as f64 / self.seconds));
        let rest = std::iter::repeat_n(String::new(), self.rates.len() + 1);
        std::iter::once(label.to_owned()).chain(rates).chain(rest)
    }

    /// How late the client was at worst, as the 99th percentile of a load.
    fn worst_lag(&self) -> f64 {
        let cells = self.rows.iter().flat_map(|(_, cells)| cells);
        cells
            .filter_map(Cell::measured)
            .fold(0.0, |worst, m| m.lag_p99_ms.max(worst))
    }

    /// The whole of it, as Markdown.
    pub(super) fn document(&self) -> String {
        let versions: Vec<String> = self.versions.iter().map(|v| format!("- {v}\n")).collect();
        format!(
            "# Two modules of 20 ms under overload\n\
             \n\
             A test that users of other servers know: two modules of 20 ms each in a chain, batch 1, one worker each. They serve at\n\
             most 50 requests a second. Requests come as a Poisson process for {seconds} s at each rate, at the same times for every\n\
             server. The client gives each request up 200 ms after it was due. An answer by then is good.\n\
             \n\
             ```sh\n\
             {command}\n\
             ```\n\
             \n\
             writes this file when `--write` is added. It installs the other servers from PyPI (pins in `lab/bench/peers/`),\n\
             starts a fresh server for every cell, and drives all with one client. The figures are\n\
             those of one run; another run gives others.\n\
             \n\
             Machine: {machine}.\n\
             Server and client share it. The client itself was late by {lag:.1} ms at most (99th percentile of a cell), which counts\n\
             against the server.\n\
             \n\
             {versions}\
             \n\
             {table}\
             \n\
             - **Good/s** is good answers divided by the time of the load. Answers after its end count, too, so the ideal may exceed\n  \
               50.\n\
             - **Wasted** is the part of device time spent on requests that were not answered in time. Spillgate counts it itself\n  \
               (`spillgate_device_request_time_seconds_total`); the modules of the other servers note\n  \
               which request they run, and the client knows which requests were good.\n\
             - **Dead work** is the time for which devices went on after the last client had gone, one figure a rate.\n\
             - Spillgate is `apps/pipelines/two_stage.yaml` on emulated devices: defaults, nothing tuned. The modules of the\n  \
               others sleep for 20 ms in the one process, or thread, that is their worker, and also do so when no client waits.\n\
             - mosec and Ray Serve are driven over HTTP, where giving up is closing the connection; Spillgate and Triton over\n  \
               gRPC with its deadline. Ray's workers run at normal priority instead of its nice 15.\n\
             - Tuned settings are the best found by hand for this load. With other models they have to be found anew.\n",
            seconds = self.seconds,
            command = self.command,
            machine = self.machine,
            lag = self.worst_lag(),
            versions = versions.concat(),
            table = self.table(),
        )
    }
}

/// This machine in words, at this moment.
pub(super) fn machine_now() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    machine(&read("/proc/cpuinfo"), &read("/proc/loadavg"))
}

/// What a figure depends on most: how many cores of what kind, and what else they had to do.
fn machine(cpuinfo: &str, loadavg: &str) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let load = loadavg.split_whitespace().next().unwrap_or("unknown");
    format!("{cores} virtual cores ({model}), load average when the run began {load}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said() -> Value {
        json!({"offered": 30, "good": 29, "wasted": 0.0333, "drain_s": 0.25, "p50_ms": 42.0,
               "p99_ms": 150.4, "lag_p99_ms": 1.25, "outcomes": {"ok": 29, "given up": 1}})
    }

    fn report() -> Report {
        let mut report = Report::new("cargo xtask bench-peers".into(), 2.0, &[15, 60]);
        report.offer(30, 30);
        report.offer(121, 101);
        report.version("mosec from mosec==0.9.8".into());
        let failed = Cell::Failed("the server ended (signal: 11)".into());
        let measured = Cell::Measured(Measured::read(&said()).unwrap());
        report.row("mosec, default".into(), vec![measured, failed]);
        report
    }

    #[test]
    fn the_result_of_the_client_is_read() {
        let measured = Measured::read(&said()).unwrap();
        assert_eq!((measured.good, measured.wasted), (29, Some(0.0333)));
        let line = Cell::Measured(measured).line(2.0);
        assert!(
            line.starts_with("14.5 good/s, wasted 3.3%, p99 150 ms"),
            "{line}"
        );
        let error = Measured::read(&json!({"error": "no answer"})).unwrap_err();
        assert_eq!(error.to_string(), "no answer");
        assert!(Measured::read(&json!({"good": 1})).is_err());
        // Nothing ran and no request was answered.
        let nothing =
            json!({"good": 0, "wasted": null, "drain_s": 0.0, "p99_ms": null, "lag_p99_ms": 0.1});
        let line = Cell::Measured(Measured::read(&nothing).unwrap()).line(2.0);
        assert!(line.starts_with("0.0 good/s, wasted -, p99 -"), "{line}");
    }

    #[test]
    fn the_table_has_a_column_for_each_rate_and_says_what_failed() {
        assert_eq!(
            report().table(),
            "| server | good/s at 15 | good/s at 60 | wasted at 15 | wasted at 60 | dead work after the load, s |\n\
             |---|---|---|---|---|---|\n\
             | offered | 15.0 | 60.5 |  |  |  |\n\
             | ideal: 20 ms exactly, no overhead | 15.0 | 50.5 |  |  |  |\n\
             | mosec, default | 14.5 | failed | 3.3% | - | 0.2, - |\n\
             \n\
             mosec, default, 60 req/s, failed: the server ended (signal: 11)\n"
        );
    }

    #[test]
    fn the_document_names_command_machine_and_versions() {
        let text = report().document();
        for part in [
            "\ncargo xtask bench-peers\n",
            "\n- mosec from mosec==0.9.8\n",
            "virtual cores",
            "late by 1.2 ms",
            "\n| server |",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("\n\n\n"));
    }

    #[test]
    fn reasons_fit_a_line() {
        let root = Path::new("/somewhere/checkout");
        let error = anyhow::anyhow!("first\nsecond").context("does not start");
        let log = "noise\nlast words of /somewhere/checkout/bin/server\n\n";
        assert_eq!(
            reason(&error, log, root),
            "does not start: first second; its output ends: last words of bin/server"
        );
        let long = anyhow::anyhow!("é".repeat(400));
        assert_eq!(reason(&long, "", root).chars().count(), 303);
    }

    #[test]
    fn the_processor_is_named() {
        let text = "processor\t: 0\nmodel name\t: Abacus 9\n";
        let machine_text = machine(text, "0.25 0.5 0.75 1/100 99\n");
        assert!(
            machine_text
                .ends_with("virtual cores (Abacus 9), load average when the run began 0.25")
        );
        assert!(machine("", "").contains("(unknown processor)"));
    }
}
