//! The dynamic convex hull of ORLOJ §4.4: a changing set of lines `alpha x + beta`, and the query which line is highest
//! at x > 0.
//!
//! After Overmars and van Leeuwen (1981): a balanced search tree with the lines in its leaves, by rising slope. The
//! upper envelope of a node's left half lies above that of its right half up to one crossing, and below it from there:
//! each node keeps that crossing alone, so a query walks down once, in O(log n). An update renews the crossings on
//! its path, each found by walking down both halves at once, O(log^2 n) in all; it stops where the line does not
//! touch the envelope. That a node needs no copy of its envelope replaces their concatenable queues. The tree is
//! kept in balance by weight instead of colour.
//!
//! Crossings are compared, never summed, so nothing drifts however long it runs.

/// A node is turned when one half has more than this many times the lines of the other: with [`INNER_MAX`] the one pair
/// of whole numbers that keeps such trees balanced (Hirai and Yamamoto 2011).
const HALVES_MAX: u32 = 3;
/// The turn is a double one when the inner part of the heavier half has at least this many times the lines of the
/// outer part.
const INNER_MAX: u32 = 2;
/// Largest x. A crossing beyond it counts as no crossing; at or below zero, the steeper line is higher throughout.
const X_MAX: f64 = 1e100;
/// No node.
const NONE: u32 = u32::MAX;

/// A line and its owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Slope.
    pub alpha: f64,
    /// Value at zero.
    pub beta: f64,
    /// Its owner; unique in a hull.
    pub id: u32,
}

impl Line {
    /// Its value at x.
    pub fn at(&self, x: f64) -> f64 {
        self.alpha * x + self.beta
    }

    /// Total order by slope; of equal slopes the higher line last.
    fn is_before(&self, other: &Line) -> bool {
        let order = self.alpha.total_cmp(&other.alpha);
        let order = order.then(self.beta.total_cmp(&other.beta));
        order.then(self.id.cmp(&other.id)).is_lt()
    }

