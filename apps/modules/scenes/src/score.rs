//! How good results are: boxes matched by intersection over union, plates and faces compared on the
//! boxes that match.
//!
//! Objects that are hardly visible ([`MIN_VISIBLE`]) are ignored: missing them costs nothing, and
//! finding them costs nothing either.

use crate::geometry::Rect;
use crate::truth::{GroundTruth, MIN_VISIBLE};

/// The usual least overlap for a box to count as found.
pub const IOU: f32 = 0.5;

/// Least overlaps from lenient to strict. At [`IOU`] alone the larger inputs of a detector all look the same; how closely
/// boxes fit tells them apart.
pub const STRICTNESS: [f32; 10] = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95];

/// Counts of a comparison. Add those of many frames with [`Counts::add`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects found.
    pub found: u64,
    /// Objects missed.
    pub missed: u64,
    /// Boxes where no object is.
    pub spurious: u64,
}

impl Counts {
    /// Share of the boxes that are right; 1 without any.
    pub fn precision(&self) -> f64 {
        share(self.found, self.found + self.spurious)
    }

    /// Share of the objects that were found; 1 without any.
    pub fn recall(&self) -> f64 {
        share(self.found, self.found + self.missed)
    }

    /// Harmonic mean of precision and recall; 1 when there was nothing to find and nothing found.
    pub fn f1(&self) -> f64 {
        share(2 * self.found, 2 * self.found + self.missed + self.spurious)
    }

    /// Adds the counts of another comparison.
    pub fn add(&mut self, other: Counts) {
        self.found += other.found;
        self.missed += other.missed;
        self.spurious += other.spurious;
    }
}

/// How many of some answers were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Right ones.
    pub right: u64,
    /// All.
    pub all: u64,
}

impl Hits {
    /// Share of right answers; 1 without any.
    pub fn rate(&self) -> f64 {
        share(self.right, self.all)
    }

    /// Adds one answer.
    pub fn count(&mut self, right: bool) {
        self.right += u64::from(right);
        self.all += 1;
    }

    /// Adds the answers of another comparison.
    pub fn add(&mut self, other: Hits) {
        self.right += other.right;
        self.all += other.all;
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 {
        1.0
    } else {
        part as f64 / all as f64
    }
}

/// Which box shows which object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    /// Index of a box and index of its object, in the order of falling scores.
    pub pairs: Vec<(usize, usize)>,
    /// The counts.
    pub counts: Counts,
}

/// Matches boxes with objects. `found` are boxes with their scores; `expected` are the objects' boxes,
/// each with whether it counts (one that does not is ignored). The box of highest score chooses first,
/// each object is taken once, an overlap below `iou` does not match.
pub fn match_boxes(expected: &[(Rect, bool)], found: &[(Rect, f32)], iou: f32) -> Matching {
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by(|a, b| found[*b].1.total_cmp(&found[*a].1).then(a.cmp(b)));
    let mut taken = vec![false; expected.len()];
    let mut matching = Matching::default();
    for idx in order {
        let best = (0..expected.len())
            .filter(|e| !taken[*e])
            .map(|e| (e, expected[e].0.iou(&found[idx].0)))
            .filter(|(_, overlap)| *overlap >= iou)
            .max_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            Some((object, _)) => {
                taken[object] = true;
                matching.pairs.push((idx, object));
                matching.counts.found += u64::from(expected[object].1);
            }
            // A second box on an ignored object is ignored as well.
            None if expected
                .iter()
                .any(|e| !e.1 && e.0.iou(&found[idx].0) >= iou * 0.5) => {}
            None => matching.counts.spurious += 1,
        }
    }
    matching.counts.missed = expected
        .iter()
        .zip(&taken)
        .filter(|(e, taken)| e.1 && !**taken)
        .count() as u64;
    matching
}

