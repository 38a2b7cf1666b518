//! An open stream to a server: frames go in and answers come out. When it is lost it is opened again with growing
//! pauses; the session accounts for the frames that waited on it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use spillgate_pipeline::printable::printable_line;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Request;
use spillgate_proto::pb::stream_response::Message as Response;
use spillgate_proto::pb::{StreamRequest, StreamResponse};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::backoff::Backoff;
use super::session::SessionConfig;
use crate::connect::{PROMPT_TIME_MAX, Upload};

/// Frames given to the connection and not yet written. More means that the network is slower than the video.
pub(crate) const OUTGOING_MAX: usize = 32;

/// Most time to find another server once one ended the stream in order. Frames wait meanwhile, and those with an SLO
/// not much longer.
pub(crate) const MOVE_TIME_MAX: Duration = Duration::from_secs(2);
/// Between two attempts to do so: those of a list that are there are tried within one of them.
const MOVE_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct OpenStream {
    pub(super) opened: pb::StreamOpened,
    /// Taken by the sender; when it is dropped the server knows that no more frames come.
    pub(super) outgoing: Option<mpsc::Sender<StreamRequest>>,
    pub(super) answers: Streaming<StreamResponse>,
    /// Whether the server takes what is sent.
    pub(super) upload: Upload,
}

impl OpenStream {
    /// Connects and opens a stream.
    pub(super) async fn open(config: &SessionConfig) -> Result<Self> {
        let (mut client, upload) = config.server.connect().await?;
        let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
        let open = pb::StreamOpen {
            pipeline: config.pipeline.clone(),
            in_order: config.in_order,
            latest_only: config.latest_only,
            client: config.name.to_string(),
            adapts: config.wanted.is_some(),
        };
        outgoing
            .send(StreamRequest {
                message: Some(Request::Open(open)),
            })
            .await
            .context("the stream closed before it was opened")?;
        let opening = async {
            let response = client.stream(ReceiverStream::new(requests)).await?;
            let mut answers = response.into_inner();
            let opened = answers.message().await?;
            Ok::<_, Status>((answers, opened))
        };
        let (answers, opened) = timeout(PROMPT_TIME_MAX, opening)
            .await
            .map_err(|_| config.server.silent("the opening of a stream"))?
            .map_err(|status| config.server.refused(&status))?;
        let Some(StreamResponse {
            message: Some(Response::Opened(mut opened)),
        }) = opened
        else {
            bail!("the server did not answer `open`; is it a Spillgate server of this version?");
        };
        opened.pipeline = printable_line(&opened.pipeline).into_owned();
        Ok(OpenStream {
            opened,
            outgoing: Some(outgoing),
            answers,
            upload,
        })
    }

    /// Opens the stream anew after its server ended it in order. Another server takes it at once, and so does the same
    /// one on a new connection; `None` where none does within [`MOVE_TIME_MAX`].
    pub(super) async fn elsewhere(config: SessionConfig) -> Option<Self> {
        let attempts = async {
            loop {
                if let Ok(link) = OpenStream::open(&config).await {
                    return link;
                }
                sleep(MOVE_PAUSE).await;
            }
        };
        timeout(MOVE_TIME_MAX, attempts).await.ok()
    }

    /// Tries until it succeeds; dropping it ends the attempts.
    pub(super) async fn reopen(config: SessionConfig) -> Self {
        let mut backoff = Backoff::default();
        loop {
            sleep(backoff.pause()).await;
            // The reason was reported when the server was lost; it has not come back yet.
            if let Ok(link) = OpenStream::open(&config).await {
                return link;
            }
        }
    }
}
