//! The admin port beside clients that mean no good: over real sockets, in this process.

use std::time::{Duration, Instant};

use spillgate::admin::{Admin, AdminLimits, AdminPort, CONNECTIONS_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest that anything here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Limits that a test can wait for.
const SHORT: AdminLimits = AdminLimits {
    headers: Duration::from_millis(300),
    answer: Duration::from_millis(300),
};

async fn open(limits: AdminLimits) -> AdminPort {
    AdminPort::open("127.0.0.1:0".parse().unwrap(), limits)
        .await
        .unwrap()
}

async fn get(port: &AdminPort, path: &str) -> String {
    let mut stream = TcpStream::connect(port.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let mut text = String::new();
    let exchange = async {
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_to_string(&mut text).await.unwrap();
    };
    let answered = tokio::time::timeout(PATIENCE, exchange).await;
    answered.unwrap_or_else(|_| panic!("no answer to {path}"));
    text
}

/// Waits until the other side has closed the connection.
async fn closed(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    // A reset is an end, too.
    let _ = end.expect("the connection is still open");
    rest
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_no_probe_out() {
    let port = open(AdminLimits::default()).await;
    let mut silent = Vec::new();
    for _ in 0..4 * CONNECTIONS_MAX {
        silent.push(TcpStream::connect(port.address).await.unwrap());
        if silent.len() % CONNECTIONS_MAX == 0 {
            assert!(get(&port, "/livez").await.ends_with("alive\n"));
        }
    }
    // The first of them gave way.
    closed(silent.remove(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_asks_keeps_its_place_beside_silent_ones() {
    let port = open(AdminLimits::default()).await;
    let mut scraper = TcpStream::connect(port.address).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..4 {
        for _ in 0..CONNECTIONS_MAX / 2 {
            silent.push(TcpStream::connect(port.address).await.unwrap());
        }
        // They are accepted in order, so all of them are by now.
        assert!(get(&port, "/livez").await.ends_with("alive\n"));
        let request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
        scraper.write_all(request).await.unwrap();
        let mut answer = [0; 512];
        let read = tokio::time::timeout(PATIENCE, scraper.read(&mut answer)).await;
        let n = read.expect("an answer").unwrap();
        assert!(answer[..n].ends_with(b"alive\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_never_end_end_the_connection() {
    let port = open(SHORT).await;
    let mut slow = TcpStream::connect(port.address).await.unwrap();
    let silent = TcpStream::connect(port.address).await.unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    let start = Instant::now();
    // A header every 50 ms, for as long as it is listened to.
    while slow.write_all(b"a: b\r\n").await.is_ok() {
        assert!(start.elapsed() < PATIENCE, "still listened to");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    closed(silent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_headers_are_refused() {
    let port = open(AdminLimits::default()).await;
    let mut stream = TcpStream::connect(port.address).await.unwrap();
    let request = format!(
        "GET /livez HTTP/1.1\r\na: {}\r\n\r\n",
        "b".repeat(100 << 10)
    );
    // The answer may come before all of it is sent.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut start = [0; 12];
    if stream.read_exact(&mut start).await.is_ok() {
        assert_eq!(&start, b"HTTP/1.1 431");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_end_the_connection() {
    let port = open(SHORT).await;
    port.running(Admin {
        metrics: Box::new(|| "x".repeat(16 << 20)),
        not_ready: Box::new(|| None),
        status: Box::new(|| "{}".to_owned()),
    });
    let mut stream = TcpStream::connect(port.address).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    tokio::time::sleep(SHORT.headers + SHORT.answer + Duration::from_millis(300)).await;
    // What lay in the system's buffers is read now; the whole answer is not there.
    let read = closed(stream).await;
    assert!(read.len() < 16 << 20, "{} bytes", read.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn before_there_is_a_server_it_is_live_and_says_what_it_does() {
    let port = open(AdminLimits::default()).await;
    port.starting("measuring detect");
    assert!(get(&port, "/livez").await.starts_with("HTTP/1.1 200"));
    let ready = get(&port, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503") && ready.ends_with("starting: measuring detect\n"));
    assert!(get(&port, "/metrics").await.ends_with("# EOF\n"));
    assert!(get(&port, "/status").await.starts_with("HTTP/1.1 503"));
    port.running(Admin {
        metrics: Box::new(|| "m 1\n# EOF\n".to_owned()),
        not_ready: Box::new(|| None),
        status: Box::new(|| "{}".to_owned()),
    });
    assert!(get(&port, "/readyz").await.ends_with("ready\n"));
    assert!(get(&port, "/metrics").await.contains("m 1\n"));
    assert!(get(&port, "/status").await.ends_with("{}"));
}
