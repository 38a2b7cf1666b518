//! The account of bytes: the bytes that a process holds for its clients, by holder, and how many more each holder may
//! take.
//!
//! Code that is to hold something for a client first takes a [`Lease`] for it and keeps the lease with it. A dropped
//! lease gives its bytes back, wherever it then is. A holder belongs to another one (a connection to its client), and
//! all holders to the process.
//!
//! No holder may have more than is still free (a dynamic threshold: Choudhury and Hahne, "Dynamic Queue Length
//! Thresholds for Shared-Memory Packet Switches", 1998, with alpha 1). So a single client can have half of the budget
//! and two clients a third each. Some of it is always left for the next client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// One part in `KEPT_PART` of the budget that answers may not take, so that new clients find a place.
pub(crate) const KEPT_PART: u64 = 8;

/// The bytes of a process.
#[derive(Debug)]
pub struct Account {
    budget: u64,
    held: AtomicU64,
    /// The most bytes held since the last call of [`Account::most_since`].
    most: AtomicU64,
}

/// A holder of bytes: a client, a connection, an address.
#[derive(Debug)]
pub struct Holder {
    account: Arc<Account>,
    /// The holder whose bytes these are as well.
    owner: Option<Arc<Holder>>,
    held: AtomicU64,
}

/// The bytes are not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{asked} bytes are asked for, of {budget} (--memory) {held} are held, {own} of them by this client: no client may \
     hold more than is free"
)]
pub struct Full {
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes that the asking holder has.
    pub own: u64,
    /// Bytes that all holders have.
    pub held: u64,
    /// Budget of the process.
    pub budget: u64,
}

/// Bytes that are held for as long as this lives.
#[derive(Debug)]
pub struct Lease {
    holder: Arc<Holder>,
    bytes: u64,
}

impl Account {
    /// An account of that many bytes.
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Account {
            budget,
            held: AtomicU64::new(0),
            most: AtomicU64::new(0),
        })
    }

    /// An account without a bound, where no client is served: profiles, tests.
    pub fn unbounded() -> Arc<Self> {
        Account::new(u64::MAX)
    }

    /// The budget.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The most bytes held at a time since the last call of this.
    pub fn most_since(&self) -> u64 {
        self.most.swap(0, Ordering::Relaxed)
    }

    /// A new holder without bytes.
    pub fn holder(self: &Arc<Self>) -> Arc<Holder> {
        Arc::new(Holder {
            account: self.clone(),
            owner: None,
            held: AtomicU64::new(0),
        })
    }
}

impl Holder {
    /// A new holder without bytes. Its bytes will count as this one's, too.
    pub fn member(self: &Arc<Self>) -> Arc<Holder> {
        Arc::new(Holder {
            account: self.account.clone(),
            owner: Some(self.clone()),
            held: AtomicU64::new(0),
        })
    }

    /// Bytes that it holds.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The account that its bytes are on.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Bytes that it may take at once now, as [`Holder::take`] counts.
    pub fn room(&self) -> u64 {
        let free = self.account.budget.saturating_sub(self.account.held());
        let rooms = self
            .owners()
            .map(|holder| free.saturating_sub(holder.held()) / 2);
        rooms.min().unwrap_or(0)
    }

    /// Why bytes are not taken that a rule of the caller's keeps for others.
    pub fn full(&self, asked: u64) -> Full {
        Full {
            asked,
            own: self.owners().map(Holder::held).max().unwrap_or(0),
            held: self.account.held(),
            budget: self.account.budget,
        }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// When the holder, or its owner, would have more than is free then.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Result<Lease, Full> {
        self.add(bytes, shared)?;
        Ok(self.lease(bytes))
    }

    /// Takes bytes in exchange for others that will soon be given back, as an answer's bytes are for those of its
    /// request. Within its share the holder always gets them, over its share only as long as enough is left for
    /// others.
    ///
    /// # Errors
    /// When the holder would have more than its share, and the process nearly its whole budget.
    pub fn take_on(self: &Arc<Self>, bytes: u64) -> Result<Lease, Full> {
        let kept = self.account.budget / KEPT_PART;
        self.add(bytes, |free, its| shared(free, its) || free >= kept)?;
        Ok(self.lease(bytes))
    }

    /// Takes bytes that a new client needs for its first call: up to the whole budget.
    ///
    /// # Errors
    /// When the process would hold more than its budget.
    pub fn take_last(self: &Arc<Self>, bytes: u64) -> Result<Lease, Full> {
        self.add(bytes, |_, _| true)?;
        Ok(self.lease(bytes))
    }

    fn lease(self: &Arc<Self>, bytes: u64) -> Lease {
        Lease {
            holder: self.clone(),
            bytes,
        }
    }

    fn owners(&self) -> impl Iterator<Item = &Holder> {
        std::iter::successors(Some(self), |holder| holder.owner.as_deref())
    }

