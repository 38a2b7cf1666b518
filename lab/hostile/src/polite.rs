//! A client that sends no more requests than the server can serve.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};

/// The requests of a polite client.
#[derive(Clone)]
pub(crate) struct Polite {
    pub(crate) frame: Bytes,
    pub(crate) rate: f64,
}

/// Their results.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Went {
    pub(crate) asked: u64,
    pub(crate) good: u64,
    /// Answers of any kind: each request has exactly one.
    pub(crate) answered: u64,
}

impl Polite {
    /// Sends requests at equal distances for that long, and waits for every answer.
    pub(crate) async fn ask(
        &self,
        address: SocketAddr,
        duration: Duration,
    ) -> anyhow::Result<Went> {
        let client = SpillgateClient::connect(format!("http://{address}"))
            .await?
            .max_decoding_message_size(usize::MAX);
        let mut ticks = interval_at(Instant::now(), Duration::from_secs_f64(1.0 / self.rate));
        let mut calls = JoinSet::new();
        let end = Instant::now() + duration;
        let mut went = Went::default();
        while Instant::now() < end {
            ticks.tick().await;
            let mut client = client.clone();
            let frame = pb::Frame {
                number: went.asked,
                data: self.frame.clone(),
                ..Default::default()
            };
            went.asked += 1;
            calls.spawn(async move {
                let request = pb::InferRequest {
                    pipeline: String::new(),
                    frame: Some(frame),
                };
                client.infer(request).await
            });
        }
        while let Some(answer) = calls.join_next().await {
            went.answered += 1;
            let result = answer?.ok().and_then(|a| a.into_inner().result);
            went.good += u64::from(result.is_some_and(|r| r.outcome() == pb::Outcome::Completed));
        }
        Ok(went)
    }
}
