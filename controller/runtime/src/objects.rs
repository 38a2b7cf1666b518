//! What outputs say of which boxes, and which of these were not looked at.

use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::PortRef;
use spillgate_process::value::{LeftOut, Value};

use crate::record::RequestRecord;

/// The boxes to which the entries of a list or the rows of a tensor refer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Objects<'a> {
    /// Their number; 0 when the module worked on whole frames.
    pub(crate) n: usize,
    /// The output of the pipeline that contains them; empty when there is none.
    output: &'a str,
}

impl<'a> Objects<'a> {
    /// The boxes that the module of this output worked on.
    pub(crate) fn of(record: &'a RequestRecord, from: PortRef) -> Self {
        let pipeline = &record.pipeline;
        let wired = pipeline.modules[from.module.idx()].inputs.iter().flatten();
        let mut boxes = wired.filter_map(|port| match record.job.output(*port)? {
            Value::Boxes(boxes) => Some((*port, boxes.len())),
            _ => None,
        });
        // With two inputs of boxes it is not known to which of them the items refer.
        let (Some((port, n)), None) = (boxes.next(), boxes.next()) else {
            return Objects::default();
        };
        Objects {
            n,
            output: name_of(record, port),
        }
    }

    /// So many boxes of an output with that name.
    pub(crate) fn of_own(output: &'a str, n: usize) -> Self {
        Objects { n, output }
    }

    /// The boxes of so many masks or sets of key points: those that the module found with them, or those that it worked on.
    pub(crate) fn found_with(record: &'a RequestRecord, from: PortRef, n: usize) -> Self {
        let outputs = &record.pipeline.modules[from.module.idx()].outputs;
        let found = outputs.iter().position(|(_, ty)| *ty == ValueType::Boxes);
        let found = found.map(|idx| PortRef {
            module: from.module,
            port: idx as u16,
        });
        let found = found.map(|port| {
            let n = match record.job.output(port) {
                Some(Value::Boxes(boxes)) => boxes.len(),
                _ => 0,
            };
            let output = name_of(record, port);
            Objects { n, output }
        });
        Objects::of_each(n, found, Objects::of(record, from))
    }

    /// Those of so many entries, one a box: boxes that the module found, or else boxes that it worked on.
    fn of_each(n: usize, found: Option<Objects<'a>>, worked_on: Objects<'a>) -> Self {
        match found {
            Some(found) if found.n == n => found,
            _ if worked_on.n == n => worked_on,
            // Boxes that nothing else uses stay in the process that found them.
            Some(Objects { n: 0, output: "" }) => Objects { n, output: "" },
            _ => Objects::default(),
        }
    }

    /// The box of the item at this index of `n_items`; each box has equally many items.
    pub(crate) fn index(self, idx: usize, n_items: usize) -> Option<u32> {
        let each = n_items.checked_div(self.n).filter(|each| *each > 0)?;
        (each * self.n == n_items && idx < n_items).then(|| (idx / each) as u32)
    }

    /// The name of the output for a list of that many items.
    pub(crate) fn name(self, n_items: usize) -> String {
        match self.index(0, n_items) {
            Some(_) => self.output.to_owned(),
            None => String::new(),
        }
    }
}

/// The output of the pipeline that contains this output of a module; empty when there is none.
fn name_of(record: &RequestRecord, port: PortRef) -> &str {
    let mut outputs = record.pipeline.outputs.iter();
    let output = outputs.find(|output| output.from == port);
    output.map_or("", |output| &output.name)
}

/// Of the objects of a request, how many a module did not look at: by reason in the order of [`LeftOut::ALL`], and last those of which
/// only a tensor tells, which has no reasons.
pub fn left_out(record: &RequestRecord, module: ModuleId) -> [u64; LeftOut::ALL.len() + 1] {
    let outputs = record.job.outputs(module).into_iter().flatten();
    let outputs = (0..).zip(outputs).map(|(port, value)| {
        let objects = Objects::of(record, PortRef { module, port });
        counts(value, objects.n)
    });
    // Several outputs tell of the same objects.
    let most = |most: [u64; _], of: [u64; _]| std::array::from_fn(|i| most[i].max(of[i]));
    let mut counts = outputs.fold([0; LeftOut::ALL.len() + 1], most);
    let [reasons @ .., rows] = &mut counts;
    *rows = rows.saturating_sub(reasons.iter().sum());
    counts
}

