//! Dynamic work from files: whose each request is, and how long.

use spillgate_pipeline::time::Timestamp;

use super::TraceError;

/// Header of arrivals with their work.
pub const ARRIVALS_HEADER: &str = "time_s,app,length_ms";
/// Header of earlier requests.
pub const HISTORY_HEADER: &str = "app,length_ms";
/// Latest arrival, in seconds, and longest length, in milliseconds: what a `Timestamp` holds with room to spare.
const MOST: f64 = 1e9;

/// A request of a file: arrival time, name of its application, length in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRow {
    /// When it arrives; zero in a history.
    pub at: Timestamp,
    /// Whose it is.
    pub application: String,
    /// How long.
    pub length_ms: f64,
}

fn error(line: usize, problem: String) -> TraceError {
    let line = Some(line);
    TraceError { line, problem }
}

/// Reads rows below the header `time_s,app,length_ms`, in order of time.
///
/// # Errors
/// The first line that is not so.
pub fn parse_requests(text: &str) -> Result<Vec<RequestRow>, TraceError> {
    let rows = rows(text, ARRIVALS_HEADER)?;
    let late = rows.windows(2).position(|pair| pair[1].at < pair[0].at);
    match late {
        // The header is line 1, the first row line 2.
        Some(i) => Err(error(
            i + 3,
            "comes before the line above it; sort the rows by time_s".to_owned(),
        )),
        None => Ok(rows),
    }
}

/// Reads rows below the header `app,length_ms`.
///
/// # Errors
/// The first line that is not so.
pub fn parse_history(text: &str) -> Result<Vec<RequestRow>, TraceError> {
    rows(text, HISTORY_HEADER)
}

fn rows(text: &str, header: &str) -> Result<Vec<RequestRow>, TraceError> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line.trim()));
    let found = lines.next().map_or("", |(_, line)| line);
    if found != header {
        return Err(error(1, format!("the header is {found:?}; write {header}")));
    }
    let mut rows = Vec::new();
    for (line, text) in lines {
        rows.push(row(text, header).map_err(|problem| error(line, problem))?);
    }
    if rows.is_empty() {
        return Err(error(2, "there are no rows below the header".to_owned()));
    }
    Ok(rows)
}

fn row(text: &str, header: &str) -> Result<RequestRow, String> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    if fields.len() != header.split(',').count() {
        return Err(format!(
            "{text:?} has {} columns; write {header}",
            fields.len()
        ));
    }
    let number = |name: &str, text: &str| match text.parse::<f64>() {
        Ok(value) if (0.0..=MOST).contains(&value) => Ok(value),
        _ => Err(format!(
            "{name} is {text:?}; write a number from 0 to {MOST:e}"
        )),
    };
    let (at, rest) = match fields.as_slice() {
        [at, rest @ ..] if rest.len() == 2 => (number("time_s", at)?, rest),
        rest => (0.0, rest),
    };
    if rest[0].is_empty() {
        return Err("app is empty; write the name of an application".to_owned());
    }
    Ok(RequestRow {
        at: Timestamp::from_ns((at * 1e9).round() as u64),
        application: rest[0].to_owned(),
        length_ms: number("length_ms", rest[1])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        let rows = parse_requests("time_s,app,length_ms\n0.5,a,20\n0.5, b ,90.5\n").unwrap();
        let first = RequestRow {
            at: Timestamp::from_ns(500_000_000),
            application: "a".to_owned(),
            length_ms: 20.0,
        };
        assert_eq!(rows[0], first);
        assert_eq!(
            (rows[1].application.as_str(), rows[1].length_ms),
            ("b", 90.5)
        );
        let history = parse_history("app,length_ms\nb,3\n").unwrap();
        assert_eq!(
            (history[0].at, history[0].length_ms),
            (Timestamp::ZERO, 3.0)
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, says) in [
            (
                "app,length_ms\na,1\n",
                "line 1: the header is \"app,length_ms\"; write time_s,app,length_ms",
            ),
            (
                "time_s,app,length_ms\n1,a\n",
                "line 2: \"1,a\" has 2 columns",
            ),
            (
                "time_s,app,length_ms\n1,a,NaN\n",
                "line 2: length_ms is \"NaN\"",
            ),
            (
                "time_s,app,length_ms\n1,a,-1\n",
                "line 2: length_ms is \"-1\"",
            ),
            ("time_s,app,length_ms\nx,a,1\n", "line 2: time_s is \"x\""),
            ("time_s,app,length_ms\n1,,1\n", "line 2: app is empty"),
            (
                "time_s,app,length_ms\n2,a,1\n1,a,1\n",
                "line 3: comes before",
            ),
            ("time_s,app,length_ms\n", "line 2: there are no rows"),
        ] {
            let error = parse_requests(text).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
