//! The signals that a server heeds.

use std::sync::Arc;
use std::time::Duration;

use crate::reload::{Reload, Reloaded};
use spillgate_telemetry::logging::say;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::signals;

/// The name of the signal by which a supervisor stops a process.
pub(crate) const TERMINATE: &str = "SIGTERM";

/// How often watched files are looked at. Nobody sends SIGHUP to a container when its secrets are replaced.
const LOOK: Duration = Duration::from_secs(1);

/// SIGTERM and SIGINT stop, SIGHUP reloads. None of them ends the process by itself from now on.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// A signal that came.
pub(crate) enum Heard {
    /// One that stops; its name.
    Stop(&'static str),
    /// SIGHUP.
    HangUp,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        let all = Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        };
        signals::are_heeded();
        Ok(all)
    }

    /// Waits for any of them.
    pub(crate) async fn any(&mut self) -> Heard {
        tokio::select! {
            _ = self.terminate.recv() => Heard::Stop(TERMINATE),
            _ = self.interrupt.recv() => Heard::Stop("SIGINT"),
            _ = self.hang_up.recv() => Heard::HangUp,
        }
    }

    /// Waits for one that stops; its name.
    pub(crate) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => TERMINATE,
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The same, and reloads at each SIGHUP before, and what has changed at each look.
    pub(crate) async fn stop_or_reload(&mut self, reload: &Arc<Reload>) -> &'static str {
        loop {
            let heard = tokio::time::timeout(LOOK, self.any()).await;
            if let Ok(Heard::Stop(signal)) = heard {
                return signal;
            }
            let reload = reload.clone();
            let hung_up = heard.is_ok();
            // It reads files, and may load and measure models.
            let reloading = tokio::task::spawn_blocking(move || match hung_up {
                true => reload.run(),
                false => reload.look(),
            });
            tokio::select! {
                reloaded = reloading => match (hung_up, reloaded.unwrap_or_default()) {
                    (true, none) if none.is_empty() => say(
                        "SIGHUP: nothing here can be reloaded, nothing was done; restart the processes of a set one after the other",
                    ),
                    (true, reloaded) => tell("SIGHUP", &reloaded),
                    (false, reloaded) => tell("files have changed", &reloaded),
                },
                signal = self.stop() => return signal,
            }
        }
    }
}

fn tell(because: &str, reloaded: &[Reloaded]) {
    for (name, result) in reloaded {
        match result {
            Ok(found) => say(&format!("{because}: {name} reloaded: {found}")),
            Err(why) => say(&format!(
                "{because}: {name} not reloaded, what was there stays: {why}"
            )),
        }
    }
}
