//! What becomes of freed memory. Under load the C library keeps it for later requests, because each page that comes anew from
//! the system costs a page fault. After a burst of large messages freed memory goes back to the system: otherwise the C
//! library would keep most of the budget for good.

use std::sync::Arc;
use std::time::Duration;

use spillgate_process::account::Account;
use tokio_util::sync::CancellationToken;

/// The C library keeps at most so much freed memory at the end of a heap. Of all heaps but the first, [`give_back`] leaves that
/// end as it is.
const KEPT_MAX: i32 = 16 << 20;
/// Blocks of this size and larger ones are mappings of their own. It is the largest value that the C library takes.
const MAPPED_MIN: i32 = 32 << 20;

/// Keeps freed memory for later requests. By default, each message of a tenth of a megabyte makes its heap grow and shrink.
#[expect(unsafe_code, reason = "a call of the C library that sets two numbers")]
pub(crate) fn keep() {
    // SAFETY: it takes no pointer, and may be called at any time from any thread. Numbers that it does not take change nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_MAX);
    }
}

/// How often the memory is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Less than this is not worth the walk over the heap.
const FREED_MIN: u64 = 16 << 20;
/// The same where nothing has changed since the last look.
const REST_MIN: u64 = 1 << 20;

/// Gives memory back each time that clients hold much less than they did, and once more when they have come to rest, until
/// told to stop.
pub(crate) async fn trim(account: Arc<Account>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(LOOK);
    let (mut most, mut before) = (0, 0);
    // Connections free their buffers a little later than the account hears of it.
    let mut is_due_at_rest = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return,
        }
        let held = account.held();
        most = most.max(held).max(account.most_since());
        let is_at_rest = held == before;
        before = held;
        let freed = most - held;
        if freed >= FREED_MIN || (is_at_rest && (is_due_at_rest || freed >= REST_MIN)) {
            most = held;
            is_due_at_rest = freed >= REST_MIN;
            // It takes milliseconds, with the locks of the allocator.
            let _ = tokio::task::spawn_blocking(give_back).await;
        }
    }
}

/// Gives freed memory back now. It takes milliseconds, with the locks of the allocator.
#[expect(
    unsafe_code,
    reason = "a call of the C library that asks for nothing and breaks nothing"
)]
pub(crate) fn give_back() {
    // SAFETY: it takes no pointer, and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
