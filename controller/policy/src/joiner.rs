//! Joins the branches of a request at a module: it runs once all its predecessors have reported, and
//! runs at all only if what it requires is there.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::RequestId;

/// What a predecessor reports of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The predecessor ran (false: it was skipped).
    pub present: bool,
    /// What the module needs from this predecessor is there: true unless a required input is
    /// missing or the `when:` that looks at it is false.
    pub allows: bool,
}

impl Branch {
    /// The report of a predecessor over one edge.
    pub fn new(present: bool, required: bool, condition: Option<bool>) -> Self {
        Branch {
            present,
            allows: (present || !required) && condition != Some(false),
        }
    }
}

/// What a joiner says when the last branch is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// More branches are to come.
    Waiting,
    /// The module runs.
    Run,
    /// The module is skipped for this request.
    Skip,
}

#[derive(Clone, Copy)]
struct Open {
    missing: u16,
    allowed: bool,
}

/// The joiner of one module. Holds an entry only for requests of which some, but not all, branches
/// are in; with a single predecessor it holds nothing.
pub struct Joiner {
    n_branches: u16,
    open: IndexMap<RequestId, Open, FxBuildHasher>,
}

impl Joiner {
    /// A joiner of that many branches, at least one.
    pub fn new(n_branches: usize) -> Self {
        Joiner {
            n_branches: n_branches.max(1) as u16,
            open: IndexMap::default(),
        }
    }

    /// Takes in one branch.
    pub fn branch(&mut self, request: RequestId, branch: Branch) -> Joined {
        let open = if self.n_branches == 1 {
            Open {
                missing: 0,
                allowed: branch.allows,
            }
        } else {
            let n = self.n_branches;
            let open = self.open.entry(request).or_insert(Open {
                missing: n,
                allowed: true,
            });
            open.missing -= 1;
            open.allowed &= branch.allows;
            if open.missing > 0 {
                return Joined::Waiting;
            }
            let done = *open;
            self.open.swap_remove(&request);
            done
        };
        if open.allowed {
            Joined::Run
        } else {
            Joined::Skip
        }
    }

    /// The request ended elsewhere.
    pub fn forget(&mut self, request: RequestId) {
        self.open.swap_remove(&request);
    }

    /// Requests that wait for a branch.
    pub fn waiting(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: RequestId = RequestId(7);

    #[test]
    fn runs_when_all_branches_are_in() {
        let mut joiner = Joiner::new(2);
        assert_eq!(
            joiner.branch(R, Branch::new(true, true, None)),
            Joined::Waiting
        );
        assert_eq!(
            joiner.branch(R, Branch::new(true, false, Some(true))),
            Joined::Run
        );
        assert_eq!(joiner.waiting(), 0);
    }

    #[test]
    fn a_missing_required_input_or_a_false_condition_skips() {
        for (branch, joined) in [
            (Branch::new(false, true, None), Joined::Skip),
            (Branch::new(false, false, None), Joined::Run),
            (Branch::new(true, true, Some(false)), Joined::Skip),
            (Branch::new(false, false, Some(false)), Joined::Skip),
        ] {
            assert_eq!(Joiner::new(1).branch(R, branch), joined, "{branch:?}");
            let mut two = Joiner::new(2);
            two.branch(R, Branch::new(true, true, None));
            assert_eq!(two.branch(R, branch), joined, "{branch:?} second");
            let mut two = Joiner::new(2);
            two.branch(R, branch);
            assert_eq!(
                two.branch(R, Branch::new(true, true, None)),
                joined,
                "{branch:?} first"
            );
        }
    }

    #[test]
    fn a_forgotten_request_leaves_nothing() {
        let mut joiner = Joiner::new(3);
        joiner.branch(R, Branch::new(true, true, None));
        joiner.forget(R);
        assert_eq!(joiner.waiting(), 0);
    }
}