    /// Adds bytes if `may` allows it, given the bytes that would be free then and those that each holder would have.
    fn add(&self, bytes: u64, may: impl Fn(u64, u64) -> bool) -> Result<(), Full> {
        let account = &self.account;
        // Added first and taken back if they do not fit. Two concurrent callers may both be refused where one would
        // fit; the budget is never exceeded.
        let all = account.held.fetch_add(bytes, Ordering::Relaxed);
        let all = all.saturating_add(bytes);
        let free = account.budget.checked_sub(all);
        let mut own = 0;
        let mut fits = free.is_some();
        for holder in self.owners() {
            let its = holder.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
            own = own.max(its - bytes);
            fits &= free.is_some_and(|free| may(free, its));
        }
        if fits {
            // Concurrent callers may miss the larger value; it is a rough figure.
            if all > account.most.load(Ordering::Relaxed) {
                account.most.store(all, Ordering::Relaxed);
            }
            return Ok(());
        }
        self.subtract(bytes);
        Err(Full {
            asked: bytes,
            own,
            held: all.saturating_sub(bytes),
            budget: account.budget,
        })
    }

    fn subtract(&self, bytes: u64) {
        self.account.held.fetch_sub(bytes, Ordering::Relaxed);
        for holder in self.owners() {
            holder.held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Lease {
    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more.
    ///
    /// # Errors
    /// As [`Holder::take`]; then the lease is unchanged.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Full> {
        self.holder.add(bytes, shared)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back the bytes above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        self.holder.subtract(over);
        self.bytes -= over;
    }

    /// Splits off a part as a lease of its own, at most all of it; the rest stays here.
    pub fn split(&mut self, bytes: u64) -> Lease {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.holder.lease(bytes)
    }

    /// The same bytes, held for as long as any slice of them exists.
    pub fn around(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Leased {
            bytes,
            _lease: self,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.holder.subtract(self.bytes);
    }
}

/// No holder has more than is free.
fn shared(free: u64, its: u64) -> bool {
    its <= free
}

struct Leased<B> {
    bytes: B,
    _lease: Lease,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Leased<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_holds_more_than_is_free() {
        let account = Account::new(100);
        let (a, b) = (account.holder(), account.holder());
        let first = a.take(50).unwrap();
        let refused = a.take(1).unwrap_err();
        assert_eq!((refused.own, refused.held, refused.budget), (50, 50, 100));
        let second = b.take(25).unwrap();
        assert!(b.take(1).is_err());
        drop(first);
        assert_eq!((account.held(), a.held(), b.held()), (25, 0, 25));
        assert!(b.take(25).is_ok());
        drop(second);
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn what_a_connection_holds_its_client_holds_too() {
        let account = Account::new(100);
        let client = account.holder();
        let connections = [client.member(), client.member()];
        let held: Vec<Lease> = connections.iter().map(|c| c.take(25).unwrap()).collect();
        assert_eq!((client.held(), account.held()), (50, 50));
        let third = client.member();
        assert!(
            third.take(1).is_err(),
            "another connection is no other client"
        );
        assert!(third.take_on(38).is_ok());
        assert!(
            third.take_on(39).is_err(),
            "an eighth is kept for newcomers"
        );
        assert!(third.take_last(50).is_ok());
        assert!(third.take_last(51).is_err());
        drop(held);
        assert_eq!((client.held(), third.held(), account.held()), (0, 0, 0));
    }

    /// Answers of one client must not cost another one its own.
    #[test]
    fn an_answer_within_its_clients_share_is_kept_whatever_others_hold() {
        let account = Account::new(100);
        let greedy = account.holder();
        let mut held = Vec::new();
        while let Ok(lease) = greedy.take_on(1) {
            held.push(lease);
        }
        assert_eq!(held.len(), 88, "an eighth is kept for others");
        assert!(account.holder().take_on(6).is_ok());
    }

    #[test]
    fn bytes_are_held_as_long_as_a_part_of_them_is() {
        let account = Account::new(100);
        let holder = account.holder();
        let whole = holder.take(4).unwrap().around(vec![1u8, 2, 3, 4]);
        let part = whole.slice(1..2);
        drop(whole);
        assert_eq!((account.held(), &part[..]), (4, &[2u8][..]));
        drop(part);
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn a_lease_that_is_split_holds_as_much_as_before() {
        let account = Account::new(100);
        let mut whole = account.holder().take(40).unwrap();
        let part = whole.split(30);
        assert_eq!((whole.bytes(), part.bytes(), account.held()), (10, 30, 40));
        drop(whole.split(50));
        assert_eq!((whole.bytes(), account.held()), (0, 30));
        drop((whole, part));
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn a_lease_grows_and_shrinks() {
        let account = Account::new(100);
        let mut lease = account.holder().take(10).unwrap();
        lease.grow(30).unwrap();
        assert!(lease.grow(20).is_err());
        assert_eq!((lease.bytes(), account.held()), (40, 40));
        lease.shrink_to(5);
        lease.shrink_to(50);
        assert_eq!((lease.bytes(), account.held()), (5, 5));
        assert!(Account::unbounded().holder().take(u64::MAX / 4).is_ok());
    }
}
