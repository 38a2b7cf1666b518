//! The parts that modules share: reading the inputs of a request, collecting pictures or cut-out objects of a whole
//! batch into one input tensor, and giving each request its result or its error.

use std::sync::Arc;

use bytes::Bytes;
use spillgate_backend::operator::{Inputs, OperatorError, Outputs, Pass};
use spillgate_process::value::{Detection, Image, LeftOut, Tensor, Value};

use crate::input::InputBuffers;
use crate::resample::{PixelFormat, Place, Region, Resampler, Target};

/// The picture of a request, checked to hold as many bytes as its size says.
pub(crate) fn image(inputs: &Inputs, port: usize) -> Result<&Image, OperatorError> {
    let Some(Some(Value::Image(image))) = inputs.get(port) else {
        return Err(OperatorError::Other(format!(
            "input {port} (image): expected a picture, got {}",
            kind_of(inputs, port)
        )));
    };
    let n = image.width as usize * image.height as usize * 3;
    if n == 0 || image.rgb.len() != n {
        return Err(OperatorError::Other(format!(
            "input {port} (image): {} bytes are no picture of {}x{} pixels; {n} are needed",
            image.rgb.len(),
            image.width,
            image.height
        )));
    }
    Ok(image)
}

/// The boxes of a request.
pub(crate) fn boxes(inputs: &Inputs, port: usize) -> Result<&[Detection], OperatorError> {
    match inputs.get(port) {
        Some(Some(Value::Boxes(boxes))) => Ok(boxes),
        _ => Err(OperatorError::Other(format!(
            "input {port} (boxes): expected boxes, got {}",
            kind_of(inputs, port)
        ))),
    }
}

fn kind_of(inputs: &Inputs, port: usize) -> &'static str {
    match inputs.get(port) {
        Some(Some(value)) => value.ty().name(),
        _ => "nothing",
    }
}

/// Gives every request of a batch the same error.
pub(crate) fn all_fail<T>(n: usize, error: &OperatorError) -> Vec<Result<T, OperatorError>> {
    (0..n).map(|_| Err(error.again())).collect()
}

/// A pass over the pictures of a batch: `paint` puts each into its place of the input and says what `read` is told of it; `read` makes the outputs of
/// each picture from the model's outputs. Requests whose picture is not sound fail alone; an error of the model or of `read` fails all
/// others.
pub(crate) fn pass_over_pictures<P: Send + 'static>(
    buffers: &InputBuffers,
    (size, format): ((usize, usize), &PixelFormat),
    batch: &[Inputs],
    paint: impl Fn(&Image, &mut Target<'_>, &mut Resampler) -> P + Sync,
    read: impl FnOnce(&[P], Vec<Tensor>) -> Result<Vec<Outputs>, OperatorError> + Send + 'static,
) -> Pass {
    let images: Vec<_> = batch.iter().map(|inputs| image(inputs, 0)).collect();
    let sound = images.iter().filter_map(|image| image.as_ref().ok());
    let sound: Vec<&Image> = sound.copied().collect();
    let filled = (!sound.is_empty()).then(|| {
        buffers.fill(sound.len(), size, format, |i, target, resampler| {
            paint(sound[i], target, resampler)
        })
    });
    let (input, painted) = filled.unzip();
    let painted = painted.unwrap_or_default();
    let wrong: Vec<Result<(), OperatorError>> =
        images.into_iter().map(|image| image.map(|_| ())).collect();
    let buffers = buffers.clone();
    Pass::new(input, move |passed| {
        let results = passed.map_or(Ok(Vec::new()), |(input, output)| {
            buffers.give_back(input);
            read(&painted, output?)
        });
        match results {
            Ok(results) => {
                debug_assert_eq!(results.len(), painted.len(), "one result a sound picture");
                let mut results = results.into_iter();
                let mut next = || results.next().expect("one result a sound picture");
                wrong.into_iter().map(|of| of.map(|()| next())).collect()
            }
            Err(error) => wrong
                .into_iter()
                .map(|of| of.and(Err(error.again())))
                .collect(),
        }
    })
}

