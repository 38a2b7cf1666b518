//! When the branches of a request have joined: a module runs once all its predecessors have reported, and runs at all
//! only if what it requires is there.

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::Edge;

use super::Branch;

/// What is known when a branch is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// More branches are to come.
    Waiting,
    /// The module runs.
    Run,
    /// The module is skipped for this request.
    Skip,
}

/// The branches of one request that are in, at modules that wait for more.
#[derive(Debug, Default)]
pub(super) struct Joins(Vec<(ModuleId, ModuleId, bool)>);

/// What a module waits for.
pub(super) struct Joiner {
    module: ModuleId,
    predecessors: Vec<(ModuleId, Edge)>,
}

impl Joiner {
    /// The joiner of a module.
    pub(super) fn new(pipeline: &Pipeline, module: ModuleId) -> Self {
        let predecessors = pipeline.predecessors(module).into_iter();
        Joiner {
            module,
            predecessors: predecessors
                .filter_map(|from| Some((from, pipeline.edge(from, module)?)))
                .collect(),
        }
    }

    /// Takes in one branch of a request. A repeated one counts once.
    pub(super) fn branch(&self, joins: &mut Joins, from: ModuleId, branch: &Branch) -> Joined {
        let mut edges = self.predecessors.iter();
        let Some((_, edge)) = edges.find(|(id, _)| *id == from) else {
            return Joined::Waiting;
        };
        let allows = allows(edge, branch);
        if self.predecessors.len() == 1 {
            return if allows { Joined::Run } else { Joined::Skip };
        }
        let here = |(to, _, _): &&(ModuleId, ModuleId, bool)| *to == self.module;
        if joins.0.iter().filter(here).any(|(_, f, _)| *f == from) {
            return Joined::Waiting;
        }
        joins.0.push((self.module, from, allows));
        let mut known = joins.0.iter().filter(here);
        if known.clone().count() < self.predecessors.len() {
            Joined::Waiting
        } else if known.all(|(_, _, allows)| *allows) {
            Joined::Run
        } else {
            Joined::Skip
        }
    }
}

/// What the module needs from this predecessor is there: no required input is missing, and the `when:` that looks at it
/// holds. A condition on a module that was skipped does not hold.
fn allows(edge: &Edge, branch: &Branch) -> bool {
    let holds = !edge.condition || (branch.present && branch.condition.unwrap_or(true));
    (branch.present || !edge.required) && holds
}
