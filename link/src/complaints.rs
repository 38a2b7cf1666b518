//! What is wrong with peers of a process, each said once.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Complaints that are remembered, so that each is made once.
pub(crate) const COMPLAINTS_MAX: usize = 64;
/// What is wrong with a peer that is met.
const FOUND: &str = "something is wrong with a process";

/// What a process complained of: peer and complaint, the oldest first. The links of all its pipelines and its port have one.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<VecDeque<(String, String)>>);

impl Complaints {
    /// Says what is wrong with a peer, once until something else is wrong: peers are dialled again and again.
    pub(crate) fn make(&self, peer: &str, what: &str, why: &str) {
        let complaint = (peer.to_owned(), format!("{what}: {why}"));
        let mut complaints = self.0.lock();
        if complaints.contains(&complaint) {
            return;
        }
        tracing::warn!(peer, why, "{what}");
        if complaints.len() == COMPLAINTS_MAX {
            complaints.pop_front();
        }
        complaints.push_back(complaint);
    }

    /// The same of a peer that is met; `None`: nothing is wrong with it any more.
    pub(crate) fn find(&self, peer: &str, wrong: Option<&str>) {
        let is_former = |(of, text): &(String, String)| of == peer && text.starts_with(FOUND);
        match wrong {
            Some(why) => self.make(peer, FOUND, why),
            None => self.0.lock().retain(|of| !is_former(of)),
        }
    }

    /// There is a session with a peer: what was wrong with it may be said again.
    pub(crate) fn forget(&self, peer: &str) {
        self.0.lock().retain(|(of, _)| of != peer);
    }

    /// The address that is dialled, or the host of those that dial, and what is wrong. The newest last.
    pub fn all(&self) -> Vec<(String, String)> {
        self.0.lock().iter().cloned().collect()
    }
}
