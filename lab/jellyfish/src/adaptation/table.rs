//! What local search reads beside the product's [`Table`]: the best variant of a set of clients in a few instructions. Caps of all
//! variants lie in rows of 16-bit numbers, which compilers compare several at a time.

use std::ops::Deref;

use spillgate_controller_policy::adaptation::{Instance, Table, VARIANTS_MAX};

/// Numbers in one row.
pub(super) const LANES: usize = 16;
/// Rows of a client with the most variants.
const BLOCKS_MAX: usize = VARIANTS_MAX.div_ceil(LANES);
/// Caps of some ranks.
type Row = [i16; LANES];
/// Caps of all ranks, of which an instance uses the first rows.
pub(super) type Caps = [Row; BLOCKS_MAX];

/// Rows that no client has lowered. The lanes beyond the last rank hold zeros in every client's rows, so they never serve anyone.
pub(super) const UNLIMITED: Caps = [[i16::MAX; LANES]; BLOCKS_MAX];

/// The next rank of a worker counts where it bears more than this part of the load.
const NEARLY: f64 = 0.8;

/// What the clients of one worker are worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    /// Accuracy times units.
    pub(super) exact: i64,
    /// The same, and a part of what the next rank would add. The part grows with how much of the load that rank bears. So it shows which
    /// workers come close to their next rank, where the exact value does not change until that rank bears all.
    pub(super) relaxed: i64,
}

/// A [`Table`] and more.
#[derive(Clone, Debug)]
pub(super) struct SplitTable {
    table: Table,
    blocks: usize,
    /// Best rank of a worker that serves the client alone; the lowest where none does.
    pub(super) best_alone: Vec<usize>,
    rows: Vec<Row>,
    /// Different caps of each rank, falling.
    levels: Vec<Vec<i16>>,
    /// Ordinals of each client's caps among them, by client and rank.
    level_of: Vec<u16>,
}

/// In place of an ordinal: a worker at this rank cannot even serve the client alone.
const NO_LEVEL: u16 = u16::MAX;

impl Deref for SplitTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl SplitTable {
    pub(super) fn new(instance: &Instance) -> Self {
        let table = Table::new(instance);
        let (n_clients, n_ranks) = (table.n_clients(), table.n_ranks());
        let blocks = n_ranks.div_ceil(LANES);
        let mut rows = vec![[0; LANES]; n_clients * blocks];
        let levels: Vec<Vec<i16>> = (0..n_ranks).map(|r| levels(&table, instance, r)).collect();
        let mut level_of = vec![NO_LEVEL; n_clients * n_ranks];
        for client in 0..n_clients {
            for (rank, cap) in table.caps(client).iter().enumerate() {
                rows[client * blocks + rank / LANES][rank % LANES] = *cap;
                if i32::from(*cap) >= table.units[client]
                    && let Ok(level) = levels[rank].binary_search_by(|other| cap.cmp(other))
                {
                    level_of[client * n_ranks + rank] = level as u16;
                }
            }
        }
        let best_alone = |levels: &[u16]| levels.iter().rposition(|l| *l != NO_LEVEL).unwrap_or(0);
        SplitTable {
            blocks,
            best_alone: level_of.chunks_exact(n_ranks).map(best_alone).collect(),
            rows,
            levels,
            level_of,
            table,
        }
    }

    /// Different caps of a rank: their number.
    pub(super) fn n_levels(&self, rank: usize) -> usize {
        self.levels[rank].len()
    }

    /// Which of a rank's caps a client has, counted from the highest; `None` if it cannot be served at this rank.
    #[inline]
    pub(super) fn level(&self, client: usize, rank: usize) -> Option<usize> {
        let level = self.level_of[client * self.n_ranks() + rank];
        (level != NO_LEVEL).then_some(usize::from(level))
    }

    /// The cap of a level.
    #[inline]
    pub(super) fn cap_of_level(&self, rank: usize, level: usize) -> i32 {
        i32::from(self.levels[rank][level])
    }

    /// Lowers caps to those of a client.
    #[inline]
    pub(super) fn lower(&self, caps: &mut Caps, client: usize) {
        let rows = &self.rows[client * self.blocks..(client + 1) * self.blocks];
        for (row, own) in caps.iter_mut().zip(rows) {
            for (cap, own) in row.iter_mut().zip(own) {
                *cap = (*cap).min(*own);
            }
        }
    }

    /// The highest rank whose cap is at least the load.
    #[inline]
    pub(super) fn best_rank(&self, caps: &Caps, load: i32) -> Option<usize> {
        let load = i16::try_from(load).ok()?;
        for block in (0..self.blocks).rev() {
            let mut best = -1;
            for (lane, cap) in caps[block].iter().enumerate() {
                let lane = lane as i16;
                best = best.max(if *cap >= load { lane } else { -1 });
            }
            if best >= 0 {
                return Some(block * LANES + best as usize);
            }
        }
        None
    }

    /// What clients with these caps and this load are worth, at the best rank that serves them.
    #[inline]
    pub(super) fn value(&self, caps: &Caps, rank: usize, load: i32) -> Value {
        let exact = self.accuracy[rank] * i64::from(load);
        let next = rank + 1;
        let Some(accuracy) = self.accuracy.get(next) else {
            return Value {
                exact,
                relaxed: exact,
            };
        };
        let borne = f64::from(caps[next / LANES][next % LANES]) / f64::from(load);
        let reached = ((borne - NEARLY) / (1.0 - NEARLY)).max(0.0);
        let gain = (accuracy * i64::from(load) - exact) as f64;
        Value {
            exact,
            relaxed: exact + (gain * reached * reached) as i64,
        }
    }
}

/// Different caps of a rank, falling.
fn levels(table: &Table, instance: &Instance, rank: usize) -> Vec<i16> {
    let variant = usize::from(table.variants[rank].0);
    let sizes = 0..instance.variants()[variant].execution.len();
    let throughput = |batch| instance.throughput(variant, batch);
    let mut levels: Vec<i16> = sizes
        .map(|batch| i16::try_from(throughput(batch)).unwrap_or(i16::MAX))
        .collect();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    levels.dedup();
    levels
}
