//! The memory of processes from the start of each to its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::set::resident;

/// A process has its buffers and caches by this age.
const SETTLED: Duration = Duration::from_secs(60);
/// In a short run: by this part of it.
const SETTLED_PART: u32 = 8;
/// A life that lasts this many times as long is judged.
const JUDGED: u32 = 3;
/// Its memory grows by this part at most.
const GROWTH_MAX: f64 = 0.1;

/// A process from its start to its end.
struct Life {
    name: String,
    began: Instant,
    seen: Instant,
    /// Resident memory in MB, once it was settled, and when it was seen last.
    settled: Option<f64>,
    last: f64,
}

/// All lives, by process id.
pub(super) struct Lives {
    settled: Duration,
    lives: BTreeMap<u32, Life>,
}

impl Lives {
    pub(super) fn new(run: Duration) -> Self {
        Lives {
            settled: SETTLED.min(run / SETTLED_PART),
            lives: BTreeMap::new(),
        }
    }

    /// Looks at the processes that live.
    pub(super) fn look<'a>(&mut self, pids: impl Iterator<Item = (&'a str, u32)>) {
        let now = Instant::now();
        for (name, pid) in pids {
            let Some(memory) = resident(pid) else {
                continue;
            };
            let life = self.lives.entry(pid).or_insert_with(|| Life {
                name: name.to_owned(),
                began: now,
                seen: now,
                settled: None,
                last: memory,
            });
            (life.seen, life.last) = (now, memory);
            if now - life.began >= self.settled {
                life.settled.get_or_insert(memory);
            }
        }
    }

    /// The lives that were long enough as a table, and those that grew too much.
    pub(super) fn judge(&self) -> (String, Vec<String>) {
        let settled = self.settled.as_secs();
        let mut text = format!(
            "| process | lived s | resident MB after {settled} s | at the end | growth |\n|---|---|---|---|---|\n"
        );
        let mut grown = Vec::new();
        let mut n_judged = 0;
        for (pid, life) in &self.lives {
            let age = life.seen - life.began;
            let Some(first) = life.settled.filter(|_| age >= JUDGED * self.settled) else {
                continue;
            };
            n_judged += 1;
            let growth = life.last / first - 1.0;
            let Life { name, last, .. } = life;
            let (age, percent) = (age.as_secs(), 100.0 * growth);
            let _ = writeln!(
                text,
                "| {name} | {age} | {first:.1} | {last:.1} | {percent:+.1}% |"
            );
            if growth > GROWTH_MAX {
                let limit = 100.0 * GROWTH_MAX;
                grown.push(format!(
                    "{name} (process {pid}) grew by {percent:.1}% in {age} s, more than {limit}%"
                ));
            }
        }
        if n_judged == 0 {
            grown.push("no process lived for so long that its memory can be judged".to_owned());
        }
        let _ = write!(
            text,
            "{n_judged} of {} lives were long enough",
            self.lives.len()
        );
        (text, grown)
    }
}