/// A list as a value's payload.
pub(crate) fn list<T>(items: Vec<T>) -> Arc<[T]> {
    Arc::from(items)
}

/// A grey picture of 640x360 pixels for warm-up and profiling.
pub(crate) fn example_image() -> Value {
    let (width, height) = (640u32, 360u32);
    let rgb = Bytes::from(vec![114; (width * height * 3) as usize]);
    Value::Image(Arc::new(Image { width, height, rgb }))
}

/// That many boxes spread over the example picture.
pub(crate) fn example_boxes(n: usize) -> Value {
    let label: Arc<str> = Arc::from("object");
    let boxes = (0..n)
        .map(|i| {
            let (x, y) = ((i % 5) as f32 * 120.0, (i / 5 % 3) as f32 * 120.0);
            Detection {
                x0: x,
                y0: y,
                x1: x + 100.0,
                y1: y + 100.0,
                class: 0,
                label: Arc::clone(&label),
                score: 1.0,
            }
        })
        .collect();
    Value::Boxes(list(boxes))
}

/// Cut-out objects of whole batches.
pub(crate) struct Crops {
    /// Which part of each box to cut out: left, top, right, bottom in fractions of its sides.
    pub(crate) part: [f32; 4],
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: PixelFormat,
    /// Most objects of a frame.
    pub(crate) limit: usize,
    buffers: InputBuffers,
}

/// The pictures and boxes of a batch.
type Frames<'a> = Vec<Result<(&'a Image, Vec<&'a Detection>), OperatorError>>;

impl Crops {
    pub(crate) fn new(
        part: [f32; 4],
        (width, height): (usize, usize),
        limit: usize,
        buffers: InputBuffers,
    ) -> Self {
        Crops {
            part,
            width,
            height,
            format: PixelFormat::UNIT,
            limit,
            buffers,
        }
    }

    /// A pass over all objects of all frames of a batch, which are cut out into one input. `read` makes one item of each, and `outputs`
    /// are made of the items of a request, one a box, in the order of its boxes. There is no input where there are no objects.
    ///
    /// If a frame has more than `limit` objects, those with the lowest scores are left out, and boxes without area too;
    /// their item is `missing`, which is told why.
    pub(crate) fn pass<T: Send + 'static>(
        &self,
        frames: Frames<'_>,
        missing: impl Fn(LeftOut) -> T + Send + 'static,
        read: impl FnOnce(usize, Vec<Tensor>) -> Result<Vec<T>, OperatorError> + Send + 'static,
        outputs: impl Fn(Vec<T>) -> Outputs + Send + 'static,
    ) -> Pass {
        let (input, cut) = self.cut(frames, |n| self.buffers.rows(n));
        let buffers = self.buffers.clone();
        Pass::new(input, move |passed| {
            let n = cut.n;
            let items = passed.map(|(input, output)| {
                let rows = input.shape[0];
                buffers.give_back(input);
                let mut outputs = output?;
                for output in &mut outputs {
                    without_filling(output, rows, n);
                }
                read(n, outputs)
            });
            let results = cut.items(missing, items).into_iter();
            results.map(|items| items.map(&outputs)).collect()
        })
    }

    /// The same at once, for types that run several passes: `forward` makes one item of each object.
    pub(crate) fn run<T>(
        &self,
        frames: Frames<'_>,
        missing: impl Fn(LeftOut) -> T,
        forward: impl FnOnce(&Tensor) -> Result<Vec<T>, OperatorError>,
    ) -> Vec<Result<Vec<T>, OperatorError>> {
        let (input, cut) = self.cut(frames, |n| n);
        let items = input.map(|input| {
            let items = forward(&input);
            self.buffers.give_back(input);
            items
        });
        cut.items(missing, items)
    }

    /// Cuts out all objects, into an input of as many rows as `rows` says for them.
    fn cut(&self, frames: Frames<'_>, rows: impl Fn(usize) -> usize) -> (Option<Tensor>, Cut) {
        let mut sources = Vec::new();
        let mut boxes = Vec::with_capacity(frames.len());
        for frame in frames {
            boxes.push(frame.map(|(image, boxes)| {
                let left_out = left_out(&boxes, self.limit);
                let all = boxes.iter().zip(&left_out);
                let looked_at = all.filter_map(|(b, why)| why.is_none().then_some(*b));
                sources.extend(looked_at.map(|b| (image, self.region(b))));
                left_out
            }));
        }
        let n = sources.len();
        let place = Place {
            x: 0,
            y: 0,
            width: self.width,
            height: self.height,
        };
        let size = (self.width, self.height);
        let fill = || {
            let paint = |i: usize, target: &mut Target<'_>, resampler: &mut Resampler| match sources
                .get(i)
            {
                Some(&(image, region)) => resampler.paint(image, region, target, place),
                None => target.fill(0.0),
            };
            let rows = rows(sources.len());
            self.buffers.fill(rows, size, &self.format, paint).0
        };
        let input = (!sources.is_empty()).then(fill);
        (input, Cut { n, boxes })
    }

    fn region(&self, b: &Detection) -> Region {
        let (w, h) = (b.x1 - b.x0, b.y1 - b.y0);
        let [x0, y0, x1, y1] = self.part;
        Region {
            x0: b.x0 + x0 * w,
            y0: b.y0 + y0 * h,
            x1: b.x0 + x1 * w,
            y1: b.y0 + y1 * h,
        }
    }
}

