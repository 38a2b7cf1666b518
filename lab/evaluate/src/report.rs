//! Tables and plots of one section, and the runs behind them.

use std::fmt::Display;
use std::path::Path;

use anyhow::Context;
use spillgate_chart::lines::{self, Series};
use spillgate_report::{Page, Table};
use spillgate_sim::Run;

use super::{Print, read_table};

/// A section's page.
pub(super) struct Report {
    name: &'static str,
    page: Page,
    charts: Vec<(String, String)>,
    csv: String,
}

/// Mean of some numbers; 0 of none.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0u32);
    for value in values {
        sum += value;
        n += 1;
    }
    if n == 0 { 0.0 } else { sum / f64::from(n) }
}

/// A cell of a table in CSV.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// Makes the folder of a page, and checks that the page can be written, before hours are spent on its figures.
pub(super) fn prepare(folder: &Path, name: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{} cannot be made", folder.display()))?;
    Ok(spillgate_output::check(&folder.join(format!("{name}.md")))?)
}

impl Report {
    pub(super) fn new(name: &'static str, title: &str) -> Self {
        let command = format!("spillgate-lab evaluate pard --section {name}");
        let head = "case,variant,policy,dispatch,plan,load,requests,good,late,dropped,failed,drop_rate,invalid_rate,\
                  goodput,optimal_goodput,p50_ms,p99_ms,trace_hash\n";
        let command = format!("`{command}` (`--traces FOLDER` for real traces)");
        Self::made(name, title, &command, head)
    }

    /// A page that says which command wrote it, and the head of the table behind it.
    pub(super) fn titled(name: &'static str, title: &str, command: &str, head: &str) -> Self {
        Self::made(name, title, &format!("`{command}`"), head)
    }

    fn made(name: &'static str, title: &str, how: &str, head: &str) -> Self {
        let mut page = Page::new(title);
        page.say(how);
        Report {
            name,
            page,
            charts: Vec::new(),
            csv: head.to_owned(),
        }
    }

    /// A line of the table behind the page.
    pub(super) fn line(&mut self, cells: &[&dyn Display]) {
        let cells: Vec<String> = cells.iter().map(|cell| quoted(&cell.to_string())).collect();
        self.csv.push_str(&cells.join(","));
        self.csv.push('\n');
    }

    /// A paragraph.
    pub(super) fn say(&mut self, text: &str) {
        self.page.say(text);
    }

    /// A table.
    pub(super) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let mut table = Table::new(head);
        rows.iter().for_each(|row| table.row(row));
        self.page.table(&table);
    }

    /// A plot of curves over the same x values.
    pub(super) fn chart(&mut self, name: &str, title: &str, axes: (&str, &str), series: &[Series]) {
        let file = format!("{}_{name}.svg", self.name);
        self.page.say(&format!("![{title}]({file})"));
        self.charts.push((file, lines::svg(title, axes, series)));
    }

    /// Keeps the runs behind a table, for the file beside the page.
    pub(super) fn runs(&mut self, case: &str, labels: &[String], row: &[Run]) {
        for (label, run) in labels.iter().zip(row) {
            let r = &run.report;
            let counts = [r.requests, r.good, r.late, r.dropped, r.failed];
            let [requests, good, late, dropped, failed] = counts;
            let shares = [r.drop_rate, r.invalid_rate].map(|share| format!("{share:.5}"));
            let rates = [
                r.goodput,
                run.optimal_goodput,
                r.latency_ms_p50,
                r.latency_ms_p99,
            ];
            let [goodput, optimal, p50, p99] = rates.map(|rate| format!("{rate:.2}"));
            self.line(&[
                &case,
                label,
                &run.policy,
                &run.dispatch,
                &run.plan,
                &run.load,
                &requests,
                &good,
                &late,
                &dropped,
                &failed,
                &shares[0],
                &shares[1],
                &goodput,
                &optimal,
                &p50,
                &p99,
                &r.trace_hash,
            ]);
        }
    }

    /// Writes the page, its plots and its runs, and prints the page. The part that people wrote of the page that was there
    /// follows at its end.
    pub(super) fn write(&self, folder: &Path, print: Print) -> anyhow::Result<()> {
        let page = format!("{}.md", self.name);
        let old = folder.join(&page);
        let old = if old.exists() {
            read_table(&old)?
        } else {
            String::new()
        };
        let mut files = self.charts.clone();
        files.push((page, self.page.text(&old)));
        files.push((format!("{}.csv", self.name), self.csv.clone()));
        for (file, text) in files {
            let path = folder.join(file);
            spillgate_output::write(&path, text)?;
        }
        Ok(print(&self.page.text(""))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_written_anew_keeps_what_people_wrote() {
        let folder = std::env::temp_dir().join(format!("spillgate-report-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x.md");
        let write = |said: &str| {
            let mut report = Report::titled("x", "X", "x", "a\n");
            report.say(said);
            report.write(&folder, |_| Ok(())).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        let page = write("One.");
        assert_eq!(page, "# X\n\n`x`\n\nOne.\n");
        std::fs::write(&path, page + "\n## Reading it\n\nIt is more.\n").unwrap();
        let kept = "# X\n\n`x`\n\nTwo.\n\n## Reading it\n\nIt is more.\n";
        assert_eq!(write("Two."), kept);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_with_commas_stay_one_cell() {
        let mut report = Report::titled("x", "X", "x", "a,b\n");
        report.line(&[&"pard, lambda 0.75", &0.5]);
        report.line(&[&"say \"no\"", &1]);
        assert_eq!(
            report.csv,
            "a,b\n\"pard, lambda 0.75\",0.5\n\"say \"\"no\"\"\",1\n"
        );
    }
}
