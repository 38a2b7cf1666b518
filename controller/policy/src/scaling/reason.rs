//! Why a scaler wants as many workers as it does.

use std::fmt::Write;

use spillgate_pipeline::time::Timestamp;

use super::HEADROOM;

/// How many workers a module should have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkersWanted {
    /// The number.
    pub workers: u32,
    /// Since when it is this one.
    pub since: Timestamp,
    /// Why.
    pub reason: Reason,
}

/// What the number of workers follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests a second that are offered to the pipeline, refused ones included.
    pub offered: f64,
    /// Part of them that runs the module.
    pub probability: f64,
    /// Measured over planned time of the module's batches, each by its own variant.
    pub pace: f64,
}

/// Why that many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The number is fixed.
    Fixed,
    /// No gateway tells how much is offered: the number stays.
    Unheard,
    /// The load.
    Load {
        /// As measured last.
        load: Load,
        /// Requests a second of one worker in planned batches, at a pace of 1.
        throughput: f64,
        /// Workers that this load needs, without bounds.
        needed: u32,
        /// More than needed are kept until then, at least.
        held_until: Option<Timestamp>,
    },
}

impl WorkersWanted {
    /// The reason in words.
    pub fn text(&self, now: Timestamp) -> String {
        let workers = self.workers;
        match self.reason {
            Reason::Fixed => "a fixed number".to_owned(),
            Reason::Unheard => "no gateway tells how much is offered: it stays".to_owned(),
            Reason::Load {
                load,
                throughput,
                needed,
                held_until,
            } => {
                let Load {
                    offered,
                    probability,
                    pace,
                } = load;
                let (each, spare) = (throughput / pace, 100.0 * (HEADROOM - 1.0));
                let mut text = format!(
                    "offered {offered:.1}/s x {probability:.2} that run it, one worker serves {each:.1}/s in planned \
                     batches at pace {pace:.2}, {spare:.0}% to spare: {needed} needed"
                );
                let bound = match held_until {
                    Some(until) => {
                        let left = until.since(now).as_secs_f64().ceil();
                        Some(format!(
                            "{workers} held until the cool-down ends in {left} s"
                        ))
                    }
                    None if needed > workers => Some(format!("{workers} is the most")),
                    None if needed < workers => Some(format!("{workers} is the least")),
                    None => None,
                };
                if let Some(bound) = bound {
                    let _ = write!(text, "; {bound}");
                }
                text
            }
        }
    }
}
