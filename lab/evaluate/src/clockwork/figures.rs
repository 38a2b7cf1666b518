//! Figures 5, 6 and 7 of the paper.

use spillgate_sim::placement::{End, NO_SLO, Outcome, Scenario};

use super::scenarios::{self, ENDLESS_SLO, Table};
use super::{Case, cases, head, table};
use crate::report::{Report, mean};

/// SLO of the paper's multiple 1, ms.
const ONCE_MS: f64 = 2.9;

pub(super) fn copies(profiles: &Table, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    const SLOS: [f64; 6] = [10.0, 25.0, 50.0, 100.0, 250.0, 500.0];
    let named = SLOS.map(|slo| Ok((slo.to_string(), scenarios::copies(profiles, slo, seconds)?)));
    let named: Vec<(String, Scenario)> = named.into_iter().collect::<anyhow::Result<_>>()?;
    let cases = cases("copies", &named, report)?;
    report.say(
        "## Figure 5: 15 copies of ResNet50 on one device, 16 requests of each under way\n\nGoodput in requests a second, and in brackets the 99th \
         percentile of the latency of requests in time in ms, by SLO in ms. The paper says \"approximately 800 r/s\" and a latency of about 300 ms \
         at 500 ms. Its batch of 16 takes 20 ms there; it takes 15.67 ms in Table 1.",
    );
    let rows: Vec<Vec<String>> = cases
        .iter()
        .map(|case| {
            let mut row = vec![case.name.clone()];
            row.extend(case.runs.iter().map(|(f, _)| {
                let p99 = f.p99_ms.map_or("-".to_owned(), |ms| format!("{ms:.0}"));
                format!("{:.0} ({p99})", f.goodput)
            }));
            row.push(format!("{:.0}", case.bound));
            row.push(
                if case.name == "500" {
                    "~800 (~300)"
                } else {
                    ""
                }
                .to_owned(),
            );
            row
        })
        .collect();
    table(report, &head("SLO", &["bound", "paper: Clockwork"]), &rows);
    Ok(())
}

pub(super) fn major(profiles: &Table, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    const ACTIVE: [u32; 8] = [1, 10, 50, 100, 200, 400, 1200, 3600];
    let named = ACTIVE.map(|n| Ok((n.to_string(), scenarios::major(profiles, n, seconds)?)));
    let named: Vec<(String, Scenario)> = named.into_iter().collect::<anyhow::Result<_>>()?;
    let cases = cases("major", &named, report)?;
    report.say(
        "## Figure 6: a major workload of 1,000 r/s over more and more models, and a minor one of 200 r/s for one model\n\nOne device, SLO 100 ms. \
         Each number of models is a run of its own. Goodput in requests a second: all, and in brackets that of the minor workload. In the paper \
         memory is full with 201 models, and the minor workload's goodput gradually grows back to 200 r/s.",
    );
    let rows: Vec<Vec<String>> = cases
        .iter()
        .map(|case| {
            let mut row = vec![case.name.clone()];
            row.extend(case.runs.iter().map(|(f, outcomes)| {
                let (_, minor) = in_time(case, outcomes, is_minor);
                format!("{:.0} ({:.0})", f.goodput, minor as f64 / case.span)
            }));
            row.push(format!("{:.0}", case.bound));
            row.push(if case.name == "3600" { "(200)" } else { "" }.to_owned());
            row
        })
        .collect();
    table(
        report,
        &head("models", &["bound", "paper: Clockwork"]),
        &rows,
    );
    report.say(
        "The same runs: the part of the time in which the device executes / the link carries weights, and in brackets the mean latency of \
         the minor workload's requests in time in ms. The paper's link is saturated once memory is full, and its minor workload's mean latency \
         drops back to 20 ms at about 1,200 models.",
    );
    let rows: Vec<Vec<String>> = cases
        .iter()
        .map(|case| {
            let mut row = vec![case.name.clone()];
            row.extend(case.runs.iter().map(|(f, outcomes)| {
                let latency = mean(outcomes.iter().filter_map(|o| match o.end {
                    End::Answered(l) if counts(case, o) && is_minor(o) && o.is_in_time() => {
                        Some(l.as_secs_f64() * 1e3)
                    }
                    _ => None,
                }));
                let (exec, link) = (f.exec_utilisation, f.link_utilisation);
                format!("{exec:.2} / {link:.2} ({latency:.0})")
            }));
            row.push(if case.name == "1200" { "(20)" } else { "" }.to_owned());
            row
        })
        .collect();
    table(report, &head("models", &["paper: Clockwork"]), &rows);
    Ok(())
}

/// A request of the minor workload of Figure 6.
fn is_minor(outcome: &Outcome) -> bool {
    outcome.model.idx() == 0
}

/// Whether a request arrived after the warm-up.
fn counts(case: &Case, outcome: &Outcome) -> bool {
    outcome.at.as_secs_f64() >= case.warm_s
}

