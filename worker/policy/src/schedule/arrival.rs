//! Batches in order of arrival, as systems for static models form them: such systems know one expected time for each
//! size.

use super::book::Book;
use super::pending::PendingSet;
use super::strategy::Chosen;

/// Up to `limit` requests in order of arrival, computed at the least size that holds them.
pub(crate) fn first(book: &Book, set: &PendingSet, limit: u32) -> Option<Chosen> {
    let members: Vec<_> = set.by_arrival().take(limit as usize).collect();
    if members.is_empty() {
        return None;
    }
    let sizes = book.sizes();
    let holds = sizes.partition_point(|&size| (size as usize) < members.len());
    let size = sizes[holds.min(sizes.len() - 1)];
    Some(Chosen {
        size,
        members: members.iter().map(|p| p.id).collect(),
        expected_ms: batch_ms(book, size),
    })
}

/// The time of a batch as systems for static models expect it: that of mean requests, ms.
pub(crate) fn batch_ms(book: &Book, size: u32) -> f64 {
    let length = book.mixture().mean();
    book.time().ms(size, length, length * f64::from(size))
}
