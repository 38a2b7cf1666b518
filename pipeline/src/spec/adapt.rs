//! `policy: { adapt: ... }` as written.

use crate::diagnostic::{Place, Sink};
use crate::document::{Content, Node};
use crate::policy::AdaptName;
use crate::reader;

use super::{Located, VARIANTS_MAX};

const FIELDS: [&str; 2] = ["name", "variant"];

/// How variants are chosen, as written.
pub(crate) struct AdaptSpec {
    pub(crate) name: AdaptName,
    /// Ordinal of the variant that serves, in order of accuracy.
    pub(crate) variant: Option<Located<u32>>,
}

/// A name, or a map with a name and the variant that serves under `fixed`.
pub(super) fn read_adapt(sink: &mut Sink, node: &Node, place: &Place) -> Option<AdaptSpec> {
    if !matches!(node.content, Content::Mapping(_)) {
        let name = read_name(sink, node, place)?;
        return Some(AdaptSpec {
            name,
            variant: None,
        });
    }
    let expected = "a name, or a map, like { name: fixed, variant: 0 }";
    let fields = reader::record(sink, node, place, expected, &FIELDS);
    let name = match fields.get("name") {
        Some(f) => read_name(sink, f.node, &f.place)?,
        None => {
            super::missing(sink, place, "name", "name: fixed");
            return None;
        }
    };
    let variant = fields.get("variant").and_then(|f| {
        let most = VARIANTS_MAX as u32 - 1;
        Some(Located {
            value: reader::count(sink, f.node, &f.place, 0, most)?,
            place: f.place.clone(),
        })
    });
    Some(AdaptSpec { name, variant })
}

fn read_name(sink: &mut Sink, node: &Node, place: &Place) -> Option<AdaptName> {
    let names = AdaptName::ALL.map(AdaptName::name);
    let i = reader::choice(sink, node, place, "way to choose variants", &names)?;
    Some(AdaptName::ALL[i])
}
