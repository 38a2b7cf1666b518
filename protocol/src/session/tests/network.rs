//! Two processes and the network between them, in virtual time. It loses connections, with and without a word, delays
//! what is sent, and keeps the order within a connection. Processes restart; their clocks are skewed and drift. Each step
//! checks what a session promises.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// Delays are drawn between these, in nanoseconds.
const DELAY: std::ops::Range<u64> = 200_000..5_000_000;

/// The process that dials and the one that accepts.
pub(super) const DIALS: usize = 0;
pub(super) const ACCEPTS: usize = 1;

/// What becomes of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Connects,
    Fails,
    Hangs,
}

/// What a connection brings.
#[derive(Clone, Debug)]
enum Load {
    /// The connection itself.
    Standing,
    Frame(Frame),
    Message,
    /// Its end.
    Fin,
}

#[derive(Clone, Debug)]
enum Due {
    Wake(usize),
    Arrives { way: usize, to: usize, load: Load },
}

/// A connection between the two.
#[derive(Clone, Debug)]
struct Way {
    /// The number that each side gave it, while the side has it and lives.
    ends: [Option<Connection>; 2],
    /// Nothing arrives any more, and neither side hears of it.
    is_dead: bool,
    /// When the last thing sent to each side arrives.
    last: [u64; 2],
}

pub(super) struct Process {
    pub(super) session: Session,
    life: u64,
    ahead: u64,
    ppm: u64,
    n_accepted: u64,
    wakes_at: Option<u64>,
    is_greeted: bool,
    is_suspected: bool,
}

pub(super) struct Network {
    pub(super) now: u64,
    pub(super) processes: [Process; 2],
    pub(super) reach: Reach,
    /// All that was told and done, to compare runs.
    pub(super) log: Vec<(u64, usize, Command)>,
    agenda: BTreeMap<(u64, u64), Due>,
    n_due: u64,
    ways: Vec<Way>,
    rng: ChaCha8Rng,
}

impl Process {
    fn new(side: Side, seed: u64, life: u64, ahead: u64, ppm: u64, now: u64) -> Self {
        let me = match side {
            Side::Dials => Arc::new(with(&me(), |me| me.incarnation = Incarnation(life))),
            Side::Accepts => device(life),
        };
        let mut process = Process {
            session: session(side),
            life,
            ahead,
            ppm,
            n_accepted: 0,
            wakes_at: None,
            is_greeted: false,
            is_suspected: false,
        };
        let now = process.read(now);
        process.session = Session::new(Timing::default(), me, side, seed, now);
        process
    }

    /// Its greeting.
    pub(super) fn me(&self) -> Arc<Greeting> {
        self.session.me.clone()
    }

    /// Its clock.
    pub(super) fn read(&self, t: u64) -> Timestamp {
        Timestamp::from_ns(
            self.ahead + t + (u128::from(t) * u128::from(self.ppm) / 1_000_000) as u64,
        )
    }

    /// The first moment at which its clock shows that time, or a moment before.
    fn moment(&self, shows: Timestamp, not_before: u64) -> u64 {
        let spent = u128::from(shows.as_ns().saturating_sub(self.ahead));
        let t = (spent * 1_000_000 / (1_000_000 + u128::from(self.ppm))) as u64;
        t.max(not_before)
    }

