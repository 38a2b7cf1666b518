//! What a process knows of the files of a family of models.

use spillgate_pipeline::id::MemberId;

/// The files of a module's family.
pub trait Members: Send + Sync {
    /// Whether a member may be loaded now. Called on the device's thread before it is loaded for the first time.
    ///
    /// # Errors
    /// Why not: a sentence for the client whose request fails.
    fn may_load(&self, member: MemberId) -> Result<(), String>;
}
