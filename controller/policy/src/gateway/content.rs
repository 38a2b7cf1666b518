//! What a gateway knows of an open request.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::id::{ModuleId, VariantId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

use super::joins::Joins;
use crate::families::Members;
use crate::variant_selector::StreamBinding;

/// An open request.
pub(super) struct Content<P, L> {
    pub(super) request: Request,
    pub(super) admitted_at: Timestamp,
    pub(super) payload: P,
    pub(super) load: L,
    pub(super) joins: Joins,
    pub(super) members: Members,
    /// By module: the variant that serves.
    pub(super) variants: Arc<[VariantId]>,
    /// Its place at the adapted module, where streams are bound to workers.
    pub(super) binding: Option<StreamBinding>,
}

impl<P, L> Content<P, L> {
    /// The time that was left for it when it was accepted.
    pub(super) fn time_given(&self) -> Duration {
        self.request.deadline.since(self.admitted_at)
    }

    /// The request as it ended: of the variant of the adapted module that served it.
    pub(super) fn ended(&self, adapted: Option<ModuleId>) -> Request {
        match adapted {
            Some(module) => Request {
                variant: self.variants[module.idx()],
                ..self.request
            },
            None => self.request,
        }
    }

    /// The request as a module sees it: for the member of the module's family, and the variant that serves.
    pub(super) fn request_at(&self, module: ModuleId) -> Request {
        let member = self.members.as_ref().map(|members| members[module.idx()]);
        Request {
            member: member.unwrap_or_default(),
            variant: self.variants[module.idx()],
            ..self.request
        }
    }
}
