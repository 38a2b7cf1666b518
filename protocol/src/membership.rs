//! Which processes serve together, while they come and go.
//!
//! A process says what it is when it greets ([`Member`]): its name, where others reach it, and its roles. Gateways and workers dial
//! controllers, and register with them by that. Controllers publish the list of those that registered; gateways dial the workers
//! in it. Nothing is agreed upon and nothing is stored: the list of a controller that begins anew fills with those that register again,
//! and until then what it published last holds ([`Roster`]).
//!
//! Roles know each other by dense ids, which each process gives by itself ([`Directory`]). Between two processes ids are positions
//! in what both have greeted with.

mod directory;
mod member;
mod roster;

pub use directory::{Directory, MemberIds, OwnIds, PIPELINES_MAX};
pub use member::{Member, MemberDevice, MemberWorker};
pub use roster::{
    Command, Event, FORGET_AFTER, Listed, MEMBERS_MAX, MemberList, MemberState, PUBLISH_DELAY,
    REPLACED_MAX, ROLES_KNOWN_MAX, Refusal, Roster,
};
