//! Bandwidth over time, as measured somewhere: a file of the columns second,mbps, over and over.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Most bytes of a file: a year in seconds takes more, and no run is as long.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most megabits a second; no network of cameras has more.
const MBPS_MAX: f64 = 100_000.0;
const HEADER: &str = "second,mbps";

/// A stretch of one bandwidth.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Seconds from the start of the trace.
    from: f64,
    bits_per_second: f64,
    /// Bits that have passed before it.
    before: f64,
}

/// Bandwidths of a link. After the last one the first follows.
#[derive(Debug)]
pub(super) struct BandwidthTrace {
    /// Not empty; the first begins at 0.
    stretches: Vec<Stretch>,
    /// Seconds and bits of all.
    seconds: f64,
    bits: f64,
}

impl BandwidthTrace {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is no such trace; one line that names the file and the line in it.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let mut text = String::new();
        let n = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        let n = n.with_context(|| format!("cannot read {name}"))?;
        if n as u64 > FILE_BYTES_MAX {
            bail!(
                "{name}: the file has more than {} MiB; cut it",
                FILE_BYTES_MAX >> 20
            );
        }
        Self::parse(&name.to_string(), &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut lines = (1..).zip(text.lines());
        let header = lines.next().map_or("", |(_, line)| line.trim());
        if header != HEADER {
            bail!(
                "{name}:1: the first line is \"{}\"; it must be {HEADER}",
                cut(header)
            );
        }
        let mut rows: Vec<(f64, f64)> = Vec::new();
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let (second, mbps) = row(line).with_context(|| format!("{name}:{number}"))?;
            if let Some((last, _)) = rows.last()
                && second <= *last
            {
                bail!("{name}:{number}: second {second} is not after {last}; seconds must rise");
            }
            rows.push((second, mbps));
        }
        let Some(&(first, _)) = rows.first() else {
            bail!("{name}: there is no row below {HEADER}");
        };
        // The last row holds as long as the one before it.
        let seconds = match rows[..] {
            [.., (before, _), (last, _)] => last + (last - before) - first,
            _ => 1.0,
        };
        let ends = rows.iter().skip(1).map(|(second, _)| second - first);
        let ends: Vec<f64> = ends.chain([seconds]).collect();
        let mut bits = 0.0;
        let mut stretches = Vec::with_capacity(rows.len());
        for ((second, mbps), end) in rows.into_iter().zip(ends) {
            let stretch = Stretch {
                from: second - first,
                bits_per_second: mbps * 1e6,
                before: bits,
            };
            bits += stretch.bits_per_second * (end - stretch.from);
            stretches.push(stretch);
        }
        if bits <= 0.0 {
            bail!("{name}: every mbps is 0, so nothing would ever pass; one must be more");
        }
        Ok(BandwidthTrace {
            stretches,
            seconds,
            bits,
        })
    }

    /// Bits that the link carries until that time from its beginning.
    pub(super) fn carried(&self, until: Duration) -> f64 {
        let until = until.as_secs_f64();
        let rounds = (until / self.seconds).floor();
        let rest = until - rounds * self.seconds;
        let next = self.stretches.partition_point(|s| s.from <= rest);
        let stretch = &self.stretches[next.saturating_sub(1)];
        rounds * self.bits + stretch.before + stretch.bits_per_second * (rest - stretch.from)
    }

    /// The time from the beginning until that many bits have been carried.
    pub(super) fn time_of(&self, bits: f64) -> Duration {
        let rounds = (bits / self.bits).floor();
        let rest = bits - rounds * self.bits;
        // Where nothing passes for a while, the last of the stretches that begin with these bits.
        let next = self.stretches.partition_point(|s| s.before <= rest);
        let stretch = &self.stretches[next.saturating_sub(1)];
        let within = match stretch.bits_per_second > 0.0 {
            true => (rest - stretch.before) / stretch.bits_per_second,
            false => 0.0,
        };
        let seconds = rounds * self.seconds + stretch.from + within;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// A line of the file.
fn row(line: &str) -> Result<(f64, f64)> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [second, mbps] = fields[..] else {
        bail!(
            "\"{}\" has {} columns; there must be two, like 12,7.5",
            cut(line),
            fields.len()
        );
    };
    let number = |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite());
    let Some(second) = number(second).filter(|s| (0.0..=1e9).contains(s)) else {
        bail!(
            "second is \"{}\"; it must be a number from 0 on",
            cut(second)
        );
    };
    match number(mbps).filter(|m| (0.0..=MBPS_MAX).contains(m)) {
        Some(mbps) => Ok((second, mbps)),
        None => bail!(
            "mbps is \"{}\"; it must be a number from 0 to {MBPS_MAX}",
            cut(mbps)
        ),
    }
}

/// So much of a text as a message repeats.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn trace(rows: &str) -> BandwidthTrace {
        BandwidthTrace::parse("link.csv", &format!("{HEADER}\n{rows}")).unwrap()
    }

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn each_row_holds_until_the_next_and_after_the_last_the_first_follows() {
        let trace = trace("10,1\n11,0\n13,2\n");
        for (at, megabits) in [
            (0.0, 0.0),
            (0.5, 0.5),
            (1.0, 1.0),
            (2.9, 1.0),
            (4.0, 3.0),
            (5.0, 5.0),
            (5.5, 5.5),
            (501.0, 501.0),
        ] {
            assert!(
                (trace.carried(seconds(at)) - megabits * 1e6).abs() < 1.0,
                "{at}"
            );
        }
        for (megabits, at) in [(0.5, 0.5), (1.5, 3.25), (5.5, 5.5), (501.5, 503.25)] {
            let found = trace.time_of(megabits * 1e6).as_secs_f64();
            assert!((found - at).abs() < 1e-6, "{megabits}: {found}");
        }
    }

    #[test]
    fn one_row_is_a_constant_link() {
        let trace = trace("0,8\n");
        assert_eq!(trace.carried(seconds(2.5)), 20e6);
        assert_eq!(trace.time_of(20e6), seconds(2.5));
    }

    #[test]
    fn what_is_no_trace_says_where_and_why() {
        let error =
            |text: &str| format!("{:#}", BandwidthTrace::parse("link.csv", text).unwrap_err());
        for (text, says) in [
            (
                "",
                "link.csv:1: the first line is \"\"; it must be second,mbps",
            ),
            (
                "time,rate\n0,1",
                "link.csv:1: the first line is \"time,rate\"",
            ),
            ("second,mbps\n", "link.csv: there is no row"),
            (
                "second,mbps\n0,1\n1\n",
                "link.csv:3: \"1\" has 1 columns; there must be two, like 12,7.5",
            ),
            (
                "second,mbps\n0,fast",
                "link.csv:2: mbps is \"fast\"; it must be a number from 0 to",
            ),
            ("second,mbps\n0,-1", "link.csv:2: mbps is \"-1\""),
            ("second,mbps\n0,NaN", "link.csv:2: mbps is \"NaN\""),
            ("second,mbps\n0,1e300", "link.csv:2: mbps is \"1e300\""),
            (
                "second,mbps\ninf,1",
                "link.csv:2: second is \"inf\"; it must be a number from 0 on",
            ),
            (
                "second,mbps\n0,1\n\n0,2",
                "link.csv:4: second 0 is not after 0; seconds must rise",
            ),
            ("second,mbps\n0,0\n1,0", "link.csv: every mbps is 0"),
        ] {
            let said = error(text);
            assert!(said.starts_with(says), "{said}");
        }
    }
}
