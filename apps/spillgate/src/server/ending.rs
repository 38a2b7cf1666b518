//! The orderly end of a server.

use std::time::{Duration, Instant};

use tonic_health::ServingStatus;

use super::Server;
use crate::embedded::STOP_LIMIT;
use crate::health::set_health;

/// Connections on which nothing is in flight for this long are not waited for when the server stops.
const QUIET: Duration = Duration::from_millis(500);

/// How a server ended.
#[derive(Debug)]
pub struct Ended {
    /// Requests that did not end in the time given and were dropped.
    pub aborted: usize,
    /// Devices that were still busy and were left behind.
    pub busy_devices: Vec<String>,
    /// Spans that could not be exported in time.
    pub telemetry_flushed: bool,
}

impl Server {
    /// Says that it is about to stop: it is not ready, and its health is NOT_SERVING. It serves on, also clients that come
    /// now, so that they have time to hear of it. What is served is not replaced any more.
    pub async fn leave(&self) {
        self.leaves.cancel();
        self.serving.close();
        let hosts = self.serving.all_hosts();
        set_health(&self.health, &hosts, ServingStatus::NotServing).await;
    }

    /// Stops in order: no new calls, those in flight end or are dropped when their time is over, streams end once what they
    /// took is answered, connections close, devices end, telemetry is flushed. Bounded at each step.
    pub async fn stop(self) -> Ended {
        self.leave().await;
        let Server {
            context,
            telemetry,
            serving,
            stop,
            connections,
            ..
        } = self;
        let running = serving.all_running();
        stop.cancel();
        connections.close();
        let give_up = Instant::now() + context.drain;
        let mut quiet_since = Instant::now();
        // Calls that were on their way when their clients heard of the end are served. A client that never hears of it, or
        // keeps its connection open, is not waited for.
        while !connections.is_empty() && quiet_since.elapsed() < QUIET && Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(2)).await;
            if serving.in_flight() > 0 {
                quiet_since = Instant::now();
            }
        }
        for host in serving.all_hosts() {
            host.drain();
        }
        let aborted = serving.in_flight();
        for embedded in running.iter().filter(|of| !of.links.is_empty()) {
            // Requests of other gateways.
            let left = give_up.saturating_duration_since(Instant::now());
            embedded.leave(left).await;
        }
        for host in serving.all_hosts() {
            host.abort();
        }
        for served in serving.all() {
            served.part().await;
        }
        if let Some(set) = &context.set {
            set.port.end().await;
        }
        // Answers that are not read by then are cut off.
        if tokio::time::timeout(QUIET, connections.wait())
            .await
            .is_err()
        {
            tracing::info!("clients kept their connections open; closing them");
        }
        let (busy_devices, telemetry_flushed) = tokio::task::spawn_blocking(move || {
            let busy = running.iter().flat_map(|of| of.stop(STOP_LIMIT)).collect();
            (busy, telemetry.shutdown(STOP_LIMIT))
        })
        .await
        .unwrap_or_default();
        Ended {
            aborted,
            busy_devices,
            telemetry_flushed,
        }
    }
}
