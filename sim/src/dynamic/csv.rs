//! Dynamic work as tables: arrivals `time_s,app,length_ms` and earlier lengths `app,length_ms`, so that another
//! implementation can be compared on the same requests. Texts are the input; the caller reads files.

use spillgate_pipeline::distribution::TIME_MS_MAX;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::schedule::APPLICATIONS_MAX;

use super::Job;

/// Columns of arrivals.
pub const ARRIVALS: &str = "time_s,app,length_ms";
/// Columns of a history.
pub const HISTORY: &str = "app,length_ms";
/// Latest arrival, s: 30 years.
const TIME_S_MAX: f64 = 1e9;

/// Why a table is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TableError {
    /// The first line does not name the columns.
    #[error("line 1: the columns are {expected}")]
    Columns {
        /// As they should be.
        expected: &'static str,
    },
    /// A line with too few or too many values.
    #[error("line {line}: {expected} are the columns")]
    Count {
        /// Its number, from one.
        line: usize,
        /// As they should be.
        expected: &'static str,
    },
    /// A value that is not a time.
    #[error("line {line}: {value:?} is no {column}; write a number from 0 to {max}")]
    Number {
        /// Its number, from one.
        line: usize,
        /// Which column.
        column: &'static str,
        /// The text in its place.
        value: String,
        /// The largest that is possible.
        max: f64,
    },
    /// An arrival before the one above it.
    #[error("line {line}: arrivals stand in order of time")]
    Order {
        /// Its number, from one.
        line: usize,
    },
    /// Too many applications.
    #[error("line {line}: more than {APPLICATIONS_MAX} applications")]
    Applications {
        /// Its number, from one.
        line: usize,
    },
}

/// Names of applications in order of first appearance: an [`Application`] is a position here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// The names, by ordinal.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    fn ordinal(&mut self, name: &str, line: usize) -> Result<Application, TableError> {
        let known = self.0.iter().position(|other| other == name);
        if known.is_none() {
            if self.0.len() == APPLICATIONS_MAX {
                return Err(TableError::Applications { line });
            }
            self.0.push(name.to_owned());
        }
        Ok(Application(known.unwrap_or(self.0.len() - 1) as u16))
    }
}

/// Reads arrivals.
///
/// # Errors
/// The first line that is wrong, with its number.
pub fn arrivals(text: &str, names: &mut Names) -> Result<Vec<Job>, TableError> {
    let mut jobs: Vec<Job> = Vec::new();
    for row in rows::<3>(text, ARRIVALS)? {
        let (line, [time, application, length]) = row?;
        let time_s = number(line, "time_s", time, TIME_S_MAX)?;
        let at = Timestamp::from_ns((time_s * 1e9).round() as u64);
        if jobs.last().is_some_and(|last| at < last.at) {
            return Err(TableError::Order { line });
        }
        jobs.push(Job {
            at,
            application: names.ordinal(application, line)?,
            length_ms: number(line, "length_ms", length, TIME_MS_MAX)?,
        });
    }
    Ok(jobs)
}

/// Reads the lengths of earlier requests.
///
/// # Errors
/// The first line that is wrong, with its number.
pub fn history(text: &str, names: &mut Names) -> Result<Vec<(Application, f64)>, TableError> {
    rows::<2>(text, HISTORY)?
        .map(|row| {
            let (line, [application, length]) = row?;
            let length_ms = number(line, "length_ms", length, TIME_MS_MAX)?;
            Ok((names.ordinal(application, line)?, length_ms))
        })
        .collect()
}

type Row<'a, const N: usize> = Result<(usize, [&'a str; N]), TableError>;

/// The values of each line below the header; empty lines are skipped.
fn rows<'a, const N: usize>(
    text: &'a str,
    expected: &'static str,
) -> Result<impl Iterator<Item = Row<'a, N>>, TableError> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map_or("", |(_, line)| line);
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    if columns.join(",") != expected {
        return Err(TableError::Columns { expected });
    }
    Ok(lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(move |(i, line)| {
            let values: Vec<&str> = line.split(',').map(str::trim).collect();
            let line = i + 1;
            let values = values.try_into();
            let values = values.map_err(|_| TableError::Count { line, expected })?;
            Ok((line, values))
        }))
}

fn number(line: usize, column: &'static str, text: &str, max: f64) -> Result<f64, TableError> {
    // NaN is in no range.
    let value = text.parse().ok().filter(|v| (0.0..=max).contains(v));
    value.ok_or_else(|| TableError::Number {
        line,
        column,
        value: text.to_owned(),
        max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let mut names = Names::default();
        let text = "time_s,app,length_ms\n0.5,chat,20\n\n0.75, photos ,90.5\n";
        let jobs = arrivals(text, &mut names).unwrap();
        assert_eq!(jobs[1].at, Timestamp::from_ns(750_000_000));
        assert_eq!(
            (jobs[1].application, jobs[1].length_ms),
            (Application(1), 90.5)
        );
        let lengths = history("app,length_ms\r\nphotos,88\r\nmail,5", &mut names).unwrap();
        assert_eq!(lengths, [(Application(1), 88.0), (Application(2), 5.0)]);
        assert_eq!(names.as_slice(), ["chat", "photos", "mail"]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let refused = |body: &str| {
            let text = format!("time_s,app,length_ms\n{body}");
            let error = arrivals(&text, &mut Names::default()).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            refused("0,a"),
            "line 2: time_s,app,length_ms are the columns"
        );
        assert_eq!(
            refused("1,a,5\n0,a,5"),
            "line 3: arrivals stand in order of time"
        );
        let text = "line 2: \"NaN\" is no length_ms; write a number from 0 to 1000000000";
        assert_eq!(refused("0,a,NaN"), text);
        assert!(refused("-1,a,5").contains("no time_s"));
        assert!(refused("0,a,-5").contains("no length_ms"));
        assert!(refused("0,a,inf").contains("no length_ms"));
        let many: String = (0..=APPLICATIONS_MAX)
            .map(|i| format!("0,a{i},5\n"))
            .collect();
        assert!(refused(&many).contains("more than 64 applications"));
        let error = history("length_ms,app\n", &mut Names::default()).unwrap_err();
        assert_eq!(error.to_string(), "line 1: the columns are app,length_ms");
        assert!(history("", &mut Names::default()).is_err());
    }
}
