//! Heartbeats, answers and other traffic of a session allocate nothing.

#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::id::Incarnation;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::Member;
use spillgate_protocol::session::{
    Command, Connection, Event, Frame, Greeting, PipelineHash, Session, Side, Timing, WireVersions,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
}

const CONNECTION: Connection = Connection(1);

fn session(side: Side, name: &str) -> Session {
    let member = Member {
        name: name.into(),
        incarnation: Incarnation(1),
        version: "0.1.0".into(),
        address: None,
        is_gateway: true,
        controllers: Vec::new(),
        devices: Vec::new(),
    };
    let me = Greeting {
        member: Arc::new(member),
        set: "spillgate".into(),
        pipeline: "one".into(),
        hash: PipelineHash::default(),
        wire: WireVersions::OWN,
        published: None,
    };
    let timing = Timing::default();
    Session::new(timing, Arc::new(me), side, 1, Timestamp::ZERO)
}

/// Two sessions on a network without delay.
struct Pair {
    sessions: [Session; 2],
    commands: Vec<Command>,
    /// What was sent, with its sender.
    under_way: VecDeque<(usize, Frame)>,
}

impl Pair {
    fn bring(&mut self, now: Timestamp, to: usize, event: Event) {
        self.sessions[to].on_event(now, event, &mut self.commands);
        for command in self.commands.drain(..) {
            if let Command::Send(CONNECTION, frame) = command {
                self.under_way.push_back((to, frame));
            }
        }
    }

    /// Brings all that was sent, and what is sent then.
    fn settle(&mut self, now: Timestamp) {
        while let Some((from, frame)) = self.under_way.pop_front() {
            self.bring(now, 1 - from, Event::Received(CONNECTION, frame));
        }
    }
}

#[test]
fn heartbeats_allocate_nothing() {
    let mut pair = Pair {
        sessions: [session(Side::Dials, "a"), session(Side::Accepts, "b")],
        commands: Vec::with_capacity(16),
        under_way: VecDeque::with_capacity(16),
    };
    let mut now = Timestamp::ZERO;
    pair.bring(now, 0, Event::Wakeup);
    pair.bring(now, 1, Event::Connected(CONNECTION));
    pair.bring(now, 0, Event::Connected(CONNECTION));
    pair.settle(now);
    assert!(
        pair.sessions
            .iter()
            .all(|s| s.connection() == Some(CONNECTION))
    );

    let before = ALLOCATIONS.get();
    for _ in 0..10_000 {
        now = now + Duration::from_millis(50);
        pair.bring(now, 0, Event::Sent(CONNECTION));
        pair.bring(now, 1, Event::Traffic(CONNECTION));
        pair.bring(now, 0, Event::Wakeup);
        pair.bring(now, 1, Event::Wakeup);
        pair.settle(now);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(before > 0, "allocations are counted");
    let knows_the_clock = |s: &Session| s.offset(now).is_some_and(|o| o.ns == 0);
    assert!(pair.sessions.iter().all(knows_the_clock));
}
