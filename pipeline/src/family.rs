//! Families of models: a module serves many models of one kind, and each request names one of them.
//!
//! A family is a folder's files that match a pattern. A model is named by its file without the last ending. Members are
//! numbered in order of their names, so that processes that list equal files agree on the numbers.

mod pattern;

use crate::id::MemberId;
use crate::near::nearest;

pub use pattern::{BadPattern, Pattern};

/// Most models of a family.
pub const MEMBERS_MAX: usize = 16_384;

const _: () = assert!(MEMBERS_MAX <= u16::MAX as usize);

/// Lists the names of the files of a folder that are asked for, one more than [`MEMBERS_MAX`] at most. The folder is
/// relative to the pipeline file; an error says why it cannot be read. This crate reads no folder itself.
pub type Files<'f> = &'f dyn Fn(&str, &dyn Fn(&str) -> bool) -> Result<Vec<String>, String>;

/// The models of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The pattern of the files, as written.
    pub pattern: String,
    /// The member that serves requests which name none.
    pub default: Option<MemberId>,
    /// By ordinal, which is in order of names. Empty where no files were listed.
    pub members: Vec<FamilyModel>,
}

/// One model of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyModel {
    /// Its name: that of its file, without the last ending.
    pub name: String,
    /// Its file, relative to the pipeline file.
    pub file: String,
}

impl Family {
    /// The member of that name.
    pub fn find(&self, name: &str) -> Option<MemberId> {
        let found = self.members.binary_search_by(|m| m.name.as_str().cmp(name));
        found.ok().map(|idx| MemberId(idx as u16))
    }

    /// The name that a writer of this one probably meant.
    pub fn near(&self, name: &str) -> Option<String> {
        nearest(name, self.members.iter().map(|m| m.name.as_str()))
    }

    /// The name of a member; `None` for one of another family.
    pub fn name(&self, member: MemberId) -> Option<&str> {
        Some(&self.members.get(member.idx())?.name)
    }

    /// All members.
    pub fn ids(&self) -> impl Iterator<Item = MemberId> + use<> {
        (0..self.members.len() as u16).map(MemberId)
    }
}