    /// News come in their order.
    fn hear(&mut self, news: &News) {
        match news {
            News::Greeted(_) => {
                assert!(!self.is_greeted, "greeted twice without a loss");
                (self.is_greeted, self.is_suspected) = (true, false);
            }
            News::Lost { .. } => {
                assert!(self.is_greeted, "lost without a greeting");
                self.is_greeted = false;
            }
            News::Suspected => {
                assert!(self.is_greeted && !self.is_suspected);
                self.is_suspected = true;
            }
            News::Trusted => {
                assert!(self.is_greeted && self.is_suspected);
                self.is_suspected = false;
            }
            News::Refused { .. } => {}
        }
    }
}

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut process = |side| {
            let (seed, ahead) = (rng.random(), rng.random_range(0..1 << 60));
            Process::new(side, seed, 1, ahead, rng.random_range(0..100), 0)
        };
        let mut network = Network {
            now: 0,
            processes: [process(Side::Dials), process(Side::Accepts)],
            reach: Reach::Connects,
            log: vec![],
            agenda: BTreeMap::new(),
            n_due: 0,
            ways: vec![],
            rng,
        };
        network.wake_later(DIALS);
        network
    }

    /// Runs until that moment.
    pub(super) fn run(&mut self, until: u64) {
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > until {
                break;
            }
            let ((now, _), due) = entry.remove_entry();
            self.now = now;
            match due {
                Due::Wake(who) => self.wake(who),
                Due::Arrives { way, to, load } => self.arrive(way, to, load),
            }
        }
        self.now = until;
    }

    /// A process ends and begins anew. Its connections are reset, or end without a word.
    pub(super) fn restart(&mut self, who: usize, says_so: bool) {
        for way in 0..self.ways.len() {
            if self.ways[way].ends[who].take().is_some() {
                self.send(way, 1 - who, Load::Fin);
                self.ways[way].is_dead |= !says_so;
            }
        }
        let old = &self.processes[who];
        let side = if who == DIALS {
            Side::Dials
        } else {
            Side::Accepts
        };
        let (seed, ahead) = (self.rng.random(), self.rng.random_range(0..1 << 60));
        self.processes[who] = Process::new(side, seed, old.life + 1, ahead, old.ppm, self.now);
        self.wake_later(who);
    }

    /// All connections are reset at both sides.
    pub(super) fn reset(&mut self) {
        for way in 0..self.ways.len() {
            self.send(way, DIALS, Load::Fin);
            self.send(way, ACCEPTS, Load::Fin);
        }
    }

    /// All connections go silent.
    pub(super) fn silence(&mut self) {
        self.ways.iter_mut().for_each(|way| way.is_dead = true);
    }

    /// A message from each side to the other, where there is a connection.
    pub(super) fn talk(&mut self) {
        for who in [DIALS, ACCEPTS] {
            if let Some(connection) = self.processes[who].session.connection() {
                let way = self.way(who, connection);
                self.send(way, 1 - who, Load::Message);
                self.bring(who, Event::Sent(connection));
            }
        }
    }

    /// The transport says of a connection that a process does not have that it stands, ended, or brought something.
    pub(super) fn confuse(&mut self, who: usize, connection: Connection, what: u8) {
        if self
            .ways
            .iter()
            .any(|way| way.ends[who] == Some(connection))
        {
            return;
        }
        let cause = "confused".to_owned();
        let event = match what {
            0 if who == DIALS => Event::Connected(connection),
            1 => Event::Traffic(connection),
            _ => Event::Ended { connection, cause },
        };
        self.bring(who, event);
    }

    /// How often a role was told something.
    pub(super) fn n_told(&self) -> usize {
        let told = |(_, _, command): &&(_, _, Command)| matches!(command, Command::Tell(_));
        self.log.iter().filter(told).count()
    }

    /// A process brings an event to its session.
    pub(super) fn bring(&mut self, who: usize, event: Event) {
        let mut out = Vec::new();
        let now = self.processes[who].read(self.now);
        self.processes[who].session.on_event(now, event, &mut out);
        for command in out {
            self.log.push((self.now, who, command.clone()));
            self.perform(who, command);
        }
        self.check(who);
        self.wake_later(who);
    }

    fn perform(&mut self, who: usize, command: Command) {
        match command {
            Command::Dial(connection) => self.dial(connection),
            Command::Send(connection, frame) => {
                let way = self.way(who, connection);
                self.send(way, 1 - who, Load::Frame(frame));
            }
            Command::Close { connection, .. } => {
                if let Some(way) = self.find(who, connection) {
                    self.ways[way].ends[who] = None;
                    self.send(way, 1 - who, Load::Fin);
                }
            }
            Command::Tell(news) => self.processes[who].hear(&news),
        }
    }

    fn dial(&mut self, connection: Connection) {
        self.ways.push(Way {
            ends: [Some(connection), None],
            is_dead: self.reach == Reach::Hangs,
            last: [self.now; 2],
        });
        let way = self.ways.len() - 1;
        if self.reach == Reach::Connects {
            self.send(way, ACCEPTS, Load::Standing);
        } else {
            self.send(way, DIALS, Load::Fin);
        }
    }

    /// The way of a connection that the process has.
    fn way(&self, who: usize, connection: Connection) -> usize {
        self.find(who, connection).expect("it has the connection")
    }

    fn find(&self, who: usize, connection: Connection) -> Option<usize> {
        let has_it = |way: &Way| way.ends[who] == Some(connection);
        self.ways.iter().rposition(has_it)
    }

    fn send(&mut self, way: usize, to: usize, load: Load) {
        let delay = self.rng.random_range(DELAY);
        let at = (self.now + delay).max(self.ways[way].last[to]);
        self.ways[way].last[to] = at;
        self.schedule(at, Due::Arrives { way, to, load });
    }

    fn schedule(&mut self, at: u64, due: Due) {
        self.n_due += 1;
        self.agenda.insert((at, self.n_due), due);
    }

    fn arrive(&mut self, way: usize, to: usize, load: Load) {
        if self.ways[way].is_dead {
            return;
        }
        if to == ACCEPTS && matches!(load, Load::Standing) {
            self.processes[ACCEPTS].n_accepted += 1;
            self.ways[way].ends[ACCEPTS] = Some(Connection(self.processes[ACCEPTS].n_accepted));
            self.send(way, DIALS, Load::Standing);
        }
        let Some(connection) = self.ways[way].ends[to] else {
            return;
        };
        let event = match load {
            Load::Standing => Event::Connected(connection),
            Load::Frame(frame) => Event::Received(connection, frame),
            Load::Message => Event::Traffic(connection),
            Load::Fin => {
                self.ways[way].ends[to] = None;
                Event::Ended {
                    connection,
                    cause: "reset".to_owned(),
                }
            }
        };
        self.bring(to, event);
    }

    fn wake(&mut self, who: usize) {
        if self.processes[who].wakes_at == Some(self.now) {
            self.processes[who].wakes_at = None;
            self.bring(who, Event::Wakeup);
        }
    }

    fn wake_later(&mut self, who: usize) {
        let process = &self.processes[who];
        let at = (process.session.next_wakeup()).map(|shows| process.moment(shows, self.now));
        // A wakeup at its time does all that is due, so the next one is later, by the rounding of clocks at least.
        let at = at.map(|at| at.max(self.now + 1));
        if process.wakes_at != at {
            self.processes[who].wakes_at = at;
            if let Some(at) = at {
                self.schedule(at, Due::Wake(who));
            }
        }
    }

    /// A session has few connections, and knows its peer's clock within the error that it says.
    fn check(&self, who: usize) {
        let n = self
            .ways
            .iter()
            .filter(|way| way.ends[who].is_some())
            .count();
        assert!(n <= [1, 2][who], "{n} connections");
        let (me, peer) = (&self.processes[who], &self.processes[1 - who]);
        let greeted = me.session.peer().map(|p| p.member.incarnation);
        let offset = me.session.offset(me.read(self.now));
        // A peer that greeted from nowhere has no clock.
        if let Some(offset) = offset.filter(|_| greeted == Some(Incarnation(peer.life))) {
            let truth = peer.read(self.now).as_ns() as i64 - me.read(self.now).as_ns() as i64;
            let error = u128::from(truth.abs_diff(offset.ns));
            assert!(error <= offset.error.as_nanos(), "{error} over {offset:?}");
        }
    }
}
