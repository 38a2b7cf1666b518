//! Processes and clients that mean harm, and what they find.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::certificates::Authority;
use super::set::{PROCESSES, Set};

/// Connections to each port.
const FLOOD: usize = 3000;
/// Of these open at a time: more than a host has places for strangers.
const OPEN: usize = 400;

/// Opens connections to a port until there were enough of them; each of the kinds in turn.
fn flood(at: &str) {
    let mut open = VecDeque::new();
    for i in 0..FLOOD {
        let Ok(mut stream) = TcpStream::connect(at) else {
            continue;
        };
        // Nothing, the start of TLS with a length that never comes, or plain text.
        let _ = match i % 3 {
            0 => Ok(()),
            1 => stream.write_all(&[0x16, 3, 1, 0x40, 0]),
            _ => stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        };
        open.push_back(stream);
        if open.len() > OPEN {
            open.pop_front();
        }
    }
}

// Over five seconds: it waits for other sets to end, and floods two sets, one with TLS, for as long as 9000 connections
// take.
#[test]
fn thousands_of_connections_to_link_ports_cost_no_request() {
    let authority = Authority::new("flood");
    for is_secure in [true, false] {
        let mut set = Set::alone("flood");
        for (name, role) in PROCESSES {
            authority.certificate(name, &[&format!("{role}.spillgate")], |_| {});
            let flags = if is_secure {
                authority.flags(name)
            } else {
                Vec::new()
            };
            set.start(name, &flags);
        }
        set.is_ready();
        let report = set.bench(20, 8, |set| {
            let ports = ["a-0", "a-1", "controller"].map(|name| set.address(name));
            std::thread::scope(|scope| {
                for at in &ports {
                    scope.spawn(|| flood(at));
                }
            });
        });
        // The machine is busy with the flood itself; a session that ends would cost many more.
        report.completes(0.97);
        for (name, _) in PROCESSES {
            assert!(!set.has_said(name, "peer lost"), "{name} lost a peer");
            assert!(!set.has_said(name, "panicked"), "{name} panicked");
        }
        set.bench(20, 2, |_| {}).completes_all();
    }
}

/// Passes on what comes to a port, and keeps it.
struct Tap {
    address: String,
    bytes: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
}

impl Tap {
    fn before(behind: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tap = Tap {
            address: listener.local_addr().unwrap().to_string(),
            bytes: Arc::default(),
            is_over: Arc::default(),
        };
        let (bytes, is_over) = (tap.bytes.clone(), tap.is_over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(inside) = TcpStream::connect(&behind) else {
                    continue;
                };
                let ways = [
                    (stream.try_clone().unwrap(), inside.try_clone().unwrap()),
                    (inside, stream),
                ];
                for (mut from, mut to) in ways {
                    let bytes = bytes.clone();
                    std::thread::spawn(move || {
                        let mut part = vec![0; 64 << 10];
                        while let Ok(n @ 1..) = from.read(&mut part) {
                            bytes.lock().unwrap().extend_from_slice(&part[..n]);
                            if to.write_all(&part[..n]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        tap
    }

    fn has_seen(&self, what: &[u8]) -> bool {
        let bytes = self.bytes.lock().unwrap();
        bytes.windows(what.len()).any(|part| part == what)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

#[test]
fn a_token_travels_no_further_than_its_gateway() {
    let token = "a-token-that-nobody-else-sees";
    let hash = Sha256::digest(token);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut set = Set::new("token");
    let taps: BTreeMap<_, _> = ["a-0", "a-1", "controller"]
        .map(|name| (name, Tap::before(set.address(name))))
        .into();
    let dialled = taps.iter().map(|(name, tap)| (*name, tap.address.clone()));
    set.topology(&dialled.collect());
    let file = |name: &str, text: &str| -> String {
        let path = set.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let grants =
        format!("tokens:\n- {{ name: camera-of-the-yard, sha256: \"{hex}\", pipelines: all }}\n");
    let (grants, token_file) = (file("tokens.yaml", &grants), file("token", token));
    for (name, _) in PROCESSES {
        let flags = match name {
            "gateway-0" => vec!["--tokens".to_owned(), grants.clone()],
            _ => Vec::new(),
        };
        set.start(name, &flags);
    }
    set.waits_for("gateway-0", "listening on http");
    for name in taps.keys() {
        set.waits_for("gateway-0", &format!("peer met peer=\"{name}\""));
    }
    assert_eq!(set.bench(20, 1, |_| {}).completed, 0, "without a token");
    let flags = ["--token-file", &token_file, "--payload-bytes", "10000"];
    set.bench_with(20, 2, &flags, |_| {}).completes(0.9);
    let any = |what: &[u8]| taps.values().any(|tap| tap.has_seen(what));
    let n_bytes: usize = taps
        .values()
        .map(|tap| tap.bytes.lock().unwrap().len())
        .sum();
    assert!(
        n_bytes > 30 * 10_000,
        "the taps see {n_bytes} bytes of 40 requests"
    );
    for secret in [
        token.as_bytes(),
        hex.as_bytes(),
        &hash[..],
        b"camera-of-the-yard",
    ] {
        assert!(
            !any(secret),
            "{:?} travels",
            String::from_utf8_lossy(secret)
        );
    }
}
