//! Parses texts to traces and arrival times. Errors name the line and what would be right.

use spillgate_pipeline::time::Timestamp;

use super::{Trace, TraceError};

/// Headers of the two columns, and what an interval is under each.
const HEADERS: [(&str, &str); 3] = [
    ("second,rate", "second"),
    ("minute,count", "minute"),
    ("hour,count", "hour"),
];

/// Latest arrival time, in seconds: a `Timestamp` holds more.
const LATEST: f64 = 1e9;

fn error(line: usize, problem: String) -> TraceError {
    let line = Some(line);
    TraceError { line, problem }
}

/// Reads a CSV of two columns: the header `second,rate`, `minute,count` or `hour,count`, then rows with rising
/// index and the number of requests in that interval.
///
/// # Errors
/// The first line that is not of this form.
pub fn parse_trace(text: &str) -> Result<Trace, TraceError> {
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    let header = lines.next().map_or("", |(_, line)| line.trim());
    let Some((_, unit)) = HEADERS.iter().find(|(name, _)| *name == header) else {
        let problem =
            format!("the header is {header:?}; write second,rate or minute,count or hour,count");
        return Err(error(1, problem));
    };
    let mut rows: Vec<(u64, f64)> = Vec::new();
    for (line, text) in lines {
        let Some((index, count)) = text.split_once(',') else {
            let problem =
                format!("{text:?} has not two columns; write one row a line, like 17,250");
            return Err(error(line, problem));
        };
        let Ok(index) = index.trim().parse::<u64>() else {
            let problem = format!("the {unit} is {index:?}; write a whole number from 0");
            return Err(error(line, problem));
        };
        let count = match count.trim().parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => value,
            _ => {
                let problem = format!("the number of requests is {count:?}; write a number from 0");
                return Err(error(line, problem));
            }
        };
        if let Some((before, _)) = rows.last()
            && *before >= index
        {
            let problem =
                format!("{unit} {index} comes after {before}; sort the rows, each {unit} once");
            return Err(error(line, problem));
        }
        rows.push((index, count));
    }
    if rows.is_empty() {
        return Err(error(2, "there are no rows below the header".to_owned()));
    }
    Ok(Trace { unit, rows })
}

/// Reads one arrival time in seconds a line, in order; equal times are allowed. Headers, comments and blank lines are
/// errors: such a file is made by a program, and anything else in it is a mistake.
///
/// # Errors
/// The first line that is not of this form.
pub fn parse_arrivals(text: &str) -> Result<Vec<Timestamp>, TraceError> {
    let mut times: Vec<Timestamp> = Vec::new();
    for (i, text) in text.lines().enumerate() {
        let wrong = |problem: String| Err(error(i + 1, problem));
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            let what = if text.is_empty() {
                "a blank line"
            } else {
                "a comment"
            };
            return wrong(format!(
                "{what}; write nothing but one arrival time in seconds a line"
            ));
        }
        let at = match text.parse::<f64>() {
            Ok(at) if (0.0..=LATEST).contains(&at) => Timestamp::from_ns((at * 1e9).round() as u64),
            _ => {
                return wrong(format!(
                    "{text:?} is not a time; write seconds from 0, like 0.0125"
                ));
            }
        };
        if let Some(before) = times.last()
            && *before > at
        {
            return wrong(format!(
                "{text} comes before the line above it; sort the times"
            ));
        }
        times.push(at);
    }
    if times.is_empty() {
        return Err(error(
            1,
            "no arrivals; write one time in seconds a line".to_owned(),
        ));
    }
    Ok(times)
}
