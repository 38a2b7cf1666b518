//! Puts a pipeline's outputs together: which texts and labels belong to which boxes.
//!
//! Texts and labels name the output and the box that they belong to. Where they do not (the server does not say, or
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
    /// Texts and labels, in the order of the outputs' names.
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

/// All findings of a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// Boxes, by output.
    pub groups: Vec<Group>,
    /// Findings without a box, as `name: text`.
    pub notes: Vec<String>,
}

/// The findings of an output that may refer to boxes.
struct Captions<'a> {
    name: &'a str,
    /// The output with the boxes; empty when the server does not name it.
    objects: &'a str,
    /// Each with the index of its box, where the server gives it.
    texts: Vec<(Option<u32>, String)>,
}

impl<'a> Captions<'a> {
    fn new(
        name: &'a str,
        objects: &'a str,
        texts: impl Iterator<Item = (Option<u32>, String)>,
    ) -> Self {
        Captions {
            name,
            objects,
            texts: texts.collect(),
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
                    let texts = list.texts.iter().map(|t| (t.object, t.text.clone()));
                    let texts = Captions::new(name, &list.objects, texts);
                    shown.attach(texts, Group::is_of_vehicles, |group| &mut group.texts);
                }
                Some(Value::Labels(list)) => {
                    let labels = list.labels.iter().map(|l| (l.object, l.label.clone()));
                    let labels = Captions::new(name, &list.objects, labels);
                    shown.attach(labels, Group::is_of_people, |group| &mut group.labels);
                }
                _ => {}
            }
        }
        shown
    }

    fn attach(
        &mut self,
        captions: Captions<'_>,
        preferred: impl Fn(&Group) -> bool,
        field: impl Fn(&mut Group) -> &mut Vec<String>,
    ) {
        let Captions {
            name,
            objects,
            texts,
        } = captions;
        let told = self.groups.iter().position(|g| g.name == objects);
        let told = told.filter(|idx| {
            let n = self.groups[*idx].found.len();
            let known = |object: &Option<u32>| object.is_some_and(|object| (object as usize) < n);
            texts.iter().all(|(object, _)| known(object))
        });
        if let Some(group) = told.map(|idx| &mut self.groups[idx]) {
            let mut each = vec![String::new(); group.found.len()];
            for (object, caption) in texts.into_iter().filter(|(_, caption)| !caption.is_empty()) {
                let idx = object.unwrap_or_default() as usize;
                // Of several labels the first is the best.
                if each[idx].is_empty() {
                    each[idx].clone_from(&caption);
                }
                group.found[idx].captions.push(caption);
            }
            *field(group) = each;
            return;
        }
        let captions: Vec<String> = texts.into_iter().map(|(_, caption)| caption).collect();
        let fits = |group: &Group| group.found.len() == captions.len();
        let choice = self
            .groups
            .iter()
            .position(|g| fits(g) && preferred(g))
            .or_else(|| self.groups.iter().position(fits));
        let Some(group) = choice.map(|idx| &mut self.groups[idx]) else {
            if !captions.is_empty() {
                self.notes.push(format!("{name}: {}", captions.join(", ")));
            }
            return;
        };
        for (found, caption) in group.found.iter_mut().zip(&captions) {
            if !caption.is_empty() {
                found.captions.push(caption.clone());
            }
        }
        *field(group) = captions;
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
mod tests {
    use super::*;

    fn boxes(label: &str, n: usize) -> pb::Value {
        let area = pb::Box {
            x1: 9.0,
            y1: 9.0,
            label: label.into(),
            ..Default::default()
        };
        pb::Value {
            value: Some(Value::Boxes(pb::BoxList {
                boxes: vec![area; n],
            })),
        }
    }

    fn texts(texts: &[&str]) -> pb::Value {
        let texts = texts
            .iter()
            .map(|t| pb::Text {
                text: (*t).into(),
                score: 1.0,
                object: None,
            })
            .collect();
        pb::Value {
            value: Some(Value::Texts(pb::TextList {
                texts,
                objects: String::new(),
            })),
        }
    }

    fn labels(labels: &[&str]) -> pb::Value {
        let labels = labels
            .iter()
            .map(|l| pb::Label {
                label: (*l).into(),
                score: 1.0,
                object: None,
            })
            .collect();
        pb::Value {
            value: Some(Value::Labels(pb::LabelList {
                labels,
                objects: String::new(),
            })),
        }
    }

    #[test]
    fn texts_go_to_vehicles_and_labels_to_people_when_lengths_are_equal() {
        let outputs = HashMap::from([
            ("people".to_owned(), boxes("person", 2)),
            ("vehicles".to_owned(), boxes("vehicle", 2)),
            ("plates".to_owned(), texts(&["AB12", ""])),
            ("names".to_owned(), labels(&["ada", "bob"])),
        ]);
        let findings = Shown::from_outputs(&outputs).findings();
        assert_eq!(findings.plates, ["AB12", ""]);
        assert_eq!(findings.faces, ["ada", "bob"]);
        assert_eq!((findings.vehicles.len(), findings.people.len()), (2, 2));
    }

    #[test]
    fn what_says_which_box_it_belongs_to_is_shown_there() {
        // Three boxes each, so that lengths say nothing; two labels for one box, none for another.
        let label = |label: &str, object| pb::Label {
            label: label.into(),
            score: 1.0,
            object: Some(object),
        };
        let list = pb::LabelList {
            labels: vec![label("van", 2), label("lorry", 2), label("bus", 0)],
            objects: "right".into(),
        };
        let kinds = pb::Value {
            value: Some(Value::Labels(list)),
        };
        let mut outputs = HashMap::from([
            ("left".to_owned(), boxes("person", 3)),
            ("right".to_owned(), boxes("vehicle", 3)),
            ("kinds".to_owned(), kinds),
        ]);
        let captions = |shown: &Shown, name: &str| -> Vec<String> {
            let group = shown.groups.iter().find(|g| g.name == name).unwrap();
            group.found.iter().map(|f| f.captions.join("/")).collect()
        };
        let shown = Shown::from_outputs(&outputs);
        assert_eq!(captions(&shown, "right"), ["bus", "", "van/lorry"]);
        assert_eq!(captions(&shown, "left"), ["", "", ""]);
        // An index that no box has: no panic, and the lengths decide.
        outputs.insert("right".to_owned(), boxes("vehicle", 1));
        let shown = Shown::from_outputs(&outputs);
        assert_eq!(captions(&shown, "left"), ["van", "lorry", "bus"]);
    }

    #[test]
    fn one_output_of_both_classes_is_parted() {
        let Some(Value::Boxes(mut both)) = boxes("vehicle", 3).value else {
            unreachable!()
        };
        both.boxes[1].label = "person".into();
        let value = pb::Value {
            value: Some(Value::Boxes(both)),
        };
        let findings = Shown::from_outputs(&HashMap::from([("all".to_owned(), value)])).findings();
        assert_eq!((findings.vehicles.len(), findings.people.len()), (2, 1));
    }

    #[test]
    fn what_fits_no_boxes_is_a_note() {
        let outputs = HashMap::from([("class".to_owned(), labels(&["cat"]))]);
        let shown = Shown::from_outputs(&outputs);
        assert_eq!(shown.notes, ["class: cat"]);
        assert_eq!(shown.findings(), Findings::default());
    }
}
