//! Clients for given variants: Algorithm 1 (§4.2). The most accurate variant takes the clients with the largest sum of rates that
//! it serves in time, then the next one takes of those that are left.
//!
//! Of several sets with the same sum the paper takes a random one, and so does Algorithm 2. Where one mapping must do, it is the one that
//! prefers clients with large budgets ([`Ties`]).

use rand::RngCore;
use rand_chacha::ChaCha8Rng;

use super::instance::Instance;
use super::reach::Reach;
use super::table::Table;

/// Order of clients, and room for the work.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Clients that a rank can serve, by falling budget.
    by_budget: Vec<Vec<Servable>>,
    reach: Reach,
    rows: Vec<Servable>,
    is_taken: Vec<bool>,
}

/// A client that a rank can serve.
#[derive(Clone, Copy, Debug)]
struct Servable {
    client: u16,
    units: u32,
    cap: u32,
}

/// Which of several sets with the same sum of rates is taken.
pub enum Ties<'a> {
    /// The one that prefers clients with large budgets.
    LargeBudgets,
    /// A random one.
    Random(&'a mut ChaCha8Rng),
}

/// Who is served by each worker.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    /// Rank of each worker, falling.
    pub ranks: Vec<usize>,
    /// Clients of each worker.
    pub members: Vec<Vec<u16>>,
    /// Clients that have a worker.
    pub served: usize,
    /// Accuracy times units, summed over them.
    pub value: i64,
}

impl Mapping {
    /// Room for the mappings of an instance.
    pub fn new(table: &Table, instance: &Instance) -> Self {
        let order = |rank: usize| {
            let variant = table.variants[rank].0 as usize;
            let clients = 0..table.n_clients() as u16;
            let serves = |c: &u16| table.cap(*c as usize, rank) >= table.units[*c as usize];
            let mut clients: Vec<u16> = clients.filter(serves).collect();
            let budget = |c: &u16| instance.clients()[*c as usize].budgets[variant];
            clients.sort_by(|a, b| budget(b).cmp(&budget(a)).then(a.cmp(b)));
            let servable = |client: &u16| Servable {
                client: *client,
                units: table.units[*client as usize] as u32,
                cap: table.cap(*client as usize, rank) as u32,
            };
            clients.iter().map(servable).collect()
        };
        Mapping {
            by_budget: (0..table.n_ranks()).map(order).collect(),
            reach: Reach::default(),
            rows: Vec::new(),
            is_taken: vec![false; table.n_clients()],
        }
    }

    /// Maps clients to workers at these ranks.
    pub fn map(&mut self, table: &Table, ranks: &[usize], mut ties: Ties<'_>, out: &mut Mapped) {
        out.ranks.clear();
        out.ranks.extend_from_slice(ranks);
        out.ranks.sort_unstable_by(|a, b| b.cmp(a));
        out.members.resize_with(ranks.len(), Vec::new);
        out.served = 0;
        out.value = 0;
        self.is_taken.fill(false);
        for (worker, rank) in out.ranks.iter().enumerate() {
            let members = &mut out.members[worker];
            members.clear();
            let load = self.largest_set(*rank, &mut ties, members);
            out.served += members.len();
            out.value += table.accuracy[*rank] * i64::from(load);
        }
    }

    /// The clients with the largest sum of rates among those that are left (FindOptimalClients).
    fn largest_set(&mut self, rank: usize, ties: &mut Ties<'_>, members: &mut Vec<u16>) -> u32 {
        self.rows.clear();
        let left = self.by_budget[rank]
            .iter()
            .filter(|row| !self.is_taken[row.client as usize]);
        self.rows.extend(left);
        let Some(first) = self.rows.first() else {
            return 0;
        };
        let most = first.cap;
        self.reach.begin(most, self.rows.len());
        for row in &self.rows {
            self.reach.add(row.units, row.cap);
        }
        let sum = self.reach.largest(0, most).unwrap_or(0);
        let rows = &self.rows;
        let take = |row: usize| {
            self.is_taken[rows[row].client as usize] = true;
            members.push(rows[row].client);
        };
        match ties {
            Ties::LargeBudgets => self.reach.members(sum, take),
            Ties::Random(rng) => {
                let mut coins = Coins::default();
                let coin = || coins.toss(rng);
                self.reach
                    .some_members(sum, |row| rows[row].cap, coin, take);
            }
        }
        sum
    }
}

/// Coins of one random word after another.
#[derive(Default)]
struct Coins {
    /// Those that are left, below a one that ends them.
    word: u64,
}

impl Coins {
    fn toss(&mut self, rng: &mut ChaCha8Rng) -> bool {
        if self.word <= 1 {
            self.word = rng.next_u64() | 1 << 63;
        }
        let coin = self.word & 1 == 1;
        self.word >>= 1;
        coin
    }
}
