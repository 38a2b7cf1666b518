//! Puts a pipeline's outputs together: which texts, labels, masks and key points belong to which boxes, and which boxes were not
//! looked at.
//!
//! Lists name the output and the box that they belong to. Where they do not (the server does not say, or
//! the boxes are not among the outputs), lists of equal length belong together. Where that leaves a choice, texts go
//! to vehicles and labels to people, as in the shipped pipelines. Nothing is drawn or judged here.

use std::collections::HashMap;

use spillgate_proto::pb;
use spillgate_proto::pb::value::Value;
use spillgate_scenes::Rect;
use spillgate_scenes::score::Findings;

/// A box with its texts and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The box.
    pub area: pb::Box,
    /// Texts, labels, and why it was not looked at, in the order of the outputs' names.
    pub captions: Vec<String>,
}

/// One output of boxes.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The output's name.
    pub name: String,
    /// Its boxes.
    pub found: Vec<Found>,
    texts: Vec<String>,
    labels: Vec<String>,
}

/// The outlines or key points of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The ordinal of the group that its box is in; `None` where that is not known.
    pub group: Option<usize>,
    /// Closed outlines: column and row of each point.
    pub outlines: Vec<Vec<[f32; 2]>>,
    /// Key points: column, row and score of each.
    pub points: Vec<[f32; 3]>,
}

/// All findings of a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// Boxes, by output.
    pub groups: Vec<Group>,
    /// Masks and key points, in the order of the outputs' names.
    pub shapes: Vec<Shape>,
    /// Findings without a box, as `name: text`.
    pub notes: Vec<String>,
}

/// The findings of an output that may refer to boxes.
struct Captions<'a> {
    name: &'a str,
    /// The output with the boxes; empty when the server does not name it.
    objects: &'a str,
    all: Vec<Caption>,
}

struct Caption {
    /// The index of its box, where the server gives it.
    object: Option<u32>,
    text: String,
    left_out: pb::LeftOut,
}

impl Caption {
    /// As people read it; empty where there is nothing to read.
    fn shown(&self, name: &str) -> String {
        match not_looked_at(self.left_out) {
            Some(why) => format!("{name}: {why}"),
            None => self.text.clone(),
        }
    }
}

/// In words why there is no answer for a box, if there is none.
fn not_looked_at(why: pb::LeftOut) -> Option<&'static str> {
    match why {
        pb::LeftOut::None => None,
        pb::LeftOut::NoArea => Some("not looked at: no area"),
        pb::LeftOut::OverLimit => Some("not looked at: over the bound of objects"),
        pb::LeftOut::NoNumber => Some("the model gave no number"),
    }
}

impl Found {
    /// Adds what is said of it, once.
    fn say(&mut self, caption: String) {
        if !caption.is_empty() && !self.captions.contains(&caption) {
            self.captions.push(caption);
        }
    }
}

impl Group {
    fn is_of(&self, class: &str, name_parts: &[&str]) -> bool {
        let name = self.name.to_lowercase();
        match self.found.first() {
            Some(_) if self.found.iter().all(|f| f.area.label == class) => true,
            Some(first) if !first.area.label.is_empty() => false,
            _ => name_parts.iter().any(|part| name.contains(part)),
        }
    }

    fn is_of_vehicles(&self) -> bool {
        self.is_of("vehicle", &["vehicle", "car", "truck"])
    }

    fn is_of_people(&self) -> bool {
        self.is_of("person", &["people", "person", "pedestrian"])
    }
}

impl Shown {
    /// Reads a result's outputs.
    pub fn from_outputs(outputs: &HashMap<String, pb::Value>) -> Self {
        let mut names: Vec<&String> = outputs.keys().collect();
        names.sort();
        let mut shown = Shown::default();
        for name in &names {
            if let Some(Value::Boxes(list)) = &outputs[*name].value {
                let found = |area: &pb::Box| Found {
                    area: area.clone(),
                    captions: Vec::new(),
                };
                shown.groups.push(Group {
                    name: (*name).clone(),
                    found: list.boxes.iter().map(found).collect(),
                    texts: Vec::new(),
                    labels: Vec::new(),
                });
            }
        }
        for name in &names {
            match &outputs[*name].value {
                Some(Value::Texts(list)) => {
                    let texts = list.texts.iter().map(|t| Caption {
                        object: t.object,
                        text: t.text.clone(),
                        left_out: t.left_out(),
                    });
                    let texts = Captions {
                        name,
                        objects: &list.objects,
                        all: texts.collect(),
                    };
                    shown.attach(texts, Group::is_of_vehicles, |group| &mut group.texts);
                }
                Some(Value::Labels(list)) => {
                    let labels = list.labels.iter().map(|l| Caption {
                        object: l.object,
                        text: l.label.clone(),
                        left_out: l.left_out(),
                    });
                    let labels = Captions {
                        name,
                        objects: &list.objects,
                        all: labels.collect(),
                    };
                    shown.attach(labels, Group::is_of_people, |group| &mut group.labels);
                }
                Some(Value::Embeddings(list)) => {
                    let all = list.embeddings.iter();
                    let left_out =
                        all.filter_map(|e| Some((e.object, not_looked_at(e.left_out())?)));
                    shown.mark(name, &list.objects, left_out);
                }
                Some(Value::Tensor(tensor)) => {
                    let rows = tensor.left_out.iter();
                    let left_out = rows.map(|row| (Some(*row), "not looked at"));
                    shown.mark(name, &tensor.objects, left_out);
                }
                Some(Value::Masks(list)) => {
                    let group = shown.group_of(&list.objects, list.masks.len());
                    let outlines = |mask: &pb::Mask| {
                        let polygons = mask.polygons.iter();
                        polygons.map(|p| p.points.as_chunks().0.to_vec()).collect()
                    };
                    shown.shapes.extend(list.masks.iter().map(|mask| Shape {
                        group,
                        outlines: outlines(mask),
                        points: Vec::new(),
                    }));
                }
                Some(Value::Keypoints(list)) => {
                    let group = shown.group_of(&list.objects, list.keypoints.len());
                    let points = |of: &pb::Keypoints| {
                        let places = of.points.as_chunks().0.iter().zip(&of.scores);
                        places.map(|(&[x, y], score)| [x, y, *score]).collect()
                    };
                    shown.shapes.extend(list.keypoints.iter().map(|of| Shape {
                        group,
                        outlines: Vec::new(),
                        points: points(of),
                    }));
                }
                _ => {}
            }
        }
        shown
    }

