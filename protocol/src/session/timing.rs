//! The times of a session.

use std::time::Duration;

use thiserror::Error;

use spillgate_pipeline::time::format_duration;

/// Least time until suspicion: with less, heartbeats would be a load.
const SUSPICION_MIN: Duration = Duration::from_millis(10);

/// Silence after which a peer is lost, unless said otherwise. A dial, and a greeting, are waited for as long.
pub(crate) const DEATH_DEFAULT: Duration = Duration::from_secs(3);

/// Most time between dials of a lost peer, unless said otherwise: a process that comes back is met within about a second.
pub(crate) const BACKOFF_LONGEST_DEFAULT: Duration = Duration::from_secs(1);

/// Heartbeats that fit into the time until suspicion. So one that is late, or was lost by a peer that was busy, makes
/// nobody suspected.
const HEARTBEATS: u32 = 4;

/// While other traffic makes heartbeats unnecessary as signs of life, one is sent after so many periods: the clock needs
/// its answer.
const CLOCK_PERIODS: u32 = 2;

/// When a peer is suspected, when it is lost, and when it is dialled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    suspicion: Duration,
    death: Duration,
    backoff_first: Duration,
    backoff_longest: Duration,
}

/// Times that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TimingError {
    /// Heartbeats would come too fast.
    #[error(
        "suspicion after {}: at least {} is needed",
        format_duration(*.0), format_duration(SUSPICION_MIN)
    )]
    Suspicion(Duration),
    /// A peer would be lost before it is suspected.
    #[error(
        "death after {} must come later than suspicion after {}",
        format_duration(*.death), format_duration(*.suspicion)
    )]
    Death {
        /// Silence after which a peer is suspected.
        suspicion: Duration,
        /// Silence after which it is lost.
        death: Duration,
    },
    /// There is no backoff, or the first one is longer than the longest.
    #[error(
        "the first backoff, {}, must be more than 0 and at most the longest, {}",
        format_duration(*.first), format_duration(*.longest)
    )]
    Backoff {
        /// The first bound of a backoff.
        first: Duration,
        /// The last bound of a backoff.
        longest: Duration,
    },
}

impl Default for Timing {
    /// Suspicion after 1 s, the first backoff up to 100 ms.
    fn default() -> Self {
        Timing {
            suspicion: Duration::from_secs(1),
            death: DEATH_DEFAULT,
            backoff_first: Duration::from_millis(100),
            backoff_longest: BACKOFF_LONGEST_DEFAULT,
        }
    }
}

impl Timing {
    /// A peer is suspected after `suspicion` of silence and lost after `death`. The first backoff is at most
    /// `backoff_first`; the bound doubles up to `backoff_longest`.
    ///
    /// # Errors
    /// The rule that the times break.
    pub fn try_new(
        suspicion: Duration,
        death: Duration,
        backoff_first: Duration,
        backoff_longest: Duration,
    ) -> Result<Self, TimingError> {
        if suspicion < SUSPICION_MIN {
            return Err(TimingError::Suspicion(suspicion));
        }
        if death <= suspicion {
            return Err(TimingError::Death { suspicion, death });
        }
        if backoff_first.is_zero() || backoff_first > backoff_longest {
            return Err(TimingError::Backoff {
                first: backoff_first,
                longest: backoff_longest,
            });
        }
        Ok(Timing {
            suspicion,
            death,
            backoff_first,
            backoff_longest,
        })
    }

    /// The same with these times of silence.
    ///
    /// # Errors
    /// See [`Timing::try_new`].
    pub fn with_silence(self, suspicion: Duration, death: Duration) -> Result<Self, TimingError> {
        Timing::try_new(suspicion, death, self.backoff_first, self.backoff_longest)
    }

    /// Silence after which a peer is suspected.
    pub fn suspicion(&self) -> Duration {
        self.suspicion
    }

    /// Silence after which a peer is lost. A dial, and a greeting, are waited for as long.
    pub fn death(&self) -> Duration {
        self.death
    }

    /// The bound of the first backoff.
    pub fn backoff_first(&self) -> Duration {
        self.backoff_first
    }

    /// The last bound of a backoff. Backoffs begin anew after a session that lasted as long.
    pub fn backoff_longest(&self) -> Duration {
        self.backoff_longest
    }

    /// A heartbeat is sent when nothing else was sent for so long.
    pub(super) fn period(&self) -> Duration {
        self.suspicion / HEARTBEATS
    }

    /// A heartbeat is sent at least so often.
    pub(super) fn clock_period(&self) -> Duration {
        self.period() * CLOCK_PERIODS
    }
}
