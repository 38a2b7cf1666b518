//! Parts of a closing summary that `stream` and `bench` share, as text.

use std::fmt::{Result, Write};
use std::time::Duration;

use spillgate_proto::pb::Outcome;

use crate::tally::{Latencies, Tally, Unserved, outcome_word};

pub(crate) fn write_outcomes(text: &mut String, tally: &Tally, elapsed: Duration) -> Result {
    let outcomes = &tally.outcomes;
    let percent = |n: u64| 100.0 * n as f64 / outcomes.total().max(1) as f64;
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let goodput = outcomes.completed as f64 / seconds;
    writeln!(
        text,
        "completed  {:>8}  {:5.1}%  goodput {goodput:.1}/s",
        outcomes.completed,
        percent(outcomes.completed)
    )?;
    for (name, n) in [
        ("late", outcomes.late),
        ("dropped", outcomes.dropped),
        ("refused", outcomes.refused),
        ("failed", outcomes.failed),
    ] {
        writeln!(text, "{name:<10} {n:>8}  {:5.1}%", percent(n))?;
    }
    if let Some(share) = tally.share {
        writeln!(
            text,
            "share      {share:>8.1}  requests/s: the fair share when a request was last refused for it"
        )?;
    }
    if tally.latency.count() > 0 {
        writeln!(
            text,
            "latency    {}  (from the moment a request was due)",
            quantiles(&tally.latency)
        )?;
        writeln!(text, "in server  {}", quantiles(&tally.server_latency))?;
    }
    Ok(())
}

fn quantiles(latencies: &Latencies) -> String {
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.1}ms"));
    format!(
        "p50 {}  p90 {}  p99 {}  max {}",
        ms(latencies.quantile_ms(0.5)),
        ms(latencies.quantile_ms(0.9)),
        ms(latencies.quantile_ms(0.99)),
        ms(latencies.max_ms()),
    )
}

pub(crate) fn write_causes(text: &mut String, tally: &Tally) -> Result {
    if tally.causes.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nnot served")?;
    for (cause, Unserved { requests, detail }) in &tally.causes {
        writeln!(
            text,
            "  {:<8} {:<14} {:<24} {requests:>8}",
            cause.outcome, cause.module, cause.reason
        )?;
        // A drop is explained by its reason; the numbers belong to one request only.
        let is_drop = cause.outcome == outcome_word(Outcome::Dropped);
        if !is_drop && !detail.is_empty() {
            writeln!(text, "           such as: {}", detail.replace('\n', " "))?;
        }
    }
    Ok(())
}

pub(crate) fn write_modules(text: &mut String, tally: &Tally) -> Result {
    if tally.modules.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n{:<14} {:>8}  {:>15}  {:>15}  {:>15}  {:>6}",
        "module", "requests", "queueing", "batch wait", "execution", "batch"
    )?;
    writeln!(
        text,
        "{:<14} {:>8}  {:>15}  {:>15}  {:>15}  {:>6}",
        "", "", "mean / p99 ms", "mean / p99 ms", "mean / p99 ms", "mean"
    )?;
    for (name, module) in &tally.modules {
        let pair = |latencies: &Latencies| {
            let (mean, p99) = (latencies.mean_ms(), latencies.quantile_ms(0.99));
            format!("{:.1} / {:.1}", mean.unwrap_or(0.0), p99.unwrap_or(0.0))
        };
        writeln!(
            text,
            "{name:<14} {:>8}  {:>15}  {:>15}  {:>15}  {:>6.1}",
            module.requests(),
            pair(&module.queueing),
            pair(&module.batch_wait),
            pair(&module.execution),
            module.mean_batch(),
        )?;
    }
    Ok(())
}

/// What is to be known about results.
pub(crate) fn write_notes(text: &mut String, tally: &Tally) -> Result {
    if tally.damaged > 0 {
        writeln!(
            text,
            "\nnote: the pictures of {} frames are damaged; they were served all the same, and their results say what was noticed",
            tally.damaged
        )?;
    }
    if tally.emulated > 0 {
        writeln!(
            text,
            "\nnote: {} results are emulated: no model computed them, and times come from profiles",
            tally.emulated
        )?;
    }
    Ok(())
}
