//! The network between the processes: each process that listens is reached through a proxy, which can hold, delay and stall
//! what passes, by direction.
//!
//! A proxy knows both ends of a connection: the one that listens has a proxy of its own, and the one that dialled is the process
//! that owns the other end of the socket.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Payload of a segment on an Ethernet.
const SEGMENT: usize = 1460;
/// Linux sends a lost segment again after at least this long, and a round trip.
const RETRANSMIT_MIN: Duration = Duration::from_millis(200);
/// Chunks that are under way in one direction of a connection. A sender of more waits, as for a full window.
const UNDER_WAY: usize = 64;

/// What the network does to each message of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slow {
    /// The time of one way.
    pub(super) delay: Duration,
    /// Part of the segments that are lost, and stall the connection until they are sent again.
    pub(super) loss: f64,
}

/// The state of the network. Processes are known by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Weather {
    /// Nothing reaches these.
    pub(super) deaf: HashSet<String>,
    /// Nothing that these say arrives.
    pub(super) mute: HashSet<String>,
    /// Whatever these say or hear is slow.
    pub(super) slow: Option<(HashSet<String>, Slow)>,
}

impl Weather {
    fn holds(&self, from: &str, to: &str) -> bool {
        self.mute.contains(from) || self.deaf.contains(to)
    }

    fn slow(&self, from: &str, to: &str) -> Option<Slow> {
        let (names, slow) = self.slow.as_ref()?;
        (names.contains(from) || names.contains(to)).then_some(*slow)
    }
}

/// Processes that run, by name.
pub(super) type Pids = Arc<Mutex<Vec<(String, u32)>>>;

/// The proxies of a set of processes.
pub(super) struct Network {
    weather: watch::Sender<Weather>,
    pids: Pids,
    runtime: Handle,
}

impl Network {
    pub(super) fn new(runtime: Handle, pids: Pids) -> Self {
        Network {
            weather: watch::Sender::default(),
            pids,
            runtime,
        }
    }

    /// Changes the weather from now on.
    pub(super) fn set(&self, change: impl FnOnce(&mut Weather)) {
        self.weather.send_modify(change);
    }

    /// The address under which others reach the process that listens at `target`.
    pub(super) fn proxy(&self, name: &str, target: SocketAddr) -> anyhow::Result<SocketAddr> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (weather, pids) = (self.weather.subscribe(), self.pids.clone());
        let name = name.to_owned();
        self.runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            let mut number = 0;
            // Ends with the network.
            while let Ok((stream, _)) = listener.accept().await {
                number += 1;
                let Ok(dialler) = dialler_of(&stream, &pids) else {
                    continue;
                };
                let ends = [dialler, name.clone()];
                tokio::spawn(connect(stream, target, ends, weather.clone(), number));
            }
        });
        Ok(address)
    }
}

/// The process that made a connection of this machine.
fn dialler_of(stream: &TcpStream, pids: &Pids) -> anyhow::Result<String> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (stream.peer_addr()?, stream.local_addr()?)
    else {
        anyhow::bail!("not IPv4");
    };
    let of = |address: std::net::SocketAddrV4| {
        let ip = u32::from_ne_bytes(address.ip().octets());
        format!("{ip:08X}:{:04X}", address.port())
    };
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let line = table
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    let mut line = line.filter(|l| l.len() > 9 && l[1] == of(from) && l[2] == of(to));
    let inode = line.next().context("the connection is gone")?[9];
    let socket = format!("socket:[{inode}]");
    let pids = pids.lock().unwrap().clone();
    let owner = pids.into_iter().find(|(_, pid)| {
        let folder = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let mut files = folder.into_iter().flatten().flatten();
        files.any(|f| std::fs::read_link(f.path()).is_ok_and(|to| to.as_os_str() == &*socket))
    });
    Ok(owner.context("made by a process that has ended")?.0)
}

/// One connection, until both directions have ended.
async fn connect(
    dialled: TcpStream,
    target: SocketAddr,
    [dialler, listener]: [String; 2],
    mut weather: watch::Receiver<Weather>,
    number: u64,
) {
    // A connection is made by messages in both directions.
    let passes = |w: &Weather| !w.holds(&dialler, &listener) && !w.holds(&listener, &dialler);
    if weather.wait_for(passes).await.is_err() {
        return;
    }
    let Ok(reached) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (dialled.set_nodelay(true), reached.set_nodelay(true));
    let (from_dialler, to_dialler) = dialled.into_split();
    let (from_listener, to_listener) = reached.into_split();
    let there = Way {
        from: dialler.clone(),
        to: listener.clone(),
        weather: weather.clone(),
        dice: ChaCha8Rng::seed_from_u64(2 * number),
    };
    let back = Way {
        from: listener,
        to: dialler,
        weather,
        dice: ChaCha8Rng::seed_from_u64(2 * number + 1),
    };
    tokio::join!(
        there.carry(from_dialler, to_listener),
        back.carry(from_listener, to_dialler)
    );
}

/// One direction of a connection.
struct Way {
    from: String,
    to: String,
    weather: watch::Receiver<Weather>,
    dice: ChaCha8Rng,
}

impl Way {
    async fn carry(mut self, mut source: OwnedReadHalf, mut sink: OwnedWriteHalf) {
        let (put, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
        let mut weather = self.weather.clone();
        let (from, to) = (self.from.clone(), self.to.clone());
        let read = async move {
            let mut due = Instant::now();
            loop {
                let mut chunk = vec![0; 16 * SEGMENT];
                // The end of a connection travels like its data.
                let n = source.read(&mut chunk).await.unwrap_or(0);
                chunk.truncate(n);
                due = due.max(Instant::now() + self.takes(n));
                if put.send((due, chunk)).await.is_err() || n == 0 {
                    return;
                }
            }
        };
        let write = async move {
            while let Some((due, chunk)) = chunks.recv().await {
                tokio::time::sleep_until(due).await;
                let passes = |w: &Weather| !w.holds(&from, &to);
                if weather.wait_for(passes).await.is_err() {
                    return;
                }
                if chunk.is_empty() || sink.write_all(&chunk).await.is_err() {
                    let _ = sink.shutdown().await;
                    return;
                }
            }
        };
        tokio::join!(read, write);
    }

    /// How long so many bytes are under way. What follows waits for them.
    fn takes(&mut self, bytes: usize) -> Duration {
        let Some(slow) = self.weather.borrow().slow(&self.from, &self.to) else {
            return Duration::ZERO;
        };
        let segments = bytes.div_ceil(SEGMENT).max(1);
        let lost = (0..segments).any(|_| self.dice.random_bool(slow.loss));
        let again = RETRANSMIT_MIN + 2 * slow.delay;
        slow.delay + if lost { again } else { Duration::ZERO }
    }
}
