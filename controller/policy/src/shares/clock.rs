//! The virtual clock of generalized processor sharing (Parekh and Gallager 1993): it says how much each member of a group
//! may have had by now.
//!
//! The clock turns tokens into virtual time: a token is a request of average cost. Each member whose credit is not full
//! gets tokens in proportion to its weight, so virtual time runs at *tokens / weight of these members*. A member that asks
//! for less than this has full credit most of the time and takes nothing from the clock; what it leaves runs the clock
//! faster for the others. This is max-min fairness without any measured rate.
//!
//! A member has a *tag*: the virtual time up to which it has used its share. A tag behind the clock is credit, a tag ahead
//! of it is debt. Both are bounded by a *span*, so a member that was silent cannot save more than a burst, and one that
//! used what others left over does not pay for it for long.
//!
//! Deviation from the paper: there is no queue here, so "has work" becomes "has not its full credit".

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::time::Timestamp;

use super::FORGOTTEN_AFTER;

/// Least credit of a member, in requests: two that come together do not exceed a share.
const CREDIT_MIN: f64 = 2.0;

/// Most debt of a member in spans.
pub(super) const DEBT_MAX: f64 = 3.0;

/// The members of a group by key.
pub(super) type Sharers<K, M> = IndexMap<K, M, FxBuildHasher>;

/// What a member has used.
#[derive(Clone, Debug)]
pub(super) struct Account {
    weight: f64,
    /// The virtual time up to which it has used its share.
    tag: f64,
    /// Its credit is not full: it is in the clock's queue and gets tokens.
    fills: bool,
    /// When it asked last.
    seen_at: Timestamp,
}

impl Account {
    /// An account with full credit.
    pub(super) fn new(now: Timestamp, weight: f64) -> Self {
        Account {
            weight,
            tag: f64::NEG_INFINITY,
            fills: false,
            seen_at: now,
        }
    }

    /// Its member asks.
    pub(super) fn seen(&mut self, now: Timestamp) {
        self.seen_at = now;
    }

    /// Whether the member was idle for long, or a place is needed, and it has all the credit that it can have. Then a member
    /// that is forgotten and comes again loses and wins nothing.
    pub(super) fn can_be_forgotten(&self, now: Timestamp, has_room: bool) -> bool {
        let is_idle = now.since(self.seen_at) >= FORGOTTEN_AFTER;
        !self.fills && (is_idle || !has_room)
    }

    pub(super) fn weight(&self) -> f64 {
        self.weight
    }
}

/// A member of a group.
pub(super) trait Sharer {
    fn account(&mut self) -> &mut Account;
}

/// A member that is an account and nothing else.
impl Sharer for Account {
    fn account(&mut self) -> &mut Account {
        self
    }
}

/// A point of virtual time, ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment(f64);

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The clock of one group.
#[derive(Clone, Debug)]
pub(super) struct Clock<K> {
    /// Tokens for a member of weight 1 so far.
    now: f64,
    /// Weight of the members whose credit is not full.
    weight: f64,
    /// When the credit of these members may be full: one entry each, never too late.
    full_at: BinaryHeap<Reverse<(Moment, K)>>,
    /// Tokens that came together at most: the depth of the gate.
    depth: f64,
}

impl<K> Default for Clock<K>
where
    K: Ord,
{
    fn default() -> Self {
        Clock {
            now: 0.0,
            weight: 0.0,
            full_at: BinaryHeap::new(),
            depth: CREDIT_MIN,
        }
    }
}

impl<K: Copy + Ord + std::hash::Hash> Clock<K> {
    /// Virtual time: tokens for a member of weight 1 so far.
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// Sets the tokens that can come together: a member alone may have them all as credit.
    pub(super) fn set_depth(&mut self, depth: f64) {
        self.depth = depth;
    }

    /// The part of the tokens that a member gets while its credit is not full.
    pub(super) fn part(&self, account: &Account) -> f64 {
        account.weight / self.weight_with(account)
    }

    /// Weight of the members that get tokens, this one included.
    fn weight_with(&self, account: &Account) -> f64 {
        let other = if account.fills { 0.0 } else { account.weight };
        (self.weight + other).max(account.weight)
    }

    /// The most credit and the most debt, in virtual time: the depth of the gate divided like its rate.
    fn span(&self, account: &Account) -> f64 {
        let divided = self.depth / self.weight_with(account);
        divided.max(CREDIT_MIN / account.weight)
    }

    /// The debt of a member in spans, up to [`DEBT_MAX`]: 0 while it has credit.
    pub(super) fn debt(&self, account: &Account) -> f64 {
        ((account.tag - self.now) / self.span(account)).clamp(0.0, DEBT_MAX)
    }

    /// A member uses tokens, or gives them back (less than zero).
    pub(super) fn charge(&mut self, key: K, account: &mut Account, tokens: f64) {
        let span = self.span(account);
        let tag = account.tag.max(self.now - span) + tokens / account.weight;
        account.tag = tag.clamp(self.now - span, self.now + DEBT_MAX * span);
        if !account.fills && account.tag > self.now - span {
            account.fills = true;
            self.weight += account.weight;
            self.full_at
                .push(Reverse((Moment(account.tag + span), key)));
        }
    }

    /// A member has another weight.
    pub(super) fn reweigh(&mut self, account: &mut Account, weight: f64) {
        if account.weight != weight {
            if account.fills {
                self.weight += weight - account.weight;
            }
            account.weight = weight;
        }
    }

    /// Hands out tokens.
    pub(super) fn advance<M: Sharer>(&mut self, mut tokens: f64, members: &mut Sharers<K, M>) {
        while let Some(&Reverse((Moment(at), key))) = self.full_at.peek() {
            let until = (at - self.now).max(0.0) * self.weight;
            if until > tokens {
                break;
            }
            tokens -= until;
            self.now = self.now.max(at);
            self.full_at.pop();
            let Some(account) = members.get_mut(&key).map(Sharer::account) else {
                continue;
            };
            let full_at = account.tag + self.span(account);
            if full_at > self.now {
                self.full_at.push(Reverse((Moment(full_at), key)));
            } else {
                account.fills = false;
                self.weight -= account.weight;
            }
        }
        if self.full_at.is_empty() {
            // Differences of sums of weights leave no trace.
            self.weight = 0.0;
            self.now += tokens;
        } else {
            self.now += tokens / self.weight;
        }
    }
}