/// How many counted requests there are of a kind, and how many of them are in time.
fn in_time(
    case: &Case,
    outcomes: &[Outcome],
    is_meant: impl Fn(&Outcome) -> bool,
) -> (usize, usize) {
    let meant = outcomes.iter().filter(|o| counts(case, o) && is_meant(o));
    meant.fold((0, 0), |(n, good), o| {
        (n + 1, good + usize::from(o.is_in_time()))
    })
}

pub(super) fn low(profiles: &Table, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    /// Of the execution time alone; the paper multiplies by 1.5 from 1.
    const TIMES: [f64; 9] = [1.0, 1.5, 2.3, 3.4, 5.1, 7.6, 11.4, 17.1, 25.6];
    report.say(
        "## Figure 7, left: how low the SLO may be\n\nSix devices, N copies of ResNet50 and R requests a second in all, Poisson. The share in time, by \
         SLO as a multiple of 2.9 ms, the paper's figure for a request alone (2.61 ms in Table 1). The paper says from which SLO on its Clockwork \
         satisfies requests: 3.4 for R = 600, 7.6 for R = 1200, 25.6 for R = 2400, whatever N is.",
    );
    for (n, (rate, satisfied)) in [12u32, 48]
        .into_iter()
        .flat_map(|n| [(600.0, 3.4), (1200.0, 7.6), (2400.0, 25.6)].map(|r| (n, r)))
    {
        let named = TIMES.map(|times| {
            let scenario = scenarios::low(profiles, n, rate, times * ONCE_MS, seconds)?;
            Ok((format!("N={n} R={rate} {times}"), scenario))
        });
        let named: Vec<(String, Scenario)> = named.into_iter().collect::<anyhow::Result<_>>()?;
        let cases = cases("low", &named, report)?;
        report.say(&format!("N = {n}, R = {rate}:"));
        let rows: Vec<Vec<String>> = cases
            .iter()
            .zip(TIMES)
            .map(|(case, times)| {
                let mut row = vec![times.to_string()];
                row.extend(case.runs.iter().map(|(f, _)| format!("{:.3}", f.share)));
                row.push(format!("{:.3}", case.bound_share()));
                row.push(if times == satisfied { "satisfied" } else { "" }.to_owned());
                row
            })
            .collect();
        table(report, &head("SLO", &["bound", "paper: Clockwork"]), &rows);
    }
    Ok(())
}

pub(super) fn isolated(profiles: &Table, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    const TIMES: [f64; 6] = [2.3, 5.1, 7.6, 11.4, 17.1, 25.6];
    report.say(
        "## Figure 7, right: latency-sensitive requests beside batch clients\n\nSix devices, six latency-sensitive models at 200 r/s each, and M batch clients \
         with C requests under way and no SLO. The share in time of the latency-sensitive requests, and in brackets the answers to \
         batch clients a second, by SLO as a multiple of 2.9 ms. The bound is on both together, in requests a second. The paper gives no \
         figures. It says that many latency-sensitive requests are rejected below 11.4, and that large batches of batch clients keep them \
         from 100% under any SLO. As in the paper, batch clients have an SLO longer than the run. In the tables with `slo: none` they have none, as those of a \
         server (docs/fairness.md): they come after all others, in batches of at most a tenth of the SLO.",
    );
    let endless = [(0, 1), (12, 16), (48, 4)].map(|(m, c)| (m, c, ENDLESS_SLO));
    let none = [(12, 16), (48, 4)].map(|(m, c)| (m, c, NO_SLO));
    for clients in endless.into_iter().chain(none) {
        let class = match clients.2 {
            NO_SLO => ", `slo: none`",
            _ => "",
        };
        let named = TIMES.map(|times| {
            let scenario = scenarios::isolated(profiles, clients, times * ONCE_MS, seconds)?;
            let (m, c, _) = clients;
            Ok((format!("M={m} C={c}{class} {times}"), scenario))
        });
        let named: Vec<(String, Scenario)> = named.into_iter().collect::<anyhow::Result<_>>()?;
        let cases = cases("isolated", &named, report)?;
        report.say(&format!("M = {}, C = {}{class}:", clients.0, clients.1));
        let rows: Vec<Vec<String>> = cases
            .iter()
            .zip(TIMES)
            .map(|(case, times)| {
                let mut row = vec![times.to_string()];
                row.extend(case.runs.iter().map(|(_, outcomes)| {
                    let (n, good) = in_time(case, outcomes, |o| o.client.is_none());
                    let (_, batch) = in_time(case, outcomes, |o| o.client.is_some());
                    let share = good as f64 / n.max(1) as f64;
                    format!("{share:.3} ({:.0})", batch as f64 / case.span)
                }));
                row.push(format!("{:.0}", case.bound));
                row
            })
            .collect();
        table(report, &head("SLO", &["bound"]), &rows);
    }
    Ok(())
}
