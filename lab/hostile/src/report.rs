//! The results of the attacks, as a table.

use spillgate_report::Table;

/// A polite client keeps at least this part of the good answers that it gets without an attack.
const KEEPS: f64 = 0.95;
/// Memory may exceed its budget by this many MB. Within 10 s after the attack it comes back to its idle value and this many MB.
pub(crate) const SLACK_MB: f64 = 50.0;

/// The results of an attack. Values that were not measured are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Good answers of a polite client alone, and of as many requests beside the attack.
    pub(crate) polite: Option<(u64, u64)>,
    /// Resident memory in MB.
    pub(crate) memory: Option<Memory>,
    /// Something else that was to hold, did.
    pub(crate) holds: Option<bool>,
}

/// Resident memory of the server in MB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) idle: f64,
    pub(crate) most: f64,
    /// After the attack: once it is given back, or ten seconds later.
    pub(crate) after: f64,
    pub(crate) budget: f64,
}

impl Memory {
    fn holds(&self) -> bool {
        self.most - self.idle <= self.budget + SLACK_MB && self.after - self.idle <= SLACK_MB
    }
}

/// A row of the table.
pub(crate) struct Row {
    name: String,
    polite: String,
    memory: String,
    pub(crate) holds: bool,
}

impl Row {
    pub(crate) fn of(name: &str, outcome: Outcome) -> Self {
        let polite_holds = outcome
            .polite
            .is_none_or(|(alone, beside)| beside as f64 >= KEEPS * alone as f64);
        let memory_holds = outcome.memory.is_none_or(|m| m.holds());
        Row {
            name: name.to_owned(),
            polite: outcome.polite.map_or("-".to_owned(), |(alone, beside)| {
                format!("{beside} of {alone}")
            }),
            memory: outcome.memory.map_or("-".to_owned(), |m| {
                format!(
                    "{:.0}, {:.0}, {:.0} ({:.0})",
                    m.idle, m.most, m.after, m.budget
                )
            }),
            holds: polite_holds && memory_holds && outcome.holds.unwrap_or(true),
        }
    }

    pub(crate) fn failed(name: &str, error: &anyhow::Error) -> Self {
        Row {
            name: name.to_owned(),
            polite: format!("{error:#}"),
            memory: "-".to_owned(),
            holds: false,
        }
    }

    /// On one line.
    pub(crate) fn line(&self) -> String {
        let holds = if self.holds { "holds" } else { "DOES NOT HOLD" };
        format!(
            "polite {}; MB idle, most, after (budget) {}: {holds}",
            self.polite, self.memory
        )
    }
}

/// All rows.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "attack",
        "polite client: good of what it has alone",
        "memory in MB: idle, most, after at most 10 s (budget)",
        "holds",
    ]);
    for row in rows {
        let holds = if row.holds { "yes" } else { "NO" };
        table.row([&row.name, &row.polite, &row.memory, holds]);
    }
    table
}
