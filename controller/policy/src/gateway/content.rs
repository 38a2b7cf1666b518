//! What a gateway knows of an open request.

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::request::Request;

use super::joins::Joins;
use crate::families::Members;

/// An open request.
pub(super) struct Content<P, L> {
    pub(super) request: Request,
    pub(super) payload: P,
    pub(super) load: L,
    pub(super) joins: Joins,
    pub(super) members: Members,
}

impl<P, L> Content<P, L> {
    /// The request as a module sees it: for the member of the module's family.
    pub(super) fn request_at(&self, module: ModuleId) -> Request {
        let member = self.members.as_ref().map(|members| members[module.idx()]);
        Request {
            member: member.unwrap_or_default(),
            ..self.request
        }
    }
}