/// What one output tells of so many objects.
fn counts(value: &Value, n: usize) -> [u64; LeftOut::ALL.len() + 1] {
    let of = |all: &mut dyn Iterator<Item = Option<LeftOut>>, n_items: usize| {
        // An object may have several labels.
        let each = n_items.checked_div(n).filter(|each| each * n == n_items);
        let mut counts = [0; LeftOut::ALL.len() + 1];
        for why in all.step_by(each.unwrap_or(1).max(1)).flatten() {
            counts[why as usize] += 1;
        }
        counts
    };
    match value {
        Value::Texts(all) => of(&mut all.iter().map(|text| text.left_out), all.len()),
        Value::Labels(all) => of(&mut all.iter().map(|label| label.left_out), all.len()),
        Value::Embeddings(all) => of(&mut all.iter().map(|of| of.left_out), all.len()),
        Value::Tensor(tensor) => {
            let mut counts = [0; LeftOut::ALL.len() + 1];
            counts[LeftOut::ALL.len()] = tensor.left_out.len() as u64;
            counts
        }
        _ => [0; LeftOut::ALL.len() + 1],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spillgate_process::value::{Label, Tensor};

    use super::*;

    #[test]
    fn items_are_shared_out_evenly_over_the_boxes_or_not_at_all() {
        let of = |n| Objects {
            n,
            output: "vehicles",
        };
        let indices = |n_boxes, n_items| -> Vec<Option<u32>> {
            (0..n_items)
                .map(|i| of(n_boxes).index(i, n_items))
                .collect()
        };
        assert_eq!(indices(2, 2), [Some(0), Some(1)]);
        assert_eq!(indices(2, 4), [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(indices(2, 3), [None; 3], "nobody knows whose");
        assert_eq!(indices(3, 1), [None]);
        assert_eq!(indices(0, 1), [None], "of the whole frame");
        assert_eq!(
            (of(2).name(4), of(2).name(3)),
            ("vehicles".to_owned(), String::new())
        );
        assert_eq!(
            (of(2).name(0), of(0).name(0)),
            (String::new(), String::new())
        );
    }

    #[test]
    fn masks_are_of_boxes_that_were_found_with_them_or_worked_on() {
        let of = |n, output| Objects { n, output };
        let each = |n, found, worked_on| {
            let Objects { n, output } = Objects::of_each(n, found, worked_on);
            (n, output)
        };
        let (none, own) = (Objects::default(), Some(of(2, "own")));
        assert_eq!(each(2, own, none), (2, "own"));
        assert_eq!(each(2, own, of(2, "given")), (2, "own"));
        assert_eq!(each(3, own, of(3, "given")), (3, "given"));
        assert_eq!(each(3, own, none), (0, ""), "nobody knows whose");
        // A type with an output of boxes that has none where boxes are wired.
        let empty = Some(of(0, ""));
        assert_eq!(each(3, empty, of(3, "given")), (3, "given"));
        // Boxes that stay where they were found.
        assert_eq!(each(3, empty, none), (3, ""));
        assert_eq!(each(3, Some(of(0, "own")), none), (0, ""), "there are none");
        assert_eq!(each(3, None, none), (0, ""));
        assert_eq!(each(3, None, of(3, "given")), (3, "given"));
    }

    #[test]
    fn an_object_with_several_labels_is_left_out_once() {
        use LeftOut::{NoArea, OverLimit};
        let labels = |why: &[Option<LeftOut>]| {
            let label = |why: &Option<LeftOut>| Label {
                label: "unknown".into(),
                score: 0.0,
                left_out: *why,
            };
            Value::Labels(why.iter().map(label).collect())
        };
        let (flat, over) = (Some(NoArea), Some(OverLimit));
        let two_each = labels(&[flat, flat, None, None, over, over, over, over]);
        assert_eq!(counts(&two_each, 4), [1, 2, 0, 0]);
        assert_eq!(counts(&labels(&[over, None, over]), 3), [0, 2, 0, 0]);
        // It is not known whose they are.
        assert_eq!(counts(&labels(&[over, None, over]), 2), [0, 2, 0, 0]);
        assert_eq!(counts(&labels(&[over, None, over]), 0), [0, 2, 0, 0]);
        assert_eq!(counts(&labels(&[]), 2), [0, 0, 0, 0]);
        let tensor = Tensor {
            left_out: vec![0, 3],
            ..Tensor::new(vec![4, 1], vec![0.0; 4])
        };
        assert_eq!(counts(&Value::Tensor(Arc::new(tensor)), 4), [0, 0, 0, 2]);
    }
}
