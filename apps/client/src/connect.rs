//! Reaching a server: its address, TLS, the client's token, and errors that say what to do.
//!
//! [`Server`] holds the address and the settings. It dials for the generated client and for `bench`, which speaks
//! HTTP/2 itself. Nothing is retried here: the caller that lost a server decides whether to dial again.

pub(crate) mod addresses;
mod bandwidth;
pub(crate) mod shaped;
mod tls;
mod token;
pub(crate) mod watched;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http::Uri;
use hyper_util::rt::TokioIo;
use spillgate_pipeline::printable::printable_line;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use self::shaped::Shaped;
pub(crate) use self::shaped::SlowLink;
pub(crate) use self::token::Authorize;
pub(crate) use self::watched::Upload;
use self::watched::Watched;

/// Default address of `spillgate serve`.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7700";

/// Most time for the handshakes of TCP and TLS; a server on the same network needs much less.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Most time for an answer that a server gives at once: to `Describe`, and to the opening of a stream.
pub(crate) const PROMPT_TIME_MAX: Duration = Duration::from_secs(10);

/// Largest result in bytes. It may contain pictures: as much as a large frame in RGB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// The server and how to reach it: the same for `stream` and `bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// Address of the server; https:// speaks TLS. Several that serve the same, with commas between them: connections take turns,
    /// and go to another one when one is gone
    #[arg(long, value_name = "URL,...", default_value = DEFAULT_SERVER)]
    pub server: String,

    /// Trust servers whose certificates these sign (PEM) [default: the certificates of this system]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// Identify this client with this certificate and the ones between it and its root (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// Private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// The server's name in its certificate [default: the host of --server]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,

    /// Send the bearer token in this file with each call
    #[arg(long, value_name = "FILE", env = "SPILLGATE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
}

/// A server, ready to be dialled. Cloning is cheap.
#[derive(Clone)]
pub struct Server {
    /// For example `https://gpu-box:7700`; of several, as they were given.
    pub(crate) url: String,
    /// What calls name as their server: the first one, like `https://gpu-box:7700`.
    pub(crate) origin: String,
    places: Arc<[Place]>,
    tls: Option<TlsConnector>,
    /// Number of connections that were begun.
    turn: Arc<AtomicUsize>,
    /// This client has a certificate.
    certified: bool,
    authorize: Authorize,
    slow: Option<SlowLink>,
}

/// Where a server is.
struct Place {
    /// For example `gpu-box:7700`.
    authority: String,
    /// The name in its certificate, where it speaks TLS.
    name: Option<ServerName<'static>>,
}

/// A connection's bytes, as they go out.
type Wire = Either<TcpStream, Box<Shaped<TcpStream>>>;

/// A connection, encrypted or not.
pub(crate) type Connection = Watched<Either<Wire, Box<TlsStream<Wire>>>>;

/// The generated client, with this program's token in each call.
pub(crate) type Client = SpillgateClient<InterceptedService<Channel, Authorize>>;

