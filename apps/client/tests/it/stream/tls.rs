//! `stream` and `bench` over TLS and with tokens: a small server, with a TLS door in front of it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use spillgate_client::ExitSummary;
use spillgate_client::bench::{self, BenchArgs};
use spillgate_client::stream::{self, StreamArgs};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

use crate::fake::server::{Answer, FakeServer};

#[derive(Parser)]
struct StreamCli {
    #[command(flatten)]
    stream: StreamArgs,
}

#[derive(Parser)]
struct BenchCli {
    #[command(flatten)]
    bench: BenchArgs,
}

const TOKEN: &str = "a-token-of-the-tests";

/// Files that go away with the test: an authority, a server and a client of it, a token.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = format!("spillgate-tls-{}-{name}", std::process::id());
        let files = Files(std::env::temp_dir().join(folder));
        std::fs::create_dir_all(&files.0).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        files.write("ca.pem", &root.pem());
        let issuer = Issuer::new(params, key);
        for (name, host) in [("server", "spillgate.test"), ("client", "camera-1")] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([host.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            files.write(&format!("{name}.pem"), &certificate.pem());
            files.write(&format!("{name}.key"), &key.serialize_pem());
        }
        files.write("token", &format!("{TOKEN}\n"));
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    fn certificates(&self, name: &str) -> Vec<CertificateDer<'static>> {
        let read = CertificateDer::pem_file_iter(self.path(name)).unwrap();
        read.collect::<Result<_, _>>().unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Takes TLS off, and hands on what is inside.
struct Door {
    url: String,
    task: JoinHandle<()>,
}

impl Door {
    async fn open(files: &Files, server: &FakeServer, mutual: bool) -> Self {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(files.certificates("ca.pem"));
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from_pem_file(files.path("server.key")).unwrap();
        let mut config = builder
            .with_single_cert(files.certificates("server.pem"), key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let behind = server.url.trim_start_matches("http://").to_owned();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                tokio::spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else {
                        return;
                    };
                    assert_eq!(outside.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                    let mut inside = TcpStream::connect(behind).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        Door { url, task }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `stream` of a few frames, or a short `bench`.
async fn send(command: &str, url: &str, flags: &[&str]) -> anyhow::Result<ExitSummary> {
    let stop = CancellationToken::new();
    let fixed = ["x", "--quiet", "--server", url];
    let all = fixed.iter().chain(flags);
    if command == "stream" {
        let few = ["scene:size=64x64", "--frames", "5", "--fps", "200"];
        stream::run_until(StreamCli::parse_from(all.chain(&few)).stream, stop).await
    } else {
        let few: &[&str] = match command {
            "bench" => &[
                "--rate",
                "50",
                "--duration",
                "100ms",
                "--payload-bytes",
                "9",
            ],
            _ => &[
                "--rate",
                "50",
                "--duration",
                "100ms",
                "--payload-bytes",
                "9",
                "--stream",
            ],
        };
        bench::run_until(BenchCli::parse_from(all.chain(few)).bench, stop).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_command_speaks_mutual_tls_and_sends_its_token() {
    let files = Files::new("each");
    let server = FakeServer::start_for(|_| Answer::Completed, Some(TOKEN)).await;
    let door = Door::open(&files, &server, true).await;
    let (ca, token) = (files.path("ca.pem"), files.path("token"));
    let (cert, key) = (files.path("client.pem"), files.path("client.key"));
    let name = ["--ca", &ca, "--server-name", "spillgate.test"];
    let own = ["--cert", &cert, "--key", &key, "--token-file", &token];
    let flags = [&name[..], &own].concat();
    for command in ["stream", "bench", "bench --stream"] {
        let summary = send(command, &door.url, &flags).await.unwrap();
        assert_eq!((summary.requests, summary.served), (5, 5), "{command}");
        let without_token = &flags[..flags.len() - 2];
        let error = send(command, &door.url, without_token).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("the server does not know this client: no valid token"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_who_they_should_be_is_told_what_to_do() {
    let (files, others) = (Files::new("who"), Files::new("others"));
    let server = FakeServer::start(|_| Answer::Completed).await;
    let door = Door::open(&files, &server, false).await;
    let mutual = Door::open(&files, &server, true).await;
    let (ca, other_ca) = (files.path("ca.pem"), others.path("ca.pem"));
    let (key, nothing) = (files.path("server.key"), files.path("token"));
    let (cert, other_key) = (files.path("client.pem"), files.path("server.key"));
    let plain = server.url.replace("http://", "https://");
    let named = ["--server-name", "spillgate.test"];
    let cases: [(&str, Vec<&str>, &str); 9] = [
        (
            &door.url,
            [&["--ca", &*other_ca][..], &named].concat(),
            "--ca FILE names whom to trust",
        ),
        (
            &door.url,
            vec!["--ca", &ca],
            "--server-name NAME is the name to expect",
        ),
        (&plain, vec!["--ca", &ca], "does the server speak TLS?"),
        (&door.url, vec!["--ca", &key], "no certificate in it (PEM)"),
        (
            &door.url,
            vec!["--ca", "/no/such/ca.pem"],
            "--ca /no/such/ca.pem: ",
        ),
        (
            &mutual.url,
            [&["--ca", &*ca][..], &named].concat(),
            "where clients must have certificates: --cert FILE --key FILE",
        ),
        (
            &door.url,
            vec!["--ca", &ca, "--cert", &cert, "--key", &nothing],
            "token: no private key (PEM)",
        ),
        (
            &door.url,
            vec!["--ca", &ca, "--cert", &cert, "--key", &other_key],
            "do not make a client's certificate",
        ),
        (
            &server.url,
            vec!["--ca", &ca],
            "--ca is for TLS, and http://127.0.0.1",
        ),
    ];
    for (url, flags, says) in cases {
        for command in ["stream", "bench"] {
            let error = format!("{:#}", send(command, url, &flags).await.unwrap_err());
            assert!(error.contains(says), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_file_that_holds_none_is_an_error_that_does_not_repeat_it() {
    let files = Files::new("token");
    let server = FakeServer::start(|_| Answer::Completed).await;
    files.write("words", "my secret\nwords\n");
    files.write("empty", "\n");
    for name in ["words", "empty", "none"] {
        let path = files.path(name);
        let error = send("stream", &server.url, &["--token-file", &path]).await;
        let error = format!("{:#}", error.unwrap_err());
        assert!(
            error.starts_with(&format!("--token-file {path}")),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
    // A file that does not end, such as a device, is read no further than a token goes.
    let error = send("stream", &server.url, &["--token-file", "/dev/zero"]).await;
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("more than 4096 bytes are no token")
    );
}