    /// The group of that name or, where it is not told, the first one of so many boxes.
    fn group_of(&self, objects: &str, n: usize) -> Option<usize> {
        let mut groups = self.groups.iter();
        match objects {
            "" => groups.position(|group| group.found.len() == n),
            name => groups.position(|group| group.name == name),
        }
    }

    /// Says which boxes an output left out.
    fn mark<'a>(
        &mut self,
        name: &str,
        objects: &str,
        left_out: impl Iterator<Item = (Option<u32>, &'a str)>,
    ) {
        let mut group = self.groups.iter_mut().find(|group| group.name == objects);
        let mut unplaced = 0;
        for (object, why) in left_out {
            let found = group
                .as_mut()
                .and_then(|g| g.found.get_mut(object? as usize));
            match found {
                Some(found) => found.say(format!("{name}: {why}")),
                None => unplaced += 1,
            }
        }
        if unplaced > 0 {
            self.notes
                .push(format!("{name}: {unplaced} objects not looked at"));
        }
    }

    fn attach(
        &mut self,
        captions: Captions<'_>,
        preferred: impl Fn(&Group) -> bool,
        field: impl Fn(&mut Group) -> &mut Vec<String>,
    ) {
        let Captions { name, objects, all } = captions;
        let told = self.groups.iter().position(|g| g.name == objects);
        let told = told.filter(|idx| {
            let n = self.groups[*idx].found.len();
            let known = |object: &Option<u32>| object.is_some_and(|object| (object as usize) < n);
            all.iter().all(|caption| known(&caption.object))
        });
        if let Some(group) = told.map(|idx| &mut self.groups[idx]) {
            let mut each = vec![String::new(); group.found.len()];
            for caption in &all {
                let idx = caption.object.unwrap_or_default() as usize;
                // Of several labels the first is the best.
                if each[idx].is_empty() {
                    each[idx].clone_from(&caption.text);
                }
                group.found[idx].say(caption.shown(name));
            }
            *field(group) = each;
            return;
        }
        let fits = |group: &Group| group.found.len() == all.len();
        let shown = all.iter().map(|caption| caption.shown(name));
        let choice = self
            .groups
            .iter()
            .position(|g| fits(g) && preferred(g))
            .or_else(|| self.groups.iter().position(fits));
        let Some(group) = choice.map(|idx| &mut self.groups[idx]) else {
            if !all.is_empty() {
                let captions: Vec<String> = shown.collect();
                self.notes.push(format!("{name}: {}", captions.join(", ")));
            }
            return;
        };
        for (found, caption) in group.found.iter_mut().zip(shown) {
            found.say(caption);
        }
        *field(group) = all.into_iter().map(|caption| caption.text).collect();
    }

    /// The boxes, for comparison with a scene's ground truth.
    pub fn findings(&self) -> Findings {
        let mut findings = Findings::default();
        if let Some(group) = self.groups.iter().find(|g| g.is_of_vehicles()) {
            findings.vehicles = group.found.iter().map(rect).collect();
            findings.plates = group.texts.clone();
        } else {
            findings.vehicles = self.of_class("vehicle");
        }
        if let Some(group) = self.groups.iter().find(|g| g.is_of_people()) {
            findings.people = group.found.iter().map(rect).collect();
            findings.faces = group.labels.clone();
        } else {
            findings.people = self.of_class("person");
        }
        findings
    }

    /// Boxes of a class in the first output that mixes classes.
    fn of_class(&self, class: &str) -> Vec<(Rect, f32)> {
        let has = |group: &&Group| group.found.iter().any(|f| f.area.label == class);
        let Some(group) = self.groups.iter().find(has) else {
            return Vec::new();
        };
        group
            .found
            .iter()
            .filter(|f| f.area.label == class)
            .map(rect)
            .collect()
    }
}

fn rect(found: &Found) -> (Rect, f32) {
    let area = &found.area;
    (Rect::new(area.x0, area.y0, area.x1, area.y1), area.score)
}

#[cfg(test)]
mod tests;
