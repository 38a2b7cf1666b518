//! Processes that show each other certificates.

use std::sync::Arc;
use std::time::Duration;

use spillgate_link::tls::LinkTls;
use spillgate_protocol::message::Address;
use spillgate_protocol::session::entrance::STRANGERS_MAX;
use spillgate_protocol::session::rights::{Kind, LinkProcess, SET_DEFAULT};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::certificates::Authority;
use super::logs::Logs;
use super::process::{CONTROLLER, DEVICE, GATEWAY, PATIENCE, Process, any};

fn member(name: &str, kind: Kind) -> LinkProcess {
    LinkProcess {
        name: Some(name.into()),
        kinds: vec![kind],
    }
}

fn worker() -> LinkProcess {
    member("a-1", Kind::Worker)
}

/// A process that shows a certificate with these names.
fn secure(role: Address, life: u64, authority: &Authority, names: &[&str]) -> Process {
    let name = format!("process-{life}");
    authority.certificate(&name, names, |_| {});
    with(role, life, authority, &name)
}

/// A process with a certificate of that name.
fn with(role: Address, life: u64, authority: &Authority, name: &str) -> Process {
    let tls = LinkTls::new(authority.files(name), SET_DEFAULT.into()).unwrap();
    Process::secure(role, life, Some(Arc::new(tls)))
}

/// The gateway dials, which neither side hears of; what each of them logs.
async fn refused(
    gateway: &Process,
    device: &Process,
    peer: LinkProcess,
    dialler_says: &str,
    listener_says: &str,
) {
    let at = device.listens(any()).await;
    let logs = Logs::begin();
    gateway.links.dial(at.to_string(), peer);
    logs.waits_for(&at.to_string(), dialler_says).await;
    logs.waits_for("127.0.0.1", listener_says).await;
    assert!(gateway.heard.is_empty() && device.heard.is_empty());
    gateway.ends().await;
    device.ends().await;
}

