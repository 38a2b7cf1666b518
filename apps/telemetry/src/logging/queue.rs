//! The queue of lines for standard error: threads that log add lines and go on; a thread of its own writes them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Most bytes that wait: some seconds of a busy log, and little beside the memory of the server.
pub(crate) const WAITING_BYTES_MAX: usize = 1 << 20;
/// Longest line; the rest is cut. A line holds names and causes, no payloads.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// How long nothing is written after a failure, so that a full disk does not cause spinning.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// How often a non-blocking standard error is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that did not fit or could not be written, since the last report.
    lost: u64,
    /// The thread has taken lines that it has not written yet.
    is_writing: bool,
}

/// The waiting lines.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    written: Condvar,
}

impl Queue {
    /// Adds a line, or counts it as lost when there is no room. Never waits for a reader.
    pub(super) fn push(&self, mut line: Vec<u8>) {
        if line.len() > LINE_BYTES_MAX {
            line.truncate(LINE_BYTES_MAX - 1);
            line.push(b'\n');
        }
        let mut state = self.state.lock();
        if state.bytes + line.len() > WAITING_BYTES_MAX {
            state.lost += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        drop(state);
        self.arrived.notify_one();
    }

    /// For `tracing`'s formatter, which writes one line a call.
    pub(super) fn writer(self: &Arc<Self>) -> LineWriter {
        LineWriter(self.clone())
    }

    /// Waits until the queue is empty, for at most `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let give_up = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.lines.is_empty() || state.is_writing {
            if self.written.wait_until(&mut state, give_up).timed_out() {
                return;
            }
        }
    }

    /// The waiting lines and the number lost before them; nothing after `limit`.
    fn take(&self, limit: Duration) -> (VecDeque<Vec<u8>>, u64) {
        let mut state = self.state.lock();
        if state.lines.is_empty() {
            self.arrived.wait_for(&mut state, limit);
        }
        state.bytes = 0;
        state.is_writing = true;
        (
            std::mem::take(&mut state.lines),
            std::mem::take(&mut state.lost),
        )
    }

    fn wrote(&self, lost: u64) {
        let mut state = self.state.lock();
        state.lost += lost;
        state.is_writing = false;
        drop(state);
        self.written.notify_all();
    }
}

/// A writer that adds each call's text to the queue as a line.
pub(super) struct LineWriter(Arc<Queue>);

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Starts the thread that writes. `also` gives further lines and is called at least every `interval`; `lost` formats
/// the number of lost lines.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn start(
    queue: Arc<Queue>,
    interval: Duration,
    also: impl Fn() -> Vec<Vec<u8>> + Send + 'static,
    lost: impl Fn(u64) -> Vec<u8> + Send + 'static,
) -> std::io::Result<()> {
    // A descriptor of its own: the lock of `std::io::stderr` would be held while a write waits.
    let out = File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
    let write = move || run(&queue, interval, &also, &lost, out);
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(write)?;
    Ok(())
}

fn run(
    queue: &Queue,
    interval: Duration,
    also: &dyn Fn() -> Vec<Vec<u8>>,
    lost: &dyn Fn(u64) -> Vec<u8>,
    mut out: impl Write,
) {
    loop {
        let (mut lines, n_lost) = queue.take(interval);
        lines.extend(also());
        let mut failed = 0;
        if n_lost > 0 && put(&mut out, &lost(n_lost)).is_err() {
            failed += n_lost;
        }
        for line in lines {
            if failed > 0 || put(&mut out, &line).is_err() {
                failed += 1;
            }
        }
        queue.wrote(failed);
        if failed > 0 {
            std::thread::sleep(FAILURE_PAUSE);
        }
    }
}

/// Writes a whole line; waits as long as the reader needs.
fn put(out: &mut impl Write, mut line: &[u8]) -> std::io::Result<()> {
    while !line.is_empty() {
        match out.write(line) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => line = &line[n..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(BUSY_PAUSE),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standard error that can be full, and what it took.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(bool, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut disk = self.0.lock();
            if disk.0 {
                return Err(ErrorKind::StorageFull.into());
            }
            disk.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let give_up = Instant::now() + Duration::from_secs(5);
        while !holds() {
            assert!(Instant::now() < give_up, "not within 5 s: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_counted_and_told_once_there_is_room() {
        let (queue, disk) = (Arc::new(Queue::default()), Disk::default());
        disk.0.lock().0 = true;
        let (theirs, out) = (queue.clone(), disk.clone());
        let lost = |n| format!("{n} lost\n").into_bytes();
        std::thread::spawn(move || {
            run(&theirs, Duration::from_millis(20), &Vec::new, &lost, out);
        });
        for _ in 0..3 {
            queue.push(b"line\n".to_vec());
        }
        until("three are lost", || queue.state.lock().lost == 3);
        disk.0.lock().0 = false;
        let text = || String::from_utf8(disk.0.lock().1.clone()).unwrap();
        until("the count is told", || text() == "3 lost\n");
        queue.push(b"after\n".to_vec());
        queue.flush(Duration::from_secs(5));
        assert_eq!(text(), "3 lost\nafter\n");
    }

    #[test]
    fn without_a_reader_the_queue_is_bounded_and_nobody_waits() {
        let queue = Queue::default();
        let start = Instant::now();
        for _ in 0..10_000 {
            queue.push(vec![b'x'; 1000]);
        }
        queue.push(vec![b'x'; 10 << 20]);
        queue.flush(Duration::from_millis(10));
        assert!(start.elapsed() < Duration::from_secs(5));
        let state = queue.state.lock();
        assert!(state.bytes <= WAITING_BYTES_MAX);
        assert_eq!(state.lines.len() as u64 + state.lost, 10_001);
    }
}
