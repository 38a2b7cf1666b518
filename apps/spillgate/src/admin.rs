//! The admin port: `/metrics` for Prometheus, `/livez` (the process answers), `/readyz` (it can serve), and `/status`
//! ([`crate::status`]).
//! Plain HTTP; bind it where only operators reach it.
//!
//! It opens before models are loaded. The process is live at once, and not ready until it can serve; until then
//! `/readyz` reports the progress. The port has bounds of its own, and a probe gets its answer whatever other
//! connections do: when all places are taken, the connection that has been silent the longest gives way.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use spillgate_telemetry::Telemetry;
use tokio::net::{TcpListener, TcpStream};

use crate::places::{Place, Places};
use crate::ports::listen;
use crate::serve_error::ServeError;
use crate::status::StatusReader;

/// Most admin connections at a time: a few scrapers and probes.
pub const CONNECTIONS_MAX: usize = 32;
/// Most headers of a request: probes send about five, scrapers ten.
pub(crate) const HEADERS_MAX: usize = 32;
/// Largest request line and headers, in bytes; hyper takes no less than this.
pub(crate) const HEADER_BYTES_MAX: usize = 8 << 10;
/// Pause after a connection could not be accepted, doubled each time: while descriptors are short, the one that waits
/// would be tried again at once.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
/// See [`ACCEPT_PAUSE_MIN`].
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time to the end of a request's headers. Probes send at once; a scraper that comes less often connects anew.
pub(crate) const HEADERS_LIMIT: Duration = Duration::from_secs(10);
/// Time of an answer. Metrics are some hundred kilobytes at most.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct AdminLimits {
    /// From its first moment, or from its last answer, to the end of its next request's headers.
    pub headers: Duration,
    /// From a request to its answer's last byte.
    pub answer: Duration,
}

impl Default for AdminLimits {
    fn default() -> Self {
        AdminLimits {
            headers: HEADERS_LIMIT,
            answer: ANSWER_LIMIT,
        }
    }
}

/// The content of the admin port while a server runs.
pub struct Admin {
    /// Metrics as text.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// Why the process cannot serve; `None` when it can.
    pub not_ready: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Its state as JSON.
    pub status: Box<dyn Fn() -> String + Send + Sync>,
}

impl Admin {
    /// The content of a process that serves.
    pub(crate) fn of(
        telemetry: Arc<Telemetry>,
        not_ready: impl Fn() -> Option<String> + Send + Sync + 'static,
        status: impl Fn() -> StatusReader + Send + Sync + 'static,
    ) -> Self {
        let status = Arc::new(status);
        telemetry.register_peers(Box::new({
            let status = status.clone();
            move || status().peer_readings()
        }));
        telemetry.register_devices(Box::new({
            let status = status.clone();
            move || status().device_readings()
        }));
        telemetry.register_values(Box::new({
            let status = status.clone();
            move || status().values_reading()
        }));
        let not_ready = Arc::new(not_ready);
        Admin {
            metrics: Box::new(move || telemetry.render()),
            status: Box::new({
                let not_ready = not_ready.clone();
                move || serde_json::to_string(&status().read(not_ready())).unwrap_or_default()
            }),
            not_ready: Box::new(move || not_ready()),
        }
    }
}

/// The current content.
enum Shown {
    /// The server starts. The text says what it is doing.
    Starting(String),
    Running(Arc<Admin>),
}

/// An open admin port. Clones are the same. It lives until the process ends, so that probes see a drain.
#[derive(Clone)]
pub struct AdminPort {
    /// Where it is.
    pub address: SocketAddr,
    shown: Arc<Mutex<Shown>>,
}

impl AdminPort {
    /// Opens the port; port 0 takes a free one. It answers from now on.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn open(address: SocketAddr, limits: AdminLimits) -> std::io::Result<Self> {
        let listener = listen(address).await?;
        let address = listener.local_addr()?;
        let shown = Arc::new(Mutex::new(Shown::Starting("starting".to_owned())));
        tokio::spawn(accept(listener, shown.clone(), limits));
        Ok(AdminPort { address, shown })
    }

    /// Shows the progress of the start, until there is a server to show.
    pub fn starting(&self, what: &str) {
        if let Shown::Starting(text) = &mut *self.shown.lock() {
            *text = format!("starting: {what}");
        }
    }

    /// Shows this server from now on.
    pub fn running(&self, admin: Admin) {
        *self.shown.lock() = Shown::Running(Arc::new(admin));
    }
}

/// Opens the admin port, if one is wanted.
///
/// # Errors
/// When the address cannot be had.
pub async fn open_admin(address: Option<SocketAddr>) -> Result<Option<AdminPort>, ServeError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let opened = AdminPort::open(address, AdminLimits::default()).await;
    let port = opened.map_err(|cause| ServeError::Listen {
        address,
        flag: "--admin",
        cause,
    })?;
    Ok(Some(port))
}

async fn accept(listener: TcpListener, shown: Arc<Mutex<Shown>>, limits: AdminLimits) {
    let places = Arc::new(Mutex::new(Places::new(CONNECTIONS_MAX)));
    let mut pause = ACCEPT_PAUSE_MIN;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(ACCEPT_PAUSE_MAX);
                continue;
            }
        };
        pause = ACCEPT_PAUSE_MIN;
        let place = places.lock().take(Instant::now());
        let connection = connection(stream, place, places.clone(), shown.clone(), limits);
        tokio::spawn(connection);
    }
}

async fn connection(
    stream: TcpStream,
    place: Place,
    places: Arc<Mutex<Places>>,
    shown: Arc<Mutex<Shown>>,
    limits: AdminLimits,
) {
    let id = place.id;
    let service = service_fn(|request| {
        places.lock().heard(id, Instant::now());
        let response = answer(&shown, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let http = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // hyper limits the wait for headers; a client that never reads its answer is silent, too.
    let silent = async {
        loop {
            let Some(heard) = places.lock().last_heard(id) else {
                return;
            };
            let end = heard + limits.headers + limits.answer;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end.into()).await;
        }
    };
    tokio::select! {
        _ = http => {}
        () = silent => {}
        () = place.gives_way.cancelled() => {}
    }
    places.lock().leave(id);
}

fn answer(shown: &Mutex<Shown>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain";
    const JSON: &str = "application/json";
    const METRICS: &str = spillgate_telemetry::metrics::CONTENT_TYPE;
    let not_ready = |why: String| (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n"));
    // Not held while metrics are made: a probe answers beside a scrape.
    let running = match &*shown.lock() {
        Shown::Starting(what) => Err(what.clone()),
        Shown::Running(admin) => Ok(admin.clone()),
    };
    let (status, kind, body) = match (request.uri().path(), running) {
        ("/livez", _) => (StatusCode::OK, TEXT, "alive\n".to_owned()),
        ("/metrics", Ok(admin)) => (StatusCode::OK, METRICS, (admin.metrics)()),
        // A scrape of nothing: the process is up and has counted nothing yet.
        ("/metrics", Err(_)) => (StatusCode::OK, METRICS, "# EOF\n".to_owned()),
        ("/readyz", Ok(admin)) => match (admin.not_ready)() {
            None => (StatusCode::OK, TEXT, "ready\n".to_owned()),
            Some(why) => not_ready(why),
        },
        ("/readyz" | "/status", Err(starting)) => not_ready(starting),
        ("/status", Ok(admin)) => (StatusCode::OK, JSON, (admin.status)()),
        _ => {
            let text = "here are /metrics, /livez, /readyz and /status\n".to_owned();
            (StatusCode::NOT_FOUND, TEXT, text)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(kind),
    );
    response
}