#[tokio::test(start_paused = true)]
async fn processes_with_the_names_of_their_roles_meet() {
    let authority = Authority::new("meet");
    let gateway = secure(GATEWAY, 1, &authority, &["gateway.spillgate"]);
    let device = secure(
        DEVICE,
        2,
        &authority,
        &["localhost", "a-1.worker.spillgate"],
    );
    let at = device.listens(any()).await;
    gateway.links.dial(at.to_string(), worker());
    gateway.heard.waits_for("met 2").await;
    device.heard.waits_for("met 1").await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_greets_as_what_its_certificate_does_not_name_is_refused() {
    let authority = Authority::new("claims");
    // It says that it is the gateway, and is a worker.
    let gateway = secure(GATEWAY, 11, &authority, &["worker.spillgate"]);
    let device = secure(DEVICE, 12, &authority, &["worker.spillgate"]);
    let why = "peer front greets as gateway, its certificate is for worker.spillgate; give it a certificate with the name \
               gateway.spillgate";
    let dialler = format!("the peer refuses this process: {why}");
    refused(&gateway, &device, worker(), &dialler, why).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_listens_and_is_not_the_one_that_was_dialled_is_refused() {
    let authority = Authority::new("dialled");
    let gateway = secure(GATEWAY, 21, &authority, &["gateway.spillgate"]);
    let device = secure(DEVICE, 22, &authority, &["a-2.worker.spillgate"]);
    let dialler = "process a-1 should be a worker, its certificate is for a-2.worker.spillgate; give it a \
                   certificate with the name worker.spillgate";
    let listener = "this process's certificate has not the names of its roles";
    refused(&gateway, &device, worker(), dialler, listener).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_listens_greets_only_as_what_its_certificate_names() {
    let authority = Authority::new("listens");
    let gateway = secure(GATEWAY, 31, &authority, &["gateway.spillgate"]);
    let other = secure(CONTROLLER, 32, &authority, &["worker.spillgate"]);
    let why = "peer control greets as controller, its certificate is for worker.spillgate";
    let listener = format!("the peer refuses this process: {why}");
    refused(&gateway, &other, worker(), why, &listener).await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_another_authority_is_refused_by_either_side() {
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let gateway = secure(GATEWAY, 41, &right, &["gateway.spillgate"]);
    let device = secure(DEVICE, 42, &wrong, &["worker.spillgate"]);
    let dialler = "the peer's certificate is of no authority in --link-ca";
    let listener = "this process's certificate is of no authority in its --link-ca";
    refused(&gateway, &device, worker(), dialler, listener).await;

    // The gateway trusts both authorities, and the device the one.
    let both = right.read("ca.pem") + &wrong.read("ca.pem");
    right.write("ca.pem", &both);
    let gateway = secure(GATEWAY, 43, &right, &["gateway.spillgate"]);
    let device = secure(DEVICE, 44, &wrong, &["worker.spillgate"]);
    refused(
        &gateway,
        &device,
        worker(),
        "this process's certificate is of no authority in its --link-ca",
        "the peer's certificate is of no authority in --link-ca",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_certificate_is_refused_by_either_side() {
    let authority = Authority::new("expired");
    for (name, role) in [
        ("old-gateway", "gateway.spillgate"),
        ("old-worker", "worker.spillgate"),
    ] {
        authority.certificate(name, &[role], |params| {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        });
    }
    let theirs = "the peer's certificate has expired";
    let mine = "this process's certificate has expired";
    let gateway = secure(GATEWAY, 51, &authority, &["gateway.spillgate"]);
    let device = with(DEVICE, 52, &authority, "old-worker");
    refused(&gateway, &device, worker(), theirs, mine).await;
    let gateway = with(GATEWAY, 53, &authority, "old-gateway");
    let device = secure(DEVICE, 54, &authority, &["worker.spillgate"]);
    refused(&gateway, &device, worker(), mine, theirs).await;
    let warnings = LinkTls::new(authority.files("old-worker"), SET_DEFAULT.into()).unwrap();
    let warnings = warnings.warnings(&worker());
    assert!(
        warnings[0].contains("has expired: peers will refuse it"),
        "{warnings:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_certificate_for_servers_alone_is_refused_where_it_dials() {
    let authority = Authority::new("purpose");
    authority.certificate("server", &["gateway.spillgate"], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    let gateway = with(GATEWAY, 61, &authority, "server");
    let device = secure(DEVICE, 62, &authority, &["worker.spillgate"]);
    let (mine, theirs) = (
        "this process's certificate is not for this use",
        "the peer's certificate is not for this use",
    );
    refused(&gateway, &device, worker(), mine, theirs).await;
}

#[tokio::test(start_paused = true)]
async fn plain_text_and_tls_do_not_meet_and_say_why() {
    let authority = Authority::new("plain");
    let gateway = Process::secure(GATEWAY, 71, None);
    let device = secure(DEVICE, 72, &authority, &["worker.spillgate"]);
    let (tls, plain) = (
        "the peer speaks TLS; start this process with",
        "the peer does not speak TLS",
    );
    refused(&gateway, &device, worker(), tls, plain).await;
    let gateway = secure(GATEWAY, 73, &authority, &["gateway.spillgate"]);
    let device = Process::secure(DEVICE, 74, None);
    refused(&gateway, &device, worker(), plain, tls).await;
}

#[tokio::test(start_paused = true)]
async fn new_connections_use_the_certificates_that_were_read_last() {
    let authority = Authority::new("reload");
    let gateway = secure(GATEWAY, 81, &authority, &["gateway.spillgate"]);
    authority.certificate("worker", &["worker.spillgate"], |_| {});
    let tls = Arc::new(LinkTls::new(authority.files("worker"), SET_DEFAULT.into()).unwrap());
    let device = Process::secure(DEVICE, 82, Some(tls.clone()));
    let at = device.listens(any()).await;
    gateway.links.dial(at.to_string(), worker());
    gateway.heard.waits_for("met 82").await;

    // Half of a pair, as while files are replaced: what was there stays.
    let key = authority.read("worker.key");
    authority.certificate("worker", &["b-0.worker.spillgate"], |_| {});
    let new = authority.read("worker.key");
    authority.write("worker.key", &key);
    let error = tls.reload().unwrap_err().to_string();
    assert!(
        error.contains("--link-key") && error.contains("not the key of"),
        "{error}"
    );
    let other = secure(GATEWAY, 83, &authority, &["gateway.spillgate"]);
    other.links.dial(at.to_string(), worker());
    other.heard.waits_for("met 82").await;
    other.ends().await;

    authority.write("worker.key", &new);
    tls.reload().unwrap();
    let logs = Logs::begin();
    let third = secure(GATEWAY, 84, &authority, &["gateway.spillgate"]);
    third.links.dial(at.to_string(), worker());
    let why = "process a-1 should be a worker, its certificate is for b-0.worker.spillgate";
    logs.waits_for(&at.to_string(), why).await;
    assert!(third.heard.is_empty());
}

/// Until the other side closes; false if it does not.
async fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    let mut said = Vec::new();
    tokio::time::timeout(within, stream.read_to_end(&mut said))
        .await
        .is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed() {
    let authority = Authority::new("silent");
    let secure = secure(DEVICE, 91, &authority, &["worker.spillgate"]);
    let plain = Process::secure(DEVICE, 92, None);
    for device in [&secure, &plain] {
        let at = device.listens(any()).await;
        let mut stream = TcpStream::connect(at).await.unwrap();
        assert!(is_closed(&mut stream, Duration::from_secs(10)).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_connections_keep_no_process_out() {
    let authority = Authority::new("flood");
    let gateway = secure(GATEWAY, 101, &authority, &["gateway.spillgate"]);
    let device = secure(DEVICE, 102, &authority, &["worker.spillgate"]);
    let at = device.listens(any()).await;
    gateway.links.dial(at.to_string(), worker());
    gateway.heard.waits_for("met 102").await;
    // Few enough to spare the descriptors of this process, and more than a host has places.
    const OPEN: usize = STRANGERS_MAX + 64;
    let flood = tokio::spawn(async move {
        let mut open = std::collections::VecDeque::new();
        let mut n = 0;
        while n < 2000 {
            if let Ok(stream) = TcpStream::connect(at).await {
                open.push_back(stream);
                n += 1;
            }
            if open.len() > OPEN {
                open.pop_front();
            }
        }
        open
    });
    // One that comes meanwhile.
    let other = secure(CONTROLLER, 103, &authority, &["controller.spillgate"]);
    other.links.dial(at.to_string(), worker());
    other.heard.waits_for("met 102").await;
    let open = tokio::time::timeout(PATIENCE, flood)
        .await
        .unwrap()
        .unwrap();
    assert!(!gateway.heard.has("parted 102"), "a session ended");
    assert!(!device.heard.has("parted 101"), "a session ended");
    // All but those that have a place are closed, sooner than for their silence.
    let mut open: Vec<TcpStream> = open.into();
    let give_up = Instant::now() + Duration::from_secs(4);
    while open.len() > STRANGERS_MAX {
        assert!(Instant::now() < give_up, "{} are open", open.len());
        let mut left = Vec::new();
        for mut stream in open {
            if !is_closed(&mut stream, Duration::from_millis(1)).await {
                left.push(stream);
            }
        }
        open = left;
    }
}
