//! Makes pictures smaller that are larger than necessary, and scales the boxes found in the small picture to the
//! large one.

use image::RgbImage;
use image::imageops::thumbnail;
use spillgate_proto::pb;
use spillgate_proto::pb::value::Value;

/// Default of the longer side of a sent picture, in pixels. No served network looks at more, and 4K takes four times
/// the encoding, sending and decoding.
pub(crate) const MAX_SIDE: u32 = 1920;

/// Pixels of the source's picture for each pixel of the sent one: columns, rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale(f32, f32);

impl Scale {
    /// The picture is sent in its own size.
    pub(crate) const ONE: Scale = Scale(1.0, 1.0);

    /// A picture of size `small` was made from one of size `large`.
    pub(crate) fn between(large: (u32, u32), small: (u32, u32)) -> Self {
        match small {
            (0, _) | (_, 0) => Scale::ONE,
            (width, height) => Scale(
                large.0 as f32 / width as f32,
                large.1 as f32 / height as f32,
            ),
        }
    }

    /// Converts boxes, and the size that they are in, from pixels of the sent picture to pixels of the source's picture.
    pub(crate) fn map_back(self, result: &mut pb::Result) {
        if self == Scale::ONE {
            return;
        }
        result.width = (result.width as f32 * self.0).round() as u32;
        result.height = (result.height as f32 * self.1).round() as u32;
        for output in result.outputs.values_mut() {
            if let Some(Value::Boxes(list)) = &mut output.value {
                for area in &mut list.boxes {
                    area.x0 *= self.0;
                    area.x1 *= self.0;
                    area.y0 *= self.1;
                    area.y1 *= self.1;
                }
            }
        }
    }
}

/// The size of a picture of `size` when no side may be longer than `max_side`; `None` when it fits.
pub(crate) fn smaller(size: (u32, u32), max_side: u32) -> Option<(u32, u32)> {
    let (width, height) = size;
    let longer = width.max(height);
    if longer <= max_side {
        return None;
    }
    let share = f64::from(max_side) / f64::from(longer);
    let side = |n: u32| ((f64::from(n) * share).round() as u32).clamp(1, max_side);
    Some((side(width), side(height)))
}

/// A smaller copy where one is needed; each pixel is the mean of the pixels that it replaces.
pub(crate) fn shrink(picture: &RgbImage, max_side: u32) -> Option<RgbImage> {
    let (width, height) = smaller(picture.dimensions(), max_side)?;
    Some(thumbnail(picture, width, height))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn sides_are_bounded_and_shapes_kept() {
        assert_eq!(smaller((1920, 1080), 1920), None);
        assert_eq!(smaller((3840, 2160), 1920), Some((1920, 1080)));
        assert_eq!(smaller((2160, 3840), 1920), Some((1080, 1920)));
        assert_eq!(smaller((10_000, 1), 100), Some((100, 1)));
    }

    #[test]
    fn a_box_in_the_small_picture_is_where_it_was_in_the_large_one() {
        // A bright square in a dark picture of 4000 x 1000, from (2000, 400) to (2400, 800).
        let bright = |x, y| (2000..2400).contains(&x) && (400..800).contains(&y);
        let large = RgbImage::from_fn(4000, 1000, |x, y| {
            image::Rgb([if bright(x, y) { 255 } else { 0 }; 3])
        });
        let small = shrink(&large, 1000).unwrap();
        let scale = Scale::between(large.dimensions(), small.dimensions());
        assert_eq!(small.dimensions(), (1000, 250));
        let lit: Vec<(u32, u32)> = small
            .enumerate_pixels()
            .filter(|(.., p)| p[0] > 127)
            .map(|(x, y, _)| (x, y))
            .collect();
        let (first, last) = (lit[0], lit[lit.len() - 1]);
        let area = pb::Box {
            x0: first.0 as f32,
            y0: first.1 as f32,
            x1: (last.0 + 1) as f32,
            y1: (last.1 + 1) as f32,
            ..Default::default()
        };
        let boxes = Value::Boxes(pb::BoxList { boxes: vec![area] });
        let value = pb::Value { value: Some(boxes) };
        let mut result = pb::Result {
            width: 1000,
            height: 250,
            outputs: HashMap::from([("found".to_owned(), value)]),
            ..Default::default()
        };
        scale.map_back(&mut result);
        assert_eq!((result.width, result.height), (4000, 1000));
        let Some(Value::Boxes(list)) = &result.outputs["found"].value else {
            unreachable!()
        };
        let area = &list.boxes[0];
        assert_eq!(
            [area.x0, area.y0, area.x1, area.y1],
            [2000.0, 400.0, 2400.0, 800.0]
        );
    }
}