    /// Where in 0..[`X_MAX`] the steeper `other` overtakes; infinite when one of them lies above throughout.
    fn overtaken_by(&self, other: &Line) -> f64 {
        let slope = other.alpha - self.alpha;
        let x = if slope > 0.0 {
            (self.beta - other.beta) / slope
        } else {
            // Parallel, or too near to tell.
            self.beta - other.beta
        };
        if x <= 0.0 {
            f64::NEG_INFINITY
        } else if slope > 0.0 && x < X_MAX {
            x
        } else {
            f64::INFINITY
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// NONE for a leaf.
    left: u32,
    right: u32,
    parent: u32,
    /// Lines in the two halves, kept here so that a path up touches no node beside it; a leaf has one in the first.
    halves: [u32; 2],
    /// Where the right half's envelope overtakes the left half's.
    crossing: f64,
    /// The lines of the two envelopes that cross there; a leaf's own line in both.
    before: Line,
    after: Line,
    /// Divides the halves in the order of lines: lines that are not after it belong to the left half.
    split: Line,
}

/// The set of lines.
#[derive(Debug, Default)]
pub struct Hull {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: Option<u32>,
}

impl Hull {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lines in it.
    pub fn len(&self) -> usize {
        self.root.map_or(0, |root| self.count(root) as usize)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The highest line at `x`; of lines that meet there any.
    pub fn highest(&self, x: f64) -> Option<Line> {
        self.root.map(|root| self.highest_below(root, x))
    }

    fn highest_below(&self, at: u32, x: f64) -> Line {
        let mut node = self.node(at);
        while node.left != NONE {
            node = self.node(if x < node.crossing {
                node.left
            } else {
                node.right
            });
        }
        node.before
    }

    /// The leaf where a line is, or beside which it belongs.
    fn leaf_of(&self, root: u32, line: &Line) -> u32 {
        let mut at = root;
        while self.node(at).left != NONE {
            let node = self.node(at);
            at = if node.split.is_before(line) {
                node.right
            } else {
                node.left
            };
        }
        at
    }

    /// Adds a line. The caller keeps ids unique.
    ///
    /// # Panics
    /// When a coefficient is not finite: scores are.
    pub fn insert(&mut self, line: Line) {
        assert!(
            line.alpha.is_finite() && line.beta.is_finite(),
            "the coefficients of a line are finite"
        );
        let leaf = self.leaf(line);
        let Some(root) = self.root else {
            self.root = Some(leaf);
            return;
        };
        let at = self.leaf_of(root, &line);
        let sibling = self.node(at).before;
        let parent = self.node(at).parent;
        let (left, right) = if line.is_before(&sibling) {
            (leaf, at)
        } else {
            (at, leaf)
        };
        let inner = self.add(Node {
            left,
            right,
            parent,
            halves: [1, 1],
            crossing: 0.0,
            before: line,
            after: line,
            split: self.node(left).before,
        });
        self.replace_child(parent, at, inner);
        self.node_mut(at).parent = inner;
        self.node_mut(leaf).parent = inner;
        self.climb(inner, line);
    }

    /// Takes a line out. False when it is not there.
    pub fn remove(&mut self, line: Line) -> bool {
        let Some(root) = self.root else {
            return false;
        };
        let at = self.leaf_of(root, &line);
        if self.node(at).before != line {
            return false;
        }
        let parent = self.node(at).parent;
        self.free.push(at);
        if parent == NONE {
            self.root = None;
            return true;
        }
        let inner = *self.node(parent);
        let sibling = if inner.left == at {
            inner.right
        } else {
            inner.left
        };
        self.free.push(parent);
        self.node_mut(sibling).parent = inner.parent;
        self.replace_child(inner.parent, parent, sibling);
        let mut shown = Shown::EVERYWHERE;
        shown.narrow(inner.left == at, inner.crossing);
        self.climb_without(inner.parent, sibling, line, shown);
        true
    }

    /// Multiplies every slope by `factor`, which must be a power of two, so that no digit changes. What was true at x
    /// is then true at x / factor. O(n).
    pub fn scale(&mut self, factor: f64) {
        for node in &mut self.nodes {
            for line in [&mut node.before, &mut node.after, &mut node.split] {
                line.alpha *= factor;
            }
        }
        // Computed anew rather than scaled: a crossing that was beyond the end of x may now lie before it.
        if let Some(root) = self.root {
            self.renew(root);
        }
    }

    fn renew(&mut self, at: u32) {
        let node = *self.node(at);
        if node.left != NONE {
            self.renew(node.left);
            self.renew(node.right);
            self.bridge(at);
        }
    }

    /// Forgets all lines.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.free.clear();
        self.root = None;
    }

    fn count(&self, at: u32) -> u32 {
        let [left, right] = self.node(at).halves;
        left + right
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn leaf(&mut self, line: Line) -> u32 {
        self.add(Node {
            left: NONE,
            right: NONE,
            parent: NONE,
            halves: [1, 0],
            crossing: 0.0,
            before: line,
            after: line,
            split: line,
        })
    }

    fn add(&mut self, node: Node) -> u32 {
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    fn replace_child(&mut self, parent: u32, old: u32, new: u32) {
        if parent == NONE {
            self.root = Some(new);
            return;
        }
        let node = self.node_mut(parent);
        if node.left == old {
            node.left = new;
        } else {
            node.right = new;
        }
    }

    /// After `line` came in as a half of `inner`: renews crossings while the line shows, counts and balance all the way.
    fn climb(&mut self, inner: u32, line: Line) {
        let mut shown = Shown::EVERYWHERE;
        let mut at = inner;
        while at != NONE {
            let (parent, is_left) = (self.node(at).parent, !self.node(at).split.is_before(&line));
            if at != inner {
                self.node_mut(at).halves[usize::from(!is_left)] += 1;
            }
            if !shown.is_nowhere() {
                self.bridge(at);
                shown.narrow(is_left, self.node(at).crossing);
            }
            // The envelope of a node depends on its lines and not on their arrangement: a line that shows still shows.
            self.balance(at);
            at = parent;
        }
    }

    /// After `line`, which was `shown` in the half `below` of `at`, was removed: as [`Hull::climb`], but by the old
    /// crossings, because the new ones do not contain it.
    fn climb_without(&mut self, at: u32, below: u32, line: Line, mut shown: Shown) {
        let (mut at, mut below) = (at, below);
        while at != NONE {
            let node = self.node_mut(at);
            let (parent, is_left) = (node.parent, node.left == below);
            node.halves[usize::from(!is_left)] -= 1;
            shown.narrow(is_left, node.crossing);
            // By rounding, a line may cross here and yet show nowhere.
            if !shown.is_nowhere() || node.before == line || node.after == line {
                self.bridge(at);
            }
            self.balance(at);
            below = at;
            at = parent;
        }
    }

    /// Turns the node if one half outweighs the other; it stays the same node, of the same lines.
    fn balance(&mut self, at: u32) {
        let node = self.node(at);
        let [left, right] = node.halves;
        if left > HALVES_MAX * right {
            let heavy = node.left;
            let [outer, inner] = self.node(heavy).halves;
            if inner >= INNER_MAX * outer {
                self.turn_left(heavy);
            }
            self.turn_right(at);
        } else if right > HALVES_MAX * left {
            let heavy = node.right;
            let [inner, outer] = self.node(heavy).halves;
            if inner >= INNER_MAX * outer {
                self.turn_right(heavy);
            }
            self.turn_left(at);
        }
    }

    /// `((a b) c)` becomes `(a (b c))`.
    fn turn_right(&mut self, at: u32) {
        let top = *self.node(at);
        let inner = *self.node(top.left);
        self.arrange(at, inner.left, top.left, inner.split);
        self.arrange_below(at, top.left, inner.right, top.right, top.split);
    }

    /// `(a (b c))` becomes `((a b) c)`.
    fn turn_left(&mut self, at: u32) {
        let top = *self.node(at);
        let inner = *self.node(top.right);
        self.arrange(at, top.right, inner.right, inner.split);
        self.arrange_below(at, top.right, top.left, inner.left, top.split);
    }

    fn arrange(&mut self, at: u32, left: u32, right: u32, split: Line) {
        let node = self.node_mut(at);
        (node.left, node.right, node.split) = (left, right, split);
        self.node_mut(left).parent = at;
        self.node_mut(right).parent = at;
    }

    fn arrange_below(&mut self, top: u32, at: u32, left: u32, right: u32, split: Line) {
        self.arrange(at, left, right, split);
        for node in [at, top] {
            let Node { left, right, .. } = *self.node(node);
            self.node_mut(node).halves = [self.count(left), self.count(right)];
        }
        self.bridge(at);
        self.bridge(top);
    }

    /// Finds where the right half of `at` overtakes the left half: the difference of the two envelopes never falls, so
    /// there is one such place, the first where the right one is no lower. Each step rules out half of one side at
    /// least. It matters for equal lines which comparisons are strict: a pair of equal lines does not show where their
    /// halves cross.
    fn bridge(&mut self, at: u32) {
        let top = self.node(at);
        // No line of the left half is steeper, none of the right half is flatter.
        let slope = top.split.alpha;
        let (mut l, mut r) = (self.node(top.left), self.node(top.right));
        // Each step to the right proves that the halves cross no earlier than here, each step to the left that they
        // cross no later. The crossing of two lines that nearly coincide may be anywhere, so the proofs bound it. A
        // proof from more lines takes precedence.
        let (mut earliest, mut latest) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut child = |node: &Node, right: bool| {
            if right {
                earliest = node.crossing.clamp(earliest, latest);
                self.node(node.right)
            } else {
                latest = node.crossing.clamp(earliest, latest);
                self.node(node.left)
            }
        };
        loop {
            // A half that is higher throughout proves nothing.
            if l.left != NONE && l.crossing.is_infinite() {
                l = self.node(if l.crossing < 0.0 { l.right } else { l.left });
                continue;
            }
            if r.left != NONE && r.crossing.is_infinite() {
                r = self.node(if r.crossing < 0.0 { r.right } else { r.left });
                continue;
            }
            match (l.left == NONE, r.left == NONE) {
                (true, true) => break,
                (true, false) => {
                    let x = r.crossing;
                    r = child(r, l.before.at(x) > r.before.at(x));
                }
                (false, true) => {
                    let x = l.crossing;
                    l = child(l, r.before.at(x) < l.before.at(x));
                }
                (false, false) if l.crossing <= r.crossing => {
                    let (xl, xr) = (l.crossing, r.crossing);
                    let (vl, vr) = (l.before.at(xl), r.before.at(xr));
                    if r.before.at(xl) >= vl {
                        (l, r) = (child(l, false), child(r, false));
                    } else if l.after.at(xr) > vr {
                        (l, r) = (child(l, true), child(r, true));
                    } else if vl + slope * (xr - xl) <= vr {
                        // From xr on, no line of the left half can be above the right one.
                        r = child(r, false);
                    } else {
                        // Up to xl, no line of the right half can have reached the left one.
                        l = child(l, true);
                    }
                }
                (false, false) => {
                    let (xl, xr) = (l.crossing, r.crossing);
                    let is_after_xr = l.before.at(xr) > r.before.at(xr);
                    let is_before_xl = r.after.at(xl) >= l.before.at(xl);
                    // Without rounding one of the two holds. If neither does, the crossing may be at either place.
                    if is_after_xr || !is_before_xl {
                        r = child(r, true);
                    }
                    if is_before_xl || !is_after_xr {
                        l = child(l, false);
                    }
                }
            }
        }
        let (mut before, mut after) = (l.before, r.before);
        let own = before.overtaken_by(&after);
        let crossing = own.clamp(earliest, latest);
        if crossing != own {
            // The pair belongs to another place: find the highest line at this one.
            before = self.highest_below(top.left, crossing);
            after = self.highest_below(top.right, crossing);
        }
        let node = self.node_mut(at);
        (node.before, node.after) = (before, after);
        node.crossing = crossing;
    }
}

/// Where a line is the highest of those below some node: an interval, since envelopes are convex.
#[derive(Clone, Copy)]
struct Shown {
    from: f64,
    to: f64,
}

impl Shown {
    const EVERYWHERE: Shown = Shown {
        from: f64::NEG_INFINITY,
        to: f64::INFINITY,
    };

    /// The interval in a node that has the line in its left half (or right half).
    fn narrow(&mut self, is_left: bool, crossing: f64) {
        if is_left {
            self.to = self.to.min(crossing);
        } else {
            self.from = self.from.max(crossing);
        }
    }

    /// A line that only touches the envelope still counts as shown.
    fn is_nowhere(&self) -> bool {
        self.from > self.to
    }
}

#[cfg(test)]
mod tests;
