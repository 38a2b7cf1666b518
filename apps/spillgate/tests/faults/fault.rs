//! What can happen to a process, and how it ends.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::network::{Slow, Weather};
use crate::set::Set;

/// The one way of a message in a slow network, and the part of its segments that is lost.
const SLOW: Slow = Slow {
    delay: Duration::from_millis(50),
    loss: 0.01,
};

/// A fault of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL; it is started again at the end.
    Killed,
    /// SIGTERM; it is started again at the end.
    Ended,
    /// SIGSTOP, then SIGCONT.
    Stopped,
    /// Nothing reaches it.
    Deaf,
    /// Nothing that it says arrives.
    Mute,
    /// Both.
    Apart,
    /// Its connections with other processes are slow, and lose segments.
    Slow,
}

impl Fault {
    /// It begins now.
    pub(super) fn strike(self, set: &mut Set, name: &str) -> anyhow::Result<()> {
        match self {
            Fault::Killed => {
                set.send(name, Signal::SIGKILL);
                set.waits_end(name)?;
            }
            Fault::Ended => set.send(name, Signal::SIGTERM),
            Fault::Stopped => set.send(name, Signal::SIGSTOP),
            Fault::Deaf | Fault::Mute | Fault::Apart | Fault::Slow => {
                set.network.set(|weather| self.change(weather, name));
            }
        }
        Ok(())
    }

    fn change(self, weather: &mut Weather, name: &str) {
        if matches!(self, Fault::Deaf | Fault::Apart) {
            weather.deaf.insert(name.to_owned());
        }
        if matches!(self, Fault::Mute | Fault::Apart) {
            weather.mute.insert(name.to_owned());
        }
        if self == Fault::Slow {
            weather.slow = Some((HashSet::from([name.to_owned()]), SLOW));
        }
    }

    /// It is over. Returns since when the process is there again.
    pub(super) fn heal(self, set: &mut Set, name: &str) -> anyhow::Result<Instant> {
        match self {
            Fault::Killed => return set.restart(name),
            Fault::Ended => {
                let status = set.waits_end(name)?;
                anyhow::ensure!(status.success(), "{name} ended with {status} on SIGTERM");
                return set.restart(name);
            }
            Fault::Stopped => set.send(name, Signal::SIGCONT),
            Fault::Deaf | Fault::Mute | Fault::Apart | Fault::Slow => {
                set.network.set(|weather| *weather = Weather::default());
            }
        }
        Ok(Instant::now())
    }

    /// What the gateways say of the process once they notice the fault.
    pub(super) fn noticed(self) -> Option<&'static str> {
        match self {
            Fault::Killed | Fault::Ended => Some("peer lost peer="),
            Fault::Stopped | Fault::Deaf | Fault::Mute | Fault::Apart => {
                Some("peer is suspected: silent, or without an answer peer=")
            }
            Fault::Slow => None,
        }
    }
}
