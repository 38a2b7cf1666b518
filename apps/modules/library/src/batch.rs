//! The parts that modules share: reading the inputs of a request, collecting pictures or cut-out objects of a whole
//! batch into one input tensor, and giving each request its result or its error.

use std::sync::Arc;

use bytes::Bytes;
use spillgate_backend::operator::{Inputs, OperatorError, Outputs};
use spillgate_backend::value::{Detection, Image, Tensor, Value};

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
    (0..n)
        .map(|_| Err(OperatorError::Other(error.to_string())))
        .collect()
}

/// Runs the requests whose picture is sound in one call of `run`, which returns one result a picture;
/// the others fail alone. An error of `run` fails all that took part.
pub(crate) fn on_pictures(
    batch: &[Inputs],
    run: impl FnOnce(&[&Image]) -> Result<Vec<Outputs>, OperatorError>,
) -> Vec<Result<Outputs, OperatorError>> {
    let images: Vec<_> = batch.iter().map(|inputs| image(inputs, 0)).collect();
    let sound: Vec<&Image> = images
        .iter()
        .filter_map(|i| i.as_ref().ok().copied())
        .collect();
    let results = if sound.is_empty() {
        Ok(Vec::new())
    } else {
        run(&sound)
    };
    match results {
        Ok(results) => {
            debug_assert_eq!(results.len(), sound.len(), "one result a sound picture");
            let mut results = results.into_iter();
            let mut next = || results.next().expect("one result a sound picture");
            images
                .into_iter()
                .map(|image| image.map(|_| next()))
                .collect()
        }
        Err(error) => images
            .into_iter()
            .map(|image| image.and(Err(OperatorError::Other(error.to_string()))))
            .collect(),
    }
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

/// An input tensor that grows as needed and is used again for the next batch.
pub(crate) struct InputBuffer {
    pub(crate) tensor: Tensor,
    resampler: Resampler,
}

impl InputBuffer {
    pub(crate) fn new() -> Self {
        InputBuffer {
            tensor: Tensor {
                shape: vec![0],
                data: Vec::new(),
            },
            resampler: Resampler::default(),
        }
    }

    /// Makes room for `n` pictures of `width` x `height`.
    pub(crate) fn reset(&mut self, n: usize, width: usize, height: usize, format: &PixelFormat) {
        let (n_dim, w, h) = (n as i64, width as i64, height as i64);
        self.tensor.shape = if format.interleaved {
            vec![n_dim, h, w, 3]
        } else {
            vec![n_dim, 3, h, w]
        };
        self.tensor.data.resize(n * width * height * 3, 0.0);
    }

    /// The place of picture `idx`, and the resampler to fill it with.
    pub(crate) fn target<'a>(
        &'a mut self,
        idx: usize,
        width: usize,
        height: usize,
        format: &'a PixelFormat,
    ) -> (Target<'a>, &'a mut Resampler) {
        let n = width * height * 3;
        let data = &mut self.tensor.data[idx * n..(idx + 1) * n];
        (
            Target {
                data,
                width,
                height,
                format,
            },
            &mut self.resampler,
        )
    }
}

/// Cut-out objects of a whole batch.
pub(crate) struct Crops {
    /// Which part of each box to cut out: left, top, right, bottom in fractions of its sides.
    pub(crate) part: [f32; 4],
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: PixelFormat,
    /// Most objects of a frame.
    pub(crate) limit: usize,
    buffer: InputBuffer,
}

impl Crops {
    pub(crate) fn new(part: [f32; 4], (width, height): (usize, usize), limit: usize) -> Self {
        Crops {
            part,
            width,
            height,
            format: PixelFormat::UNIT,
            limit,
            buffer: InputBuffer::new(),
        }
    }

