//! What running processes say about themselves, and what the kernel says about the machine.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use xtask::process;

/// The metrics of the process with this admin port.
pub(crate) fn metrics(admin: &str) -> Result<String> {
    let mut connection = TcpStream::connect(admin)?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    // 1.0: the answer is not cut into chunks.
    write!(connection, "GET /metrics HTTP/1.0\r\nHost: {admin}\r\n\r\n")?;
    let mut text = String::new();
    connection
        .read_to_string(&mut text)
        .context("the metrics cannot be read")?;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        _ => bail!("no metrics: {}", text.lines().next().unwrap_or_default()),
    }
}

/// The day, as the page names it.
pub(crate) fn today() -> Result<String> {
    let said = process::capture(Command::new("date").args(["-u", "+%F"]))?;
    Ok(said.trim().to_owned())
}

/// The admin port that the log of a process names.
pub(crate) fn admin_address(log: &str) -> Option<String> {
    let line = log
        .lines()
        .find_map(|line| line.split_once("admin on http://"))?;
    Some(line.1.split_whitespace().next()?.to_owned())
}

/// Values of a metric, summed by one of its labels.
pub(crate) fn series(text: &str, name: &str, label: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let label = format!("{label}=\"");
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name).and_then(|r| r.strip_prefix('{')) else {
            continue;
        };
        let Some((labels, value)) = rest.rsplit_once("} ") else {
            continue;
        };
        let key = labels
            .split_once(&label)
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(key, _)| key);
        if let (Some(key), Ok(value)) = (key, value.trim().parse::<f64>()) {
            *values.entry(key.to_owned()).or_default() += value;
        }
    }
    values
}

/// Busy and whole time of all cores since the start, in ticks.
pub(crate) fn machine_time() -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat")?;
    machine_ticks(&text).context("/proc/stat has an unknown shape")
}

fn machine_ticks(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        // What guests had is in the first two already.
        .take(8)
        .map(|tick| tick.parse().ok())
        .collect::<Option<_>>()?;
    let all: u64 = ticks.iter().sum();
    // Idle, and idle with a disk at work.
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_by_a_label() {
        let text = "# TYPE x counter\n\
                    x_total{pipeline=\"a\",outcome=\"completed\"} 1.5\n\
                    x_total{pipeline=\"b\",outcome=\"completed\"} 2\n\
                    x_total{pipeline=\"b\",outcome=\"late\"} 0.25\n\
                    x_totals{outcome=\"late\"} 7\n";
        let values = series(text, "x_total", "outcome");
        let expected = [("completed".to_owned(), 3.5), ("late".to_owned(), 0.25)];
        assert_eq!(values, BTreeMap::from(expected));
    }

    #[test]
    fn the_admin_port_is_found_in_the_log() {
        let log = "pipeline tm\nadmin on http://127.0.0.1:39 (/metrics, /livez)\nlistening\n";
        assert_eq!(admin_address(log).unwrap(), "127.0.0.1:39");
        assert!(admin_address("listening\n").is_none());
    }

    #[test]
    fn idle_time_of_the_machine_is_told_from_the_rest() {
        let text = "cpu  10 1 5 80 4 0 0 0 3 0\ncpu0 1 2 3 4\n";
        assert_eq!(machine_ticks(text), Some((16, 100)));
        assert!(machine_time().unwrap().1 > 0);
        assert!(machine_ticks("intr 5\n").is_none());
    }
}