impl Server {
    /// Reads the address and the files.
    ///
    /// # Errors
    /// When the address is malformed, or a file cannot be used; one line that names the flag or the file.
    pub fn from_args(args: &ServerArgs) -> Result<Self> {
        let (origin, uris) = server_urls(&args.server)?;
        let url = match uris.len() {
            1 => origin.clone(),
            _ => args.server.clone(),
        };
        let is_tls = uris[0].scheme_str() == Some("https");
        let places = uris.iter().map(|uri| place(uri, is_tls, args));
        let places = places.collect::<Result<Arc<[Place]>>>()?;
        let tls = if is_tls {
            let config = tls::config(
                args.ca.as_deref(),
                args.cert.as_deref(),
                args.key.as_deref(),
            )?;
            Some(TlsConnector::from(Arc::new(config)))
        } else {
            let flags = [
                ("--ca", args.ca.is_some()),
                ("--cert", args.cert.is_some()),
                ("--server-name", args.server_name.is_some()),
            ];
            if let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) {
                let authority = &places[0].authority;
                bail!("{flag} is for TLS, and {url} is not: write https://{authority}");
            }
            None
        };
        let authorize = Authorize::from_file(args.token_file.as_deref())?;
        let is_near = |uri: &Uri| token::is_loopback(host_of(uri));
        if authorize.has_token() && !is_tls && !uris.iter().all(is_near) {
            eprintln!(
                "warning: the token goes to {url} in the clear: anybody on the way can read and use it; https:// would hide it"
            );
        }
        Ok(Server {
            url,
            origin,
            places,
            tls,
            turn: Arc::default(),
            certified: args.cert.is_some(),
            authorize,
            slow: None,
        })
    }

    /// The same server at the other end of a slow link.
    pub(crate) fn over(self, link: SlowLink) -> Self {
        Server {
            slow: Some(link),
            ..self
        }
    }

    /// The token's header, if there is a token.
    pub(crate) fn authorization(&self) -> Option<http::HeaderValue> {
        self.authorize.header()
    }

    /// A connection that speaks HTTP/2, with TLS if the address says so.
    ///
    /// # Errors
    /// When the server is not there, or its certificate is not trusted.
    pub(crate) async fn dial(&self, upload: Upload) -> Result<Connection> {
        let connection = timeout(CONNECT_TIME_MAX, self.shake_hands())
            .await
            .map_err(|_| anyhow!("no connection within {CONNECT_TIME_MAX:?}"))??;
        Ok(Watched::new(connection, upload))
    }

    async fn shake_hands(&self) -> Result<Either<Wire, Box<TlsStream<Wire>>>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let all: Vec<&str> = self.places.iter().map(|p| p.authority.as_str()).collect();
        let (place, stream) = addresses::connect(&all, turn).await?;
        stream.set_nodelay(true)?;
        let stream = match &self.slow {
            Some(link) => Either::Right(Box::new(Shaped::new(stream, link.clone()))),
            None => Either::Left(stream),
        };
        let name = &self.places[place].name;
        let Some((connector, name)) = self.tls.as_ref().zip(name.as_ref()) else {
            return Ok(Either::Left(stream));
        };
        let stream = connector.connect(name.clone(), stream).await;
        let stream = stream.map_err(|error| tls::handshake_error(&error))?;
        Ok(Either::Right(Box::new(stream)))
    }

    /// Connects the generated client.
    ///
    /// # Errors
    /// One line with the reason why the server could not be reached.
    pub(crate) async fn connect(&self) -> Result<(Client, Upload)> {
        let upload = Upload::default();
        // The connector speaks TLS itself. For tonic the connection is a plain one, with the true address in its
        // calls.
        let origin: Uri = self.origin.parse()?;
        let authority = &self.places[0].authority;
        let channel = Endpoint::from_shared(format!("http://{authority}"))
            .with_context(|| format!("\"{}\" is no server address", self.url))?
            .origin(origin)
            .initial_stream_window_size(8 << 20)
            .initial_connection_window_size(16 << 20)
            .connect_with_connector(Dialler(self.clone(), upload.clone()))
            .await
            .map_err(|error| unreachable_server(&self.url, &error))?;
        let client = SpillgateClient::with_interceptor(channel, self.authorize.clone());
        Ok((client.max_decoding_message_size(MESSAGE_BYTES_MAX), upload))
    }
}

impl Server {
    /// The error of a server that takes calls and does not answer them.
    pub(crate) fn silent(&self, call: &str) -> anyhow::Error {
        anyhow!(
            "{} did not answer {call} within {PROMPT_TIME_MAX:?}; is it stopped, or overloaded?",
            self.url
        )
    }

    /// The error of a refused call: the server's message, in one line.
    pub(crate) fn refused(&self, status: &Status) -> anyhow::Error {
        let message = printable_line(status.message());
        let broke = std::error::Error::source(status).is_some();
        match status.code() {
            Code::NotFound | Code::InvalidArgument | Code::ResourceExhausted => {
                anyhow!("{message}")
            }
            Code::Unauthenticated => {
                anyhow!("the server does not know this client: {message} (--token-file, --cert)")
            }
            // A server that refuses a client's certificate, or its absence, closes the connection after the
            // handshake.
            Code::Unknown | Code::Unavailable | Code::Cancelled if self.tls.is_some() || broke => {
                let cause = root_cause(status);
                let advice = if self.certified || self.tls.is_none() {
                    ""
                } else {
                    "; where clients must have certificates: --cert FILE --key FILE"
                };
                anyhow!("{}: the server broke off: {cause}{advice}", self.url)
            }
            code => anyhow!("the server answered {code:?}: {message}"),
        }
    }
}