    /// Runs a batch of requests, each with a picture and boxes: cuts out all objects of all frames,
    /// calls `forward` once with all of them (not at all when there are none), and gives every
    /// request one item a box, in the order of its boxes.
    ///
    /// If a frame has more than `limit` objects, those with the lowest scores are left out, and boxes without area too;
    /// their item is `missing`.
    pub(crate) fn run<T: Clone>(
        &mut self,
        frames: Vec<Result<(&Image, Vec<&Detection>), OperatorError>>,
        missing: &T,
        forward: impl FnOnce(&Tensor) -> Result<Vec<T>, OperatorError>,
    ) -> Vec<Result<Vec<T>, OperatorError>> {
        let mut places = Vec::new();
        let mut sources = Vec::new();
        let n_frames = frames.len();
        let mut results: Vec<Result<Vec<T>, OperatorError>> = Vec::with_capacity(n_frames);
        for (request, frame) in frames.into_iter().enumerate() {
            results.push(frame.map(|(image, boxes)| {
                for idx in chosen(&boxes, self.limit) {
                    places.push((request, idx));
                    sources.push((image, self.region(boxes[idx])));
                }
                vec![missing.clone(); boxes.len()]
            }));
        }
        if sources.is_empty() {
            return results;
        }
        self.buffer
            .reset(sources.len(), self.width, self.height, &self.format);
        let place = Place {
            x: 0,
            y: 0,
            width: self.width,
            height: self.height,
        };
        for (i, (image, region)) in sources.into_iter().enumerate() {
            let (mut target, resampler) =
                self.buffer.target(i, self.width, self.height, &self.format);
            resampler.paint(image, region, &mut target, place);
        }
        match forward(&self.buffer.tensor) {
            Ok(items) => {
                debug_assert_eq!(items.len(), places.len(), "one item an object");
                for ((request, idx), item) in places.into_iter().zip(items) {
                    if let Ok(list) = &mut results[request] {
                        list[idx] = item;
                    }
                }
            }
            // Requests without objects did not need the model.
            Err(error) => {
                for (request, _) in places {
                    results[request] = Err(OperatorError::Other(error.to_string()));
                }
            }
        }
        results
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

/// Indices of the boxes to work on, in order: those with an area, of highest score where `limit` cuts.
fn chosen(boxes: &[&Detection], limit: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..boxes.len())
        .filter(|i| {
            let b = boxes[*i];
            [b.x0, b.y0, b.x1, b.y1].iter().all(|v| v.is_finite()) && b.x1 > b.x0 && b.y1 > b.y0
        })
        .collect();
    if all.len() > limit {
        all.sort_by(|a, b| boxes[*b].score.total_cmp(&boxes[*a].score).then(a.cmp(b)));
        all.truncate(limit);
        all.sort_unstable();
    }
    all
}

/// The picture and boxes of each request.
pub(crate) fn frames_with_boxes(
    batch: &[Inputs],
) -> Vec<Result<(&Image, Vec<&Detection>), OperatorError>> {
    batch
        .iter()
        .map(|inputs| Ok((image(inputs, 0)?, boxes(inputs, 1)?.iter().collect())))
        .collect()
}

/// Runs the parts of the pictures that the requests of a batch name in one call of `forward`: the whole picture or,
/// where boxes are wired, each of them; one item for each. As [`Crops::run`] otherwise.
pub(crate) fn pictures_or_boxes<T: Clone>(
    crops: &mut Crops,
    batch: &[Inputs],
    with_boxes: bool,
    missing: &T,
    forward: impl FnOnce(&Tensor) -> Result<Vec<T>, OperatorError>,
) -> Vec<Result<Vec<T>, OperatorError>> {
    let whole: Vec<Option<Detection>> = batch
        .iter()
        .map(|inputs| image(inputs, 0).ok().filter(|_| !with_boxes).map(all_of))
        .collect();
    let frames = batch
        .iter()
        .zip(&whole)
        .map(|(inputs, whole)| {
            let image = image(inputs, 0)?;
            Ok(match whole {
                Some(whole) => (image, vec![whole]),
                // Wired, but the module that finds boxes was skipped: there are none.
                None if matches!(inputs.get(1), Some(None)) => (image, Vec::new()),
                None => (image, boxes(inputs, 1)?.iter().collect()),
            })
        })
        .collect();
    crops.run(frames, missing, forward)
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

/// Each request's items as its one output.
pub(crate) fn one_output<T>(
    results: Vec<Result<Vec<T>, OperatorError>>,
    value: impl Fn(Arc<[T]>) -> Value,
) -> Vec<Result<Outputs, OperatorError>> {
    results
        .into_iter()
        .map(|r| r.map(|items| vec![value(list(items))]))
        .collect()
}
