//! What processes log.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;

use super::process::PATIENCE;

/// What is logged on this thread, on which all tasks of a test run.
pub(crate) struct Logs {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

struct Writer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logs {
    pub(crate) fn begin() -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || Writer(writer.clone()))
            .finish();
        Logs {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The lines about a peer.
    pub(crate) fn of(&self, peer: &str) -> Vec<String> {
        let text = String::from_utf8(self.text.lock().clone()).unwrap();
        let of = format!("peer=\"{peer}\"");
        let lines = text.lines().filter(|line| line.contains(&of));
        lines.map(str::to_owned).collect()
    }

    /// Waits for a line about a peer that holds this.
    pub(crate) async fn waits_for(&self, peer: &str, what: &str) {
        let give_up = Instant::now() + PATIENCE;
        while !self.of(peer).iter().any(|line| line.contains(what)) {
            let lines = self.of(peer);
            assert!(
                Instant::now() < give_up,
                "not said of {peer}: {what:?}: {lines:#?}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
