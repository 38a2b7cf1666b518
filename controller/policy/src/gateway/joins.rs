//! When the branches of a request have joined: a module runs once all its predecessors have run or were skipped, and runs
//! at all only if what it requires is there.

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::{Edge, Module, PortRef};
use spillgate_protocol::message::Filled;

/// The module ran or was skipped.
const DONE: u8 = 1;
/// Something that the module requires is missing: it is skipped.
const LACKS: u8 = 2;
/// The module was dispatched or skipped.
const ENTERED: u8 = 4;
/// The request was dispatched a second time, since its worker died.
const RETRIED: u8 = 8;

/// What is known when a predecessor is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Others are to come, or the module was entered already.
    Waiting,
    /// The module runs.
    Run,
    /// The module is skipped for this request.
    Skip,
}

/// The progress of a request, by module. It records the report of each predecessor, so a repeated report counts once.
#[derive(Debug)]
pub(super) struct Joins {
    /// Of the first modules: most pipelines have no more.
    first: [u8; FEW],
    more: Box<[u8]>,
}

/// So many modules need no allocation for each request.
const FEW: usize = 16;

impl Joins {
    /// Nothing has happened at any of so many modules.
    pub(super) fn new(n_modules: usize) -> Self {
        Joins {
            first: [0; FEW],
            more: vec![0; n_modules.saturating_sub(FEW)].into(),
        }
    }

    /// A module ran or was skipped. False when that is known already.
    pub(super) fn finish(&mut self, module: ModuleId) -> bool {
        self.mark(module, DONE)
    }

    /// The request is to be dispatched to the module once more. False when it was before.
    pub(super) fn retry(&mut self, module: ModuleId) -> bool {
        self.mark(module, RETRIED)
    }

    fn mark(&mut self, module: ModuleId, flag: u8) -> bool {
        let progress = match module.idx() {
            idx if idx < FEW => &mut self.first[idx],
            idx => &mut self.more[idx - FEW],
        };
        let is_new = *progress & flag == 0;
        *progress |= flag;
        is_new
    }

    fn is(&self, module: ModuleId, flag: u8) -> bool {
        let progress = match module.idx() {
            idx if idx < FEW => self.first[idx],
            idx => self.more[idx - FEW],
        };
        progress & flag != 0
    }
}

/// How requests go through a module.
pub(super) struct Route {
    pub(super) joiner: Joiner,
    pub(super) successors: Vec<ModuleId>,
    /// Requests wait for the module's result.
    pub(super) is_awaited: bool,
}

impl Route {
    /// The routes through all modules, by module.
    pub(super) fn all(pipeline: &Pipeline) -> Vec<Route> {
        let route = |(module, is_awaited): (&Module, bool)| Route {
            joiner: Joiner::new(pipeline, module.id),
            successors: pipeline.successors(module.id),
            is_awaited,
        };
        let modules = pipeline.modules.iter();
        modules.zip(pipeline.awaited()).map(route).collect()
    }
}

/// What a module waits for.
pub(super) struct Joiner {
    module: ModuleId,
    when: Option<PortRef>,
    predecessors: Vec<(ModuleId, Edge)>,
}

impl Joiner {
    /// The joiner of a module.
    pub(super) fn new(pipeline: &Pipeline, module: ModuleId) -> Self {
        let predecessors = pipeline.predecessors(module).into_iter();
        Joiner {
            module,
            when: pipeline.modules[module.idx()].when,
            predecessors: predecessors
                .filter_map(|from| Some((from, pipeline.edge(from, module)?)))
                .collect(),
        }
    }

    /// The predecessor `from` is done with a request: it has these outputs, or was skipped.
    pub(super) fn branch(
        &self,
        joins: &mut Joins,
        from: ModuleId,
        brought: Option<Filled>,
    ) -> Joined {
        let mut edges = self.predecessors.iter();
        if let Some((_, edge)) = edges.find(|(id, _)| *id == from)
            && !self.allows(edge, brought)
        {
            joins.mark(self.module, LACKS);
        }
        let mut all = self.predecessors.iter();
        if !all.all(|(id, _)| joins.is(*id, DONE)) || !joins.mark(self.module, ENTERED) {
            Joined::Waiting
        } else if joins.is(self.module, LACKS) {
            Joined::Skip
        } else {
            Joined::Run
        }
    }

    /// Whether this predecessor brought what the module needs: no required input is missing, and a `when:` on it holds. A condition on a module that was skipped does not hold.
    fn allows(&self, edge: &Edge, brought: Option<Filled>) -> bool {
        let holds = match (edge.condition, self.when) {
            (true, Some(port)) => brought.is_some_and(|filled| filled.has(port.port)),
            _ => true,
        };
        (brought.is_some() || !edge.required) && holds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    const RAN: Option<Filled> = Some(Filled::ALL);

    /// Module 3 reads modules 1 and 2.
    fn join() -> (Joiner, Joins) {
        let pipeline = noop_pipeline(Duration::from_millis(1), &[&[0], &[0], &[1, 2]], &[]);
        (Joiner::new(&pipeline, ModuleId(3)), Joins::new(4))
    }

    #[test]
    fn a_repeated_branch_counts_once() {
        let (joiner, mut joins) = join();
        for _ in 0..3 {
            joins.finish(ModuleId(1));
            assert_eq!(joiner.branch(&mut joins, ModuleId(1), RAN), Joined::Waiting);
        }
        assert!(joins.finish(ModuleId(2)));
        assert_eq!(joiner.branch(&mut joins, ModuleId(2), RAN), Joined::Run);
        assert!(!joins.finish(ModuleId(2)));
        assert_eq!(
            joiner.branch(&mut joins, ModuleId(2), RAN),
            Joined::Waiting,
            "it runs once"
        );
    }

    #[test]
    fn a_missing_required_input_skips_whichever_comes_first() {
        for (first, second) in [(None, RAN), (RAN, None)] {
            let (joiner, mut joins) = join();
            joins.finish(ModuleId(1));
            joiner.branch(&mut joins, ModuleId(1), first);
            joins.finish(ModuleId(2));
            let joined = joiner.branch(&mut joins, ModuleId(2), second);
            assert_eq!(joined, Joined::Skip, "{first:?} {second:?}");
        }
    }
}
