//! What larger sets would cost, by sums of a few terms that were fitted to the rows that were simulated.

use spillgate_protocol::membership::MEMBERS_MAX;

use super::fit::{Fit, Terms};
use super::{Row, rate};
use crate::report::Report;

/// Sets, and gateways, workers and streams of each.
const SETS: [(u32, Row); 5] = [
    (1, (16, 512, 10_000)),
    (1, (64, 512, 10_000)),
    // As many processes as a controller knows.
    (1, (113, 910, 18_200)),
    (1, (625, 5000, 100_000)),
    (10, (64, 512, 10_000)),
];
/// A figure needs more rows than it has terms.
const ROWS_MIN: usize = 4;

/// What was measured at a row, a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) row: Row,
    pub(super) messages: f64,
    pub(super) bytes: f64,
    /// Messages of workers to gateways.
    pub(super) asks: f64,
    /// Seconds of one core.
    pub(super) cpu: f64,
}

/// What a request costs by itself, what it costs for each gateway, and what each pair of a gateway and a worker costs.
fn of_messages(row: Row) -> Terms {
    let (gateways, workers, _) = row;
    let (g, w, r) = (f64::from(gateways), f64::from(workers), rate(row));
    [r, r * g, g * w]
}

/// The same, where a request costs something for each pair.
fn of_cpu(row: Row) -> Terms {
    let [r, rg, gw] = of_messages(row);
    [r, rg, r * gw]
}

/// Writes the fit and the table, where enough rows were simulated.
pub(super) fn write(points: &[Point], page: &mut Report) {
    let fit = |terms: fn(Row) -> Terms, of: fn(&Point) -> f64| {
        let rows: Vec<(Terms, f64)> = points.iter().map(|p| (terms(p.row), of(p))).collect();
        Fit::of(&rows)
    };
    let fits = [
        fit(of_messages, |p| p.messages),
        fit(of_messages, |p| p.bytes),
        fit(of_messages, |p| p.asks),
        fit(of_cpu, |p| p.cpu),
    ];
    let [Some(messages), Some(bytes), Some(asks), Some(cpu)] = fits else {
        return;
    };
    if points.len() < ROWS_MIN {
        return;
    }
    page.say(
        "EXTRAPOLATED. Each figure a second is *a r + b r g + c g w* of *r* requests a second, *g* gateways and *w* workers, that of CPU \
         *a r + b r g + c r g w*, with the coefficients of no sign but + that have the least sum of squares of relative errors over the rows above.",
    );
    let named = [
        ("messages", &messages),
        ("bytes", &bytes),
        ("messages of workers to gateways", &asks),
        ("seconds of a core", &cpu),
    ];
    let coefficients = named.map(|(name, fit)| {
        let [a, b, c] = fit.coefficients.map(|c| format!("{c:.3e}"));
        let worst = format!("{:.0}%", 100.0 * fit.worst);
        vec![name.to_owned(), a, b, c, worst]
    });
    page.table(
        &["a second", "a", "b", "c", "largest error at a row"],
        &coefficients,
    );
    page.say(&format!(
        "Sets share nothing, so that several cost a multiple of one. A controller knows {MEMBERS_MAX} processes at most: a set with more gateways \
         and workers cannot be. *Heard* and *said* are the messages of workers to gateways, of one process."
    ));
    let sets = SETS.map(|(sets, row)| {
        let (gateways, workers, streams) = row;
        let n = f64::from(sets);
        let asks = asks.at(of_messages(row));
        let known = usize::from(gateways) + usize::from(workers);
        vec![
            sets.to_string(),
            gateways.to_string(),
            workers.to_string(),
            streams.to_string(),
            match known <= MEMBERS_MAX {
                true => known.to_string(),
                false => format!("{known}, too many"),
            },
            format!("{:.0}", n * rate(row)),
            format!("{:.2}", n * messages.at(of_messages(row)) / 1e6),
            format!("{:.0}", n * bytes.at(of_messages(row)) / 1e6),
            format!("{:.0}", asks / f64::from(gateways)),
            format!("{:.0}", asks / f64::from(workers)),
            format!("{:.0}", n * cpu.at(of_cpu(row))),
        ]
    });
    page.table(
        &[
            "sets",
            "gateways",
            "workers",
            "streams",
            "processes known",
            "requests/s",
            "million messages/s",
            "MB/s",
            "heard by a gateway/s",
            "said by a worker/s",
            "cores",
        ],
        &sets,
    );
}