/// The one output that is read.
pub(crate) fn only(outputs: Vec<Tensor>) -> Result<Tensor, OperatorError> {
    let none = || OperatorError::Other("the model gave no output; one tensor is needed".to_owned());
    outputs.into_iter().next().ok_or_else(none)
}

/// Cuts an output that has a row for each of `rows` rows of the input to the first `n`. Another output stays as it is.
fn without_filling(output: &mut Tensor, rows: i64, n: usize) {
    if output.shape.first() == Some(&rows) && rows > n as i64 {
        let each = output.data.len() / rows as usize;
        output.data.truncate(n * each);
        output.shape[0] = n as i64;
    }
}

/// What was cut out of a batch.
struct Cut {
    /// Objects that were cut out.
    n: usize,
    /// Of each request the boxes, and why they were left out.
    boxes: Vec<Result<Vec<Option<LeftOut>>, OperatorError>>,
}

impl Cut {
    /// One item a box for each request. `items` has one for each object that was cut out, in order.
    fn items<T>(
        self,
        missing: impl Fn(LeftOut) -> T,
        items: Option<Result<Vec<T>, OperatorError>>,
    ) -> Vec<Result<Vec<T>, OperatorError>> {
        let mut items = items.unwrap_or_else(|| Ok(Vec::new())).map(Vec::into_iter);
        if let Ok(items) = &items {
            debug_assert_eq!(items.len(), self.n, "one item an object");
        }
        let mut item = |why: Option<LeftOut>| match (why, &mut items) {
            (Some(why), _) => Ok(missing(why)),
            (None, Ok(items)) => items.next().ok_or_else(|| {
                OperatorError::Other("the model gave fewer results than objects".to_owned())
            }),
            // Requests without objects did not need the model.
            (None, Err(error)) => Err(error.again()),
        };
        let boxes = self.boxes.into_iter();
        boxes
            .map(|all| all?.into_iter().map(&mut item).collect())
            .collect()
    }
}

/// Of each box, why it is left out: those without area are, and of the others those of lowest score over `limit`.
fn left_out(boxes: &[&Detection], limit: usize) -> Vec<Option<LeftOut>> {
    let has_area = |b: &Detection| {
        [b.x0, b.y0, b.x1, b.y1].iter().all(|v| v.is_finite()) && b.x1 > b.x0 && b.y1 > b.y0
    };
    let all = boxes.iter();
    let mut left_out: Vec<_> = all
        .map(|b| (!has_area(b)).then_some(LeftOut::NoArea))
        .collect();
    let with_area = left_out.iter().enumerate();
    let mut with_area: Vec<usize> = with_area
        .filter_map(|(i, why)| why.is_none().then_some(i))
        .collect();
    if with_area.len() > limit {
        with_area.sort_by(|a, b| boxes[*b].score.total_cmp(&boxes[*a].score).then(a.cmp(b)));
        for i in &with_area[limit..] {
            left_out[*i] = Some(LeftOut::OverLimit);
        }
    }
    left_out
}

