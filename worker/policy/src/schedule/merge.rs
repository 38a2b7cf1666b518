//! The requests of several applications in one order of deadlines.

use spillgate_pipeline::time::Timestamp;

use super::pending::{Pending, PendingSet};

/// Hands `take` the requests of `applications` that are due at `from` or later, in order of deadlines, until `take`
/// returns false.
pub(crate) fn earliest(
    set: &PendingSet,
    applications: &[usize],
    from: impl Fn(usize) -> Timestamp,
    mut take: impl FnMut(Pending) -> bool,
) {
    let mut streams: Vec<_> = applications
        .iter()
        .map(|&application| set.due_from(application, from(application)).peekable())
        .collect();
    loop {
        let next = streams
            .iter_mut()
            .enumerate()
            .filter_map(|(i, stream)| stream.peek().map(|p| (p.deadline, p.id, i)))
            .min();
        let Some((_, _, i)) = next else { return };
        let Some(pending) = streams[i].next() else {
            return;
        };
        if !take(pending) {
            return;
        }
    }
}
