//! Reaching a server: addresses, and errors that say what to do.
//!
//! Nothing is retried here: a server that is not there is the user's to start.

use std::error::Error as _;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// Where `spillgate serve` listens unless told otherwise.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7700";

/// A server on the same network answers a TCP handshake well within this.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Results may carry pictures: as much as a large frame in RGB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// `127.0.0.1:7700` and `http://127.0.0.1:7700/` mean the same.
///
/// # Errors
/// When the text is no address, or asks for TLS.
pub fn server_url(text: &str) -> Result<String> {
    let text = text.trim().trim_end_matches('/');
    if text.starts_with("https://") {
        bail!(
            "{text}: TLS is not supported by this client; put a proxy in between, or use http://"
        );
    }
    let url = if text.starts_with("http://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let uri: http::Uri = url
        .parse()
        .map_err(|error| anyhow!("\"{text}\" is no server address: {error}"))?;
    if uri.port().is_none() {
        bail!("\"{text}\" names no port; write {url}:7700");
    }
    Ok(url)
}

/// Connects to the server at `url`.
///
/// # Errors
/// One line that says why the server could not be reached.
pub async fn connect(url: &str) -> Result<SpillgateClient<Channel>> {
    let channel = Endpoint::from_shared(url.to_owned())
        .with_context(|| format!("\"{url}\" is no server address"))?
        .connect_timeout(CONNECT_TIME_MAX)
        .tcp_nodelay(true)
        .initial_stream_window_size(8 << 20)
        .initial_connection_window_size(16 << 20)
        .connect()
        .await
        .map_err(|error| unreachable_server(url, &error))?;
    Ok(SpillgateClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
}

fn unreachable_server(url: &str, error: &tonic::transport::Error) -> anyhow::Error {
    let cause = root_cause(error);
    if cause.contains("onnection refused") {
        anyhow!("cannot reach {url}: connection refused; is `spillgate serve` running there?")
    } else {
        anyhow!("cannot reach {url}: {cause}")
    }
}

fn root_cause(error: &tonic::transport::Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

/// The description of one pipeline.
///
/// # Errors
/// When the server does not know it, or serves several and none was named.
pub async fn describe(
    client: &mut SpillgateClient<Channel>,
    pipeline: &str,
) -> Result<pb::PipelineDescription> {
    let request = pb::DescribeRequest {
        pipeline: pipeline.to_owned(),
    };
    let response = client
        .describe(request)
        .await
        .map_err(|status| refused_call(&status))?
        .into_inner();
    let mut pipelines = response.pipelines;
    match pipelines.len() {
        0 => bail!("the server serves no pipeline"),
        1 => Ok(pipelines.remove(0)),
        _ => {
            let names: Vec<&str> = pipelines.iter().map(|p| p.name.as_str()).collect();
            bail!(
                "the server serves {}; choose one with --pipeline",
                names.join(", ")
            )
        }
    }
}

/// The error of a call that was refused as a whole: what the server said, in one line.
pub fn refused_call(status: &Status) -> anyhow::Error {
    let message = status.message().replace('\n', " ");
    match status.code() {
        Code::NotFound | Code::InvalidArgument | Code::ResourceExhausted => anyhow!("{message}"),
        code => anyhow!("the server answered {code:?}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(
            server_url("127.0.0.1:7700").unwrap(),
            "http://127.0.0.1:7700"
        );
        assert_eq!(
            server_url("http://gpu-box:80/").unwrap(),
            "http://gpu-box:80"
        );
        assert!(
            server_url("localhost")
                .unwrap_err()
                .to_string()
                .contains("names no port")
        );
        assert!(
            server_url("https://a:1")
                .unwrap_err()
                .to_string()
                .contains("TLS")
        );
    }
}
