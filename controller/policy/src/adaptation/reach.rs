//! Which sums of rates some of the clients reach: a set of bits that moves up by each client's rate (Algorithm 1, §4.2).
//!
//! In the paper's table a cell holds the largest sum below its column. Rate is both weight and value there, so a cell is either its
//! own column or a copy of a lower one: one bit tells which, and a row is a shift. Rows are kept, to find back who is in.
//!
//! A client bears sums up to its cap only. If clients come in falling order of caps, a sum that is reached is at most the cap of
//! the last who is in, and so of all.

/// Rows of sums that are reached, up to a largest one.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    words: usize,
    /// A row for nobody, and one more for each client; what follows is old.
    rows: Vec<u64>,
    weights: Vec<u32>,
}

impl Reach {
    /// Begins with nobody: the sum 0. Sums up to `most` are looked at, and up to `n_clients` are added.
    pub fn begin(&mut self, most: u32, n_clients: usize) {
        self.words = most as usize / 64 + 1;
        self.weights.clear();
        let length = self.words * (n_clients + 1);
        if self.rows.len() < length {
            self.rows.resize(length, 0);
        }
        self.rows[..self.words].fill(0);
        self.rows[0] = 1;
    }

    /// Adds a client that bears sums up to `cap`.
    #[inline]
    pub fn add(&mut self, weight: u32, cap: u32) {
        let words = self.words;
        let rows = &mut self.rows[self.weights.len() * words..][..2 * words];
        let (before, row) = rows.split_at_mut(words);
        self.weights.push(weight);
        row.copy_from_slice(before);
        let (jump, shift) = (weight as usize / 64, weight % 64);
        let last = (cap as usize / 64).min(words - 1);
        if jump > last {
            return;
        }
        let mut lower = 0;
        for (word, to) in before.iter().zip(&mut row[jump..=last]) {
            // In two steps: a word cannot be shifted by all its bits.
            *to |= word << shift | lower >> 1 >> (63 - shift);
            lower = *word;
        }
        if last == cap as usize / 64 {
            let kept = u64::MAX >> (63 - cap % 64);
            row[last] &= kept | before[last];
        }
    }

    /// The largest sum that is reached, from `least` to `most`.
    #[inline]
    pub fn largest(&self, least: u32, most: u32) -> Option<u32> {
        let row = &self.rows[self.weights.len() * self.words..][..self.words];
        let top = (most as usize / 64).min(self.words - 1);
        for word in (least as usize / 64..=top).rev() {
            let mut bits = row[word];
            if word == most as usize / 64 {
                bits &= u64::MAX >> (63 - most % 64);
            }
            if bits != 0 {
                let sum = word as u32 * 64 + 63 - bits.leading_zeros();
                return (sum >= least).then_some(sum);
            }
        }
        None
    }

    /// Positions, from the last that was added on, of clients whose rates sum up to `sum`, which must be reached. Earlier ones are preferred.
    #[inline]
    pub fn members(&self, sum: u32, take: impl FnMut(usize)) {
        self.some_members(sum, |_| 0, || false, take);
    }

    /// Positions of clients whose rates sum up to `sum`, which must be reached, and each of which bears it by its `cap`. Of several
    /// such sets a random one: where a client may be in or not, `coin` decides.
    #[inline]
    pub fn some_members(
        &self,
        mut sum: u32,
        cap: impl Fn(usize) -> u32,
        mut coin: impl FnMut() -> bool,
        mut take: impl FnMut(usize),
    ) {
        for (idx, weight) in self.weights.iter().enumerate().rev() {
            if sum == 0 {
                return;
            }
            let before = &self.rows[idx * self.words..][..self.words];
            let reaches = |sum: u32| before[sum as usize / 64] >> (sum % 64) & 1 == 1;
            let may = *weight <= sum && sum <= cap(idx) && reaches(sum - weight);
            if !reaches(sum) || (may && coin()) {
                take(idx);
                sum -= weight;
            }
        }
    }
}
