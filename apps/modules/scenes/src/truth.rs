//! The ground truth: the objects of a frame.

use crate::condition::Condition;
use crate::geometry::Rect;
use crate::vehicle::{self, VehicleKind};

/// Classes of objects that the shipped detector finds, in the order of its ordinals.
pub const CLASSES: [&str; 2] = ["vehicle", "person"];

/// A rendered frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbFrame {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `height * width * 3` bytes: rows from the top, RGB interleaved.
    pub rgb: Vec<u8>,
}

/// What is in one frame. Objects are listed from far to near.
#[derive(Clone, Debug, PartialEq)]
pub struct GroundTruth {
    /// Number of the frame.
    pub frame: u64,
    /// Light and weather.
    pub condition: Condition,
    /// All vehicles of which at least something is in the frame.
    pub vehicles: Vec<VehicleTruth>,
    /// All people of whom at least something is in the frame.
    pub people: Vec<PersonTruth>,
}

impl GroundTruth {
    /// By class, in the order of [`CLASSES`]: the boxes of its objects, each with whether it counts.
    pub fn expected(&self) -> [Vec<(Rect, bool)>; CLASSES.len()] {
        let vehicles = self.vehicles.iter().map(|v| (v.bbox, v.visible));
        let people = self.people.iter().map(|p| (p.bbox, p.visible));
        let counted = |(bbox, visible): (Rect, f32)| (bbox, visible >= MIN_VISIBLE);
        [
            vehicles.map(counted).collect(),
            people.map(counted).collect(),
        ]
    }
}

/// Below this share of visibility an object is neither expected from a detector nor held against it.
pub const MIN_VISIBLE: f32 = 0.6;

/// A vehicle.
#[derive(Clone, Debug, PartialEq)]
pub struct VehicleTruth {
    /// The same number in all frames in which this vehicle is seen.
    pub track: u64,
    /// Its box, cut at the frame's edges.
    pub bbox: Rect,
    /// Its kind.
    pub kind: VehicleKind,
    /// What its plate says.
    pub plate: String,
    /// The plate's box, not cut.
    pub plate_box: Rect,
    /// Whether the whole plate is in the frame and nothing is before it.
    pub plate_visible: bool,
    /// Share of its area that is in the frame and not covered by nearer objects, 0 to 1.
    pub visible: f32,
}

impl VehicleTruth {
    /// Box of letter `idx` of the plate, not cut.
    ///
    /// # Panics
    /// When the plate has no such letter.
    pub fn letter_box(&self, idx: usize) -> Rect {
        assert!(
            idx < self.plate.len(),
            "a plate has {} letters, no letter {idx}",
            self.plate.len()
        );
        vehicle::letter_box(&self.plate_box, idx)
    }
}

/// A person.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonTruth {
    /// The same number in all frames in which this person is seen.
    pub track: u64,
    /// The person's box, cut at the frame's edges.
    pub bbox: Rect,
    /// Who it is: an index into [`IDENTITIES`](crate::IDENTITIES).
    pub identity: usize,
    /// The face's box, not cut.
    pub face_box: Rect,
    /// Whether the whole face is in the frame and nothing is before it.
    pub face_visible: bool,
    /// Share of the area that is in the frame and not covered by nearer objects, 0 to 1.
    pub visible: f32,
}