/// What a pipeline found in one frame. Boxes in pixels of the frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Boxes of vehicles with scores.
    pub vehicles: Vec<(Rect, f32)>,
    /// One text for each vehicle, in the same order; empty when no plate was read at all.
    pub plates: Vec<String>,
    /// Boxes of people with scores.
    pub people: Vec<(Rect, f32)>,
    /// One name for each person, in the same order; empty when no face was looked at.
    pub faces: Vec<String>,
}

/// Quality over many frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Frames compared.
    pub frames: u64,
    /// Detection of vehicles.
    pub vehicles: Counts,
    /// Detection of people.
    pub people: Counts,
    /// Plates read wholly right, of the plates in sight on vehicles that were found.
    pub plates: Hits,
    /// Faces named right, of the faces in sight on people that were found.
    pub faces: Hits,
}

impl Score {
    /// Compares what was found in a frame with what is in it. `iou` is the least overlap, [`IOU`] as a rule.
    /// Plates and faces are compared only where `findings` has them.
    pub fn add_frame(&mut self, truth: &GroundTruth, findings: &Findings, iou: f32) {
        self.frames += 1;
        let [vehicles, people] = truth.expected();
        let matching = match_boxes(&vehicles, &findings.vehicles, iou);
        self.vehicles.add(matching.counts);
        for (found, object) in matching.pairs {
            let vehicle = &truth.vehicles[object];
            if let Some(text) = findings.plates.get(found)
                && vehicle.plate_visible
                && vehicle.visible >= MIN_VISIBLE
            {
                self.plates.count(*text == vehicle.plate);
            }
        }
        let matching = match_boxes(&people, &findings.people, iou);
        self.people.add(matching.counts);
        for (found, object) in matching.pairs {
            let person = &truth.people[object];
            if let Some(name) = findings.faces.get(found)
                && person.face_visible
                && person.visible >= MIN_VISIBLE
            {
                self.faces
                    .count(*name == crate::IDENTITIES[person.identity]);
            }
        }
    }

    /// Adds the score of other frames.
    pub fn add(&mut self, other: &Score) {
        self.frames += other.frames;
        self.vehicles.add(other.vehicles);
        self.people.add(other.people);
        self.plates.add(other.plates);
        self.faces.add(other.faces);
    }

    /// Detection of both classes together.
    pub fn detection(&self) -> Counts {
        let mut all = self.vehicles;
        all.add(self.people);
        all
    }
}

/// F1 of a detector as the mean over [`STRICTNESS`]: the `accuracy:` of variants that find boxes. Counts of all classes and
/// frames are added up, so that a class weighs as much as it has objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanF1 {
    counts: [Counts; STRICTNESS.len()],
}

impl MeanF1 {
    /// Compares the boxes of one class in one frame, as [`match_boxes`] takes them.
    pub fn add_boxes(&mut self, expected: &[(Rect, bool)], found: &[(Rect, f32)]) {
        for (counts, iou) in self.counts.iter_mut().zip(STRICTNESS) {
            counts.add(match_boxes(expected, found, iou).counts);
        }
    }

    /// Compares what was found in a frame with what is in it.
    pub fn add_frame(&mut self, truth: &GroundTruth, findings: &Findings) {
        let [vehicles, people] = truth.expected();
        self.add_boxes(&vehicles, &findings.vehicles);
        self.add_boxes(&people, &findings.people);
    }

    /// Adds the counts of other frames.
    pub fn add(&mut self, other: &MeanF1) {
        for (counts, others) in self.counts.iter_mut().zip(other.counts) {
            counts.add(others);
        }
    }

    /// The counts at each of [`STRICTNESS`].
    pub fn counts(&self) -> &[Counts] {
        &self.counts
    }

    /// The mean; 1 when there was nothing to find and nothing found.
    pub fn value(&self) -> f64 {
        let sum: f64 = self.counts.iter().map(Counts::f1).sum();
        sum / self.counts.len() as f64
    }
}

#[cfg(test)]
mod tests;
