//! TLS on the serving port.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use spillgate::reload::Reload;
use spillgate::security::Security;
use spillgate_controller::edge::TlsFiles;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Channel, Endpoint};

use super::files::Files;
use super::{infer, pipeline};
use crate::support::TestServer;

/// How every connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

async fn serve(files: &Files, mutual: bool, connections: usize) -> TestServer {
    let tls = TlsFiles {
        cert: files.path("server.pem"),
        key: files.path("server.key"),
        client_ca: mutual.then(|| files.path("ca.pem")),
    };
    let security = Security::read(Some(tls), None).unwrap();
    TestServer::live(&[&pipeline("harbour")], |setup| {
        setup.port.security = security;
        setup.port.connections = connections;
        setup.port.connections_per_address = connections;
    })
    .await
}

/// What a client trusts, and shows of itself.
fn connector(files: &Files, certificate: Option<&str>, protocol: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let all = |name: &str| -> Vec<CertificateDer<'static>> {
        let read = CertificateDer::pem_file_iter(files.path(&format!("{name}.pem"))).unwrap();
        read.collect::<Result<_, _>>().unwrap()
    };
    roots.add_parsable_certificates(all("ca"));
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_file(files.path(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(all(name), key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

async fn dial(server: &TestServer, tls: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server.server.address).await?;
    tls.connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

/// Gives the one connection that it has.
struct Once(Option<TlsStream<TcpStream>>);

impl tower_service::Service<Uri> for Once {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let stream = self
            .0
            .take()
            .ok_or_else(|| std::io::Error::other("used up"));
        Box::pin(std::future::ready(stream.map(TokioIo::new)))
    }
}

async fn client(
    stream: TlsStream<TcpStream>,
) -> Result<SpillgateClient<Channel>, tonic::transport::Error> {
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(Once(Some(stream))).await?;
    Ok(SpillgateClient::new(channel))
}

/// One request over a new connection.
async fn ask(server: &TestServer, tls: &TlsConnector) -> Result<(), Box<dyn std::error::Error>> {
    let mut client = client(dial(server, tls).await?).await?;
    client.infer(infer("harbour")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_served_and_plain_text_is_not() {
    let files = Files::new("tls");
    let server = serve(&files, false, 64).await;
    ask(&server, &connector(&files, None, "h2")).await.unwrap();
    let mut plain = server.connect().await;
    plain.write_all(PREFACE).await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    // Nothing, or an alert of TLS.
    assert!(answer.first().is_none_or(|kind| *kind == 21), "{answer:?}");
    let refused = dial(&server, &connector(&files, None, "http/1.1")).await;
    assert!(refused.is_err(), "HTTP/2 alone is spoken");
    ask(&server, &connector(&files, None, "h2")).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_tls_refuses_clients_without_a_certificate_of_its_authority() {
    let files = Files::new("mutual");
    let strangers = Files::new("strangers");
    std::fs::copy(strangers.path("client.pem"), files.path("stranger.pem")).unwrap();
    std::fs::copy(strangers.path("client.key"), files.path("stranger.key")).unwrap();
    files.certificate("expired", |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let server = serve(&files, true, 64).await;
    for without in [None, Some("stranger"), Some("expired")] {
        let answer = ask(&server, &connector(&files, without, "h2")).await;
        assert!(answer.is_err(), "{without:?}");
    }
    ask(&server, &connector(&files, Some("client"), "h2"))
        .await
        .unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_takes_a_new_certificate_and_open_connections_live_on() {
    let files = Files::new("reload");
    let server = serve(&files, false, 64).await;
    let mut reload = Reload::default();
    server.server.add_to(&mut reload);
    let tls = connector(&files, None, "h2");
    let certificate = |stream: &TlsStream<TcpStream>| {
        let shown = stream.get_ref().1.peer_certificates().unwrap();
        shown[0].to_vec()
    };
    let stream = dial(&server, &tls).await.unwrap();
    let first = certificate(&stream);
    let mut old = client(stream).await.unwrap();
    old.infer(infer("harbour")).await.unwrap();

    let before = files.read("server.key");
    files.certificate("server", |_| {});
    let new = files.read("server.key");
    // Half of a pair, as while files are being replaced: what was there stays.
    files.write("server.key", &before);
    let (name, kept) = reload.run().remove(0);
    assert_eq!(name, "certificates");
    assert!(
        kept.unwrap_err()
            .contains("it is not the key of the certificate")
    );
    assert_eq!(certificate(&dial(&server, &tls).await.unwrap()), first);

    files.write("server.key", &new);
    assert!(reload.run().remove(0).1.unwrap().starts_with("1 in "));
    let stream = dial(&server, &tls).await.unwrap();
    assert_ne!(certificate(&stream), first);
    client(stream)
        .await
        .unwrap()
        .infer(infer("harbour"))
        .await
        .unwrap();
    old.infer(infer("harbour")).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_never_end_keep_nobody_out() {
    let files = Files::new("handshakes");
    let server = serve(&files, false, 32).await;
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(server.connect().await);
    }
    let tls = connector(&files, None, "h2");
    for _ in 0..8 {
        // Less than what a handshake may take: a place was given up, not left.
        let asked = tokio::time::timeout(Duration::from_secs(4), ask(&server, &tls)).await;
        asked.expect("a place").unwrap();
    }
    drop(silent);
    server.stop().await;
}

/// Until the other side closes.
async fn closed(mut stream: impl AsyncRead + Unpin) {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_greet_is_cut_off_with_and_without_tls() {
    let files = Files::new("greeting");
    let secure = serve(&files, false, 64).await;
    let plain = TestServer::live(&[&pipeline("harbour")], |_| {}).await;
    let mut half = plain.connect().await;
    half.write_all(&PREFACE[..20]).await.unwrap();
    let mut half_secure = dial(&secure, &connector(&files, None, "h2")).await.unwrap();
    half_secure.write_all(&PREFACE[..20]).await.unwrap();
    let all = async {
        tokio::join!(
            closed(half),
            closed(half_secure),
            closed(plain.connect().await)
        )
    };
    let cut_off = tokio::time::timeout(Duration::from_secs(8), all).await;
    cut_off.expect("no place for who says nothing");
    secure.stop().await;
    plain.stop().await;
}