/// The picture and boxes of each request.
pub(crate) fn frames_with_boxes(batch: &[Inputs]) -> Frames<'_> {
    batch
        .iter()
        .map(|inputs| Ok((image(inputs, 0)?, boxes(inputs, 1)?.iter().collect())))
        .collect()
}

/// The parts of pictures that the requests of a batch name: the whole picture or, where boxes are wired, each of them.
pub(crate) struct Parts<'a> {
    batch: &'a [Inputs],
    /// Where no boxes are wired.
    whole: Vec<Option<Detection>>,
}

impl<'a> Parts<'a> {
    pub(crate) fn of(batch: &'a [Inputs], with_boxes: bool) -> Self {
        let whole = |inputs| image(inputs, 0).ok().filter(|_| !with_boxes).map(all_of);
        let whole = batch.iter().map(whole).collect();
        Parts { batch, whole }
    }

    pub(crate) fn frames(&self) -> Frames<'_> {
        let of = |(inputs, whole): (&'a Inputs, _)| {
            let image = image(inputs, 0)?;
            Ok(match whole {
                Some(whole) => (image, vec![whole]),
                // Wired, but the module that finds boxes was skipped: there are none.
                None if matches!(inputs.get(1), Some(None)) => (image, Vec::new()),
                None => (image, boxes(inputs, 1)?.iter().collect()),
            })
        };
        let whole = self.whole.iter().map(Option::as_ref);
        self.batch.iter().zip(whole).map(of).collect()
    }
}

/// The whole picture as a box.
fn all_of(image: &Image) -> Detection {
    Detection {
        x0: 0.0,
        y0: 0.0,
        x1: image.width as f32,
        y1: image.height as f32,
        class: 0,
        label: Arc::from(""),
        score: 1.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn detection() -> impl Strategy<Value = Detection> {
        let place = || prop_oneof![4 => (-3i8..4).prop_map(f32::from), 1 => Just(f32::NAN)];
        let corners = (place(), place(), place(), place());
        // Few scores, so that some are equal.
        (corners, 0u8..4).prop_map(|((x0, y0, x1, y1), score)| Detection {
            x0,
            y0,
            x1,
            y1,
            class: 0,
            label: Arc::from(""),
            score: f32::from(score) / 4.0,
        })
    }

    /// Of each box alone: whether as many others as may be looked at come before it.
    fn why(boxes: &[&Detection], idx: usize, limit: usize) -> Option<LeftOut> {
        let has_area = |b: &Detection| {
            let is_finite = (b.x0 + b.y0 + b.x1 + b.y1).is_finite();
            is_finite && (b.x1 - b.x0).max(0.0) * (b.y1 - b.y0).max(0.0) > 0.0
        };
        if !has_area(boxes[idx]) {
            return Some(LeftOut::NoArea);
        }
        let before = (0..boxes.len()).filter(|other| {
            let (score, own) = (boxes[*other].score, boxes[idx].score);
            has_area(boxes[*other]) && (score > own || score == own && *other < idx)
        });
        (before.count() >= limit).then_some(LeftOut::OverLimit)
    }

    proptest! {
        #[test]
        fn a_box_is_left_out_for_its_area_or_for_better_ones(
            boxes in proptest::collection::vec(detection(), 0..12), limit in 1usize..8,
        ) {
            let boxes: Vec<&Detection> = boxes.iter().collect();
            let expected: Vec<_> = (0..boxes.len()).map(|i| why(&boxes, i, limit)).collect();
            prop_assert_eq!(left_out(&boxes, limit), expected);
        }
    }
}
