//! `spots`: bright areas of a picture. A module type whose outputs are joined by index: a box, a mask and key points for each area.

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, ValueType};
use spillgate_process::value::{Detection, Image, Keypoint, Keypoints, Mask, Value};

/// A pixel whose largest byte is above this is bright.
const BRIGHT: u8 = 40;

/// The type.
pub(crate) struct Spots;

impl ModuleKind for Spots {
    fn module_type(&self) -> ModuleType {
        ModuleType::new("spots", "finds bright areas", ModelNeed::None)
            .input("image", ValueType::Image, "the picture")
            .output("boxes", ValueType::Boxes, "the areas, brightest first")
            .output("masks", ValueType::Masks, "the outline of each")
            .output(
                "keypoints",
                ValueType::Keypoints,
                "the centre of each, and its first pixel",
            )
    }

    fn build(&self, _: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        Ok(Box::new(SpotsOperator))
    }
}

struct SpotsOperator;

impl Operator for SpotsOperator {
    fn run(&mut self, _variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let one = |inputs: &Inputs| match inputs.as_slice() {
            [Some(Value::Image(image))] => Ok(outputs(&spots(image))),
            _ => Err(OperatorError::Other(
                "input 0 (image): expected a picture".to_owned(),
            )),
        };
        batch.iter().map(one).collect()
    }

    fn example(&self, _objects: usize) -> Inputs {
        let image = Image {
            width: 640,
            height: 360,
            rgb: vec![128; 640 * 360 * 3].into(),
        };
        vec![Some(Value::Image(image.into()))]
    }
}

/// Pixels that touch each other: column and row of each.
struct Spot {
    /// From the top, and from the left in each row.
    pixels: Vec<(usize, usize)>,
    /// Mean of the largest bytes, 0 to 1.
    brightness: f32,
}

fn spots(image: &Image) -> Vec<Spot> {
    let (width, height) = (image.width as usize, image.height as usize);
    let pixels = image.rgb.as_chunks().0.iter();
    let largest: Vec<u8> = pixels.map(|[r, g, b]| *r.max(g).max(b)).collect();
    let mut left: Vec<bool> = largest.iter().map(|byte| *byte > BRIGHT).collect();
    let mut spots = Vec::new();
    for first in 0..left.len() {
        let mut reached = Vec::new();
        if std::mem::take(&mut left[first]) {
            reached.push(first);
        }
        let mut next = 0;
        while let Some(&at) = reached.get(next) {
            next += 1;
            let (x, y) = (at % width, at / width);
            let beside = [
                (x > 0).then(|| at - 1),
                (x + 1 < width).then_some(at + 1),
                (y > 0).then(|| at - width),
                (y + 1 < height).then_some(at + width),
            ];
            let new = beside.into_iter().flatten();
            reached.extend(new.filter(|at| std::mem::take(&mut left[*at])));
        }
        if !reached.is_empty() {
            reached.sort_unstable();
            let sum: f32 = reached.iter().map(|at| f32::from(largest[*at])).sum();
            spots.push(Spot {
                brightness: sum / reached.len() as f32 / 255.0,
                pixels: reached.iter().map(|at| (at % width, at / width)).collect(),
            });
        }
    }
    spots.sort_by(|a, b| b.brightness.total_cmp(&a.brightness));
    spots
}

/// One entry a spot in each list.
fn outputs(spots: &[Spot]) -> Outputs {
    vec![
        Value::Boxes(spots.iter().map(Spot::area).collect()),
        Value::Masks(spots.iter().map(Spot::mask).collect()),
        Value::Keypoints(spots.iter().map(Spot::keypoints).collect()),
    ]
}

impl Spot {
    fn area(&self) -> Detection {
        let columns = || self.pixels.iter().map(|(x, _)| *x);
        let rows = || self.pixels.iter().map(|(_, y)| *y);
        let first = |all: Option<usize>| all.unwrap_or_default() as f32;
        let behind = |all: Option<usize>| all.map_or(0, |last| last + 1) as f32;
        Detection {
            x0: first(columns().min()),
            y0: first(rows().min()),
            x1: behind(columns().max()),
            y1: behind(rows().max()),
            class: 0,
            label: "spot".into(),
            score: self.brightness,
        }
    }

    /// Down the left side and up the right one. Gaps within a row are covered.
    fn mask(&self) -> Mask {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for row in self.pixels.chunk_by(|(_, a), (_, b)| a == b) {
            let (Some((x0, y)), Some((x1, _))) = (row.first(), row.last()) else {
                continue;
            };
            for (side, x) in [(&mut left, *x0), (&mut right, *x1 + 1)] {
                add(side, x as f32, *y as f32);
            }
        }
        left.extend(right.into_iter().rev());
        Mask {
            polygons: vec![left],
        }
    }

    fn keypoints(&self) -> Keypoints {
        let n = self.pixels.len() as f32;
        let x: f32 = self.pixels.iter().map(|(x, _)| *x as f32 + 0.5).sum();
        let y: f32 = self.pixels.iter().map(|(_, y)| *y as f32 + 0.5).sum();
        let (first_x, first_y) = self.pixels[0];
        let centre = Keypoint {
            x: x / n,
            y: y / n,
            score: 1.0,
        };
        let first = Keypoint {
            x: first_x as f32 + 0.5,
            y: first_y as f32 + 0.5,
            score: 0.5,
        };
        Keypoints {
            points: vec![centre, first],
        }
    }
}

/// Goes on along a side, in the row from `y` to `y + 1`.
fn add(side: &mut Vec<[f32; 2]>, x: f32, y: f32) {
    match side.last_mut() {
        Some(last) if last[0] == x => last[1] = y + 1.0,
        _ => side.extend([[x, y], [x, y + 1.0]]),
    }
}
