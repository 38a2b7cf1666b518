//! What processes log.

use std::cell::RefCell;
use std::io;
use std::sync::Once;
use std::time::Duration;

use super::process::PATIENCE;
use tokio::time::Instant;

thread_local! {
    /// What was logged on this thread, on which all tasks of a test run.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What is logged on this thread from now on.
pub(crate) struct Logs(());

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TEXT.with_borrow_mut(|text| text.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logs {
    pub(crate) fn begin() -> Self {
        // One for all threads: with one for each of them, the tests would turn each other's lines off.
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            tracing_subscriber::fmt()
                .with_ansi(false)
                .with_writer(|| Writer)
                .init();
        });
        TEXT.take();
        Logs(())
    }

    /// The lines about a peer.
    pub(crate) fn of(&self, peer: &str) -> Vec<String> {
        let text = TEXT.with_borrow(|text| String::from_utf8(text.clone()).unwrap());
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
