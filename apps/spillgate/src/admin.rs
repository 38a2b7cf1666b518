//! The admin port: `/metrics` for Prometheus, `/livez` (the process answers) and `/readyz` (it can serve).
//! Plain HTTP; bind it where only operators reach it.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What the admin port shows.
pub struct Admin {
    /// Metrics as text.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// Why the process cannot serve; `None` when it can.
    pub not_ready: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

/// Most admin connections at a time: a few scrapers and probes.
const CONNECTIONS_MAX: usize = 32;

/// Serves the admin port until stopped.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>, stop: CancellationToken) {
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = accepted else { continue };
        let (admin, stop) = (admin.clone(), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = answer(&admin, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                () = stop.cancelled() => {}
            }
            drop(place);
        });
    }
}

fn answer(admin: &Admin, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, kind, body) = match request.uri().path() {
        "/metrics" => (
            StatusCode::OK,
            spillgate_telemetry::metrics::CONTENT_TYPE,
            (admin.metrics)(),
        ),
        "/livez" => (StatusCode::OK, "text/plain", "alive\n".to_owned()),
        "/readyz" => match (admin.not_ready)() {
            None => (StatusCode::OK, "text/plain", "ready\n".to_owned()),
            Some(why) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "text/plain",
                format!("{why}\n"),
            ),
        },
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "here are /metrics, /livez and /readyz\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(kind),
    );
    response
}