/// [`Server::dial`] in the form that tonic needs.
struct Dialler(Server, Upload);

impl tower_service::Service<Uri> for Dialler {
    type Response = TokioIo<Connection>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (server, upload) = (self.0.clone(), self.1.clone());
        Box::pin(async move { Ok(TokioIo::new(server.dial(upload).await?)) })
    }
}

/// The servers of a list; also the first one as a text.
///
/// # Errors
/// When one is no address, or some speak TLS and others do not.
fn server_urls(text: &str) -> Result<(String, Vec<Uri>)> {
    let urls = text.split(',').map(server_url);
    let urls = urls.collect::<Result<Vec<String>>>()?;
    let uris = urls.iter().map(|url| Ok(url.parse()?));
    let uris = uris.collect::<Result<Vec<Uri>>>()?;
    if let Some(other) = uris.iter().find(|uri| uri.scheme() != uris[0].scheme()) {
        bail!(
            "\"{text}\": {other} and {} differ in TLS; begin all with http://, or all with https://",
            uris[0]
        );
    }
    let first = urls.into_iter().next();
    Ok((first.context("an address has a host")?, uris))
}

fn host_of(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

fn place(uri: &Uri, is_tls: bool, args: &ServerArgs) -> Result<Place> {
    let authority = uri.authority().context("an address has a host")?;
    let name = args.server_name.as_deref().unwrap_or(host_of(uri));
    let name = is_tls.then(|| {
        ServerName::try_from(name.to_owned())
            .map_err(|_| anyhow!("--server-name: \"{name}\" is no name of a server"))
    });
    Ok(Place {
        authority: authority.to_string(),
        name: name.transpose()?,
    })
}

/// `127.0.0.1:7700` and `http://127.0.0.1:7700/` mean the same.
///
/// # Errors
/// When the text is not an address.
fn server_url(text: &str) -> Result<String> {
    let text = text.trim().trim_end_matches('/');
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let uri: Uri = url
        .parse()
        .map_err(|error| anyhow!("\"{text}\" is no server address: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        bail!("\"{text}\" is no server address: it begins with http:// or https://");
    }
    if uri.port().is_none() {
        bail!("\"{text}\" names no port; write {url}:7700");
    }
    Ok(url)
}

fn unreachable_server(url: &str, error: &tonic::transport::Error) -> anyhow::Error {
    let cause = root_cause(error);
    if cause.contains("onnection refused") {
        anyhow!("cannot reach {url}: connection refused; is `spillgate serve` running there?")
    } else {
        anyhow!("cannot reach {url}: {cause}")
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
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
/// When the server does not know it, serves several and none was named, or does not answer in time.
pub(crate) async fn describe(
    server: &Server,
    client: &mut Client,
    pipeline: &str,
) -> Result<pb::PipelineDescription> {
    let request = pb::DescribeRequest {
        pipeline: pipeline.to_owned(),
    };
    let response = timeout(PROMPT_TIME_MAX, client.describe(request))
        .await
        .map_err(|_| server.silent("Describe"))?
        .map_err(|status| server.refused(&status))?
        .into_inner();
    let mut pipelines = response.pipelines;
    for pipeline in &mut pipelines {
        pipeline.name = printable_line(&pipeline.name).into_owned();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, url) in [
            ("127.0.0.1:7700", "http://127.0.0.1:7700"),
            ("http://gpu-box:80/", "http://gpu-box:80"),
            ("https://[::1]:7700", "https://[::1]:7700"),
        ] {
            assert_eq!(server_url(text).unwrap(), url);
        }
        let (first, all) = server_urls("a:1,http://b:2").unwrap();
        assert_eq!((first.as_str(), all.len()), ("http://a:1", 2));
        for (text, says) in [
            ("localhost", "names no port"),
            ("https://a", "names no port; write https://a:7700"),
            ("ftp://a:1", "begins with http:// or https://"),
            ("a:1,b", "\"b\" names no port"),
            ("http://a:1,https://b:2", "differ in TLS"),
        ] {
            let error = server_urls(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
