//! What a process knows of the files of a family of models.

use std::time::Duration;

use spillgate_pipeline::id::MemberId;

/// The files of a module's family.
pub trait Members: Send + Sync {
    /// Whether a member may be loaded now. Called on the device's thread before it is loaded for the first time.
    ///
    /// # Errors
    /// Why not: a sentence for the client whose request fails.
    fn may_load(&self, member: MemberId) -> Result<(), String>;

    /// The same, but waits for a check that is to be made first.
    ///
    /// # Errors
    /// As of [`Members::may_load`].
    fn check(&self, member: MemberId) -> Result<(), String>;

    /// What members of one architecture have in common: all of the file but the numbers of its tensors. `None` where the file
    /// cannot be read.
    fn form(&self, member: MemberId) -> Option<[u8; 32]>;

    /// How long loading a member is expected to take, until one was loaded.
    fn first_load(&self) -> Duration;
}
