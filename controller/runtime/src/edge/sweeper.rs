//! Closes connections whose time is over, and has those retire that have their age.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spillgate_controller_policy::connection_admission::{Aged, Closing};
use tokio_util::sync::CancellationToken;

use super::{Edge, Why, nothing};

/// Resolution of the edge's time: limits are seconds.
const TICK: Duration = Duration::from_millis(100);
/// Ticks from one sweep of the connections to the next.
const TICKS: u32 = 10;

/// Sweeps until `stop` is cancelled.
pub(crate) async fn sweep(edge: Arc<Edge>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(TICK);
    let mut left = 0;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return,
        }
        let now = edge.now();
        edge.about_now.store(now.as_ns(), Ordering::Relaxed);
        if left == 0 {
            left = TICKS;
            edge.close_overdue();
        }
        left -= 1;
    }
}

impl Edge {
    fn close_overdue(&self) {
        let now = self.about_now();
        let mut open = self.open.lock();
        for (id, what) in open.admission.age(now) {
            let Some(connection) = open.connections.get(&id) else {
                continue;
            };
            match what {
                Aged::Retires => connection.retire(Why::Age),
                Aged::StreamsEnd => connection.depart(Why::Age),
            }
        }
        let connections = &open.connections;
        let uses = |id| connections.get(&id).map_or_else(nothing, |c| c.usage());
        for (id, why) in open.admission.sweep(now, uses) {
            let Some(connection) = connections.get(&id) else {
                continue;
            };
            let why = match why {
                Closing::Idle => "it had no call for long",
                Closing::Silent => "its streams brought nothing for long",
                Closing::Unread => "its client does not read its answers",
            };
            self.closed.fetch_add(1, Ordering::Relaxed);
            tracing::info!(address = %connection.peer(), why, "a connection is closed");
            connection.close();
        }
    }
}
