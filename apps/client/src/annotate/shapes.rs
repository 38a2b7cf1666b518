//! Masks and key points. A server may send any numbers: what is outside of the picture takes no time, and what is no number is not
//! drawn.

use image::{Rgb, RgbImage};

use super::{blend, fill};

/// No picture is larger than this.
pub(super) const FAR: f32 = 1e6;
/// How much of the colour is in the pixels of a mask, of 255.
const TINT: u8 = 70;

/// Most points of the outlines of an object that are drawn; what has more is no outline of an object in a picture.
const POINTS_MAX: usize = 1 << 16;

/// Whether outlines have few enough points to be drawn.
pub(super) fn are_drawn(outlines: &[Vec<[f32; 2]>]) -> bool {
    outlines.iter().map(Vec::len).sum::<usize>() <= POINTS_MAX
}

/// Tints what is within outlines.
pub(super) fn tint(picture: &mut RgbImage, outlines: &[Vec<[f32; 2]>], colour: Rgb<u8>) {
    let (width, height) = picture.dimensions();
    // Where the outlines cross the middle of each row.
    let mut crossings = vec![Vec::new(); height as usize];
    for ([x0, y0], [x1, y1]) in outlines.iter().flat_map(|outline| sides(outline)) {
        let (top, bottom) = (y0.min(y1), y0.max(y1));
        // A row is crossed where its middle is from the top on and above the bottom.
        let row = |y: f32| (y - 0.5).ceil().clamp(0.0, height as f32) as usize;
        for (y, row) in (row(top)..row(bottom)).zip(&mut crossings[row(top)..]) {
            row.push(x0 + (y as f32 + 0.5 - y0) / (y1 - y0) * (x1 - x0));
        }
    }
    for (y, row) in (0..).zip(&mut crossings) {
        row.sort_by(f32::total_cmp);
        for [from, to] in row.as_chunks().0 {
            let column = |x: f32| (x - 0.5).ceil().clamp(0.0, width as f32) as i64;
            for x in column(*from)..column(*to) {
                blend(picture, (x, y), colour, TINT);
            }
        }
    }
}

/// Draws a closed outline.
pub(super) fn outline(picture: &mut RgbImage, outline: &[[f32; 2]], line: i64, colour: Rgb<u8>) {
    for (from, to) in sides(outline) {
        let Some((from, to)) = cut(from, to, picture, line) else {
            continue;
        };
        let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
        let steps = dx.abs().max(dy.abs()).ceil().max(1.0) as u32;
        for step in 0..=steps {
            let part = step as f32 / steps as f32;
            let (x, y) = ((from[0] + part * dx) as i64, (from[1] + part * dy) as i64);
            let (x, y) = (x - line / 2, y - line / 2);
            fill(picture, x, y, x + line, y + line, colour);
        }
    }
}

/// A key point as a disc, the fainter the lower its score.
pub(super) fn dot(picture: &mut RgbImage, [x, y, score]: [f32; 3], radius: i64, colour: Rgb<u8>) {
    if !(x.is_finite() && y.is_finite()) {
        return;
    }
    let cover = (score.clamp(0.0, 1.0) * 255.0) as u8;
    let (x, y) = (super::pixel(x), super::pixel(y));
    for down in -radius..=radius {
        for right in -radius..=radius {
            if right * right + down * down <= radius * radius {
                blend(picture, (x + right, y + down), colour, cover);
            }
        }
    }
}

/// The sides of a closed outline that are of finite numbers, none further away than [`FAR`].
fn sides(outline: &[[f32; 2]]) -> impl Iterator<Item = ([f32; 2], [f32; 2])> {
    let next = outline.iter().cycle().skip(1);
    let sides = outline.iter().zip(next).map(|(from, to)| (*from, *to));
    let finite = sides.filter(|(from, to)| from.iter().chain(to).all(|v| v.is_finite()));
    let near = |point: [f32; 2]| point.map(|v| v.clamp(-FAR, FAR));
    finite.map(move |(from, to)| (near(from), near(to)))
}

/// The part of a line that is in the picture, or so many pixels beside it.
fn cut(
    from: [f32; 2],
    to: [f32; 2],
    picture: &RgbImage,
    beside: i64,
) -> Option<([f32; 2], [f32; 2])> {
    let (from, to) = (from.map(f64::from), to.map(f64::from));
    let beside = beside as f64;
    let (mut begin, mut end) = (0.0f64, 1.0f64);
    let most = [picture.width(), picture.height()].map(f64::from);
    for axis in 0..2 {
        let span = to[axis] - from[axis];
        for (room, moves) in [
            (from[axis] + beside, -span),
            (most[axis] + beside - from[axis], span),
        ] {
            match moves {
                0.0 if room < 0.0 => return None,
                0.0 => {}
                moves if moves > 0.0 => end = end.min(room / moves),
                moves => begin = begin.max(room / moves),
            }
        }
    }
    let at = |part: f64| [0, 1].map(|axis| (from[axis] + part * (to[axis] - from[axis])) as f32);
    (begin <= end).then(|| (at(begin), at(end)))
}
