//! Draws results into pictures: boxes with their classes, plate texts, names, masks, key points, and a line with the frame's outcome.
//!
//! Letters are Noto Sans Mono, rendered in advance at three heights; the height that suits the picture is used.

mod shapes;

use std::time::Duration;

use image::{Rgb, RgbImage};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use spillgate_proto::pb;
use spillgate_proto::pb::Outcome;

use crate::findings::{Found, Shown};
use crate::tally::outcome_word;

/// One colour for each output of boxes, in the order of their names; colour-blind people can tell them apart.
const COLOURS: [Rgb<u8>; 6] = [
    Rgb([255, 176, 0]),
    Rgb([80, 200, 255]),
    Rgb([255, 110, 180]),
    Rgb([140, 230, 100]),
    Rgb([190, 150, 255]),
    Rgb([255, 255, 110]),
];
const GOOD: Rgb<u8> = Rgb([120, 230, 120]);
const BAD: Rgb<u8> = Rgb([255, 120, 100]);
const INK: Rgb<u8> = Rgb([16, 16, 16]);
const PAPER: Rgb<u8> = Rgb([24, 24, 28]);

/// Draws a result into its picture.
pub fn annotate(picture: &mut RgbImage, result: &pb::Result, latency: Duration) {
    let shown = Shown::from_outputs(&result.outputs);
    let pen = Pen::for_picture(picture);
    // Masks first, so that they cover nothing else.
    for shape in &shown.shapes {
        let colour = colour_of(shape.group);
        if !shapes::are_drawn(&shape.outlines) {
            continue;
        }
        shapes::tint(picture, &shape.outlines, colour);
        for outline in &shape.outlines {
            shapes::outline(picture, outline, pen.line, colour);
        }
    }
    // Boxes before captions, so that no box crosses one.
    for (idx, group) in shown.groups.iter().enumerate() {
        for found in &group.found {
            pen.frame(picture, &found.area, colour_of(Some(idx)));
        }
    }
    for shape in &shown.shapes {
        for point in &shape.points {
            shapes::dot(picture, *point, 2 * pen.line, colour_of(shape.group));
        }
    }
    for (idx, group) in shown.groups.iter().enumerate() {
        for found in &group.found {
            let text = caption(found, &group.name);
            let (x, y) = (pixel(found.area.x0), pixel(found.area.y0));
            pen.caption(picture, x, y, &text, INK, colour_of(Some(idx)));
        }
    }
    let (headline, colour) = headline(result, latency, &shown.notes);
    pen.text(picture, 0, 0, &headline, colour, PAPER);
}

/// The colour of a group; what is of none has the last one.
fn colour_of(group: Option<usize>) -> Rgb<u8> {
    COLOURS[group.unwrap_or(COLOURS.len() - 1) % COLOURS.len()]
}

fn caption(found: &Found, group: &str) -> String {
    let what = if found.area.label.is_empty() {
        group
    } else {
        &found.area.label
    };
    if found.captions.is_empty() {
        format!("{what} {:.0}%", found.area.score * 100.0)
    } else {
        found.captions.join(" ")
    }
}

fn headline(result: &pb::Result, latency: Duration, notes: &[String]) -> (String, Rgb<u8>) {
    let outcome = result.outcome();
    let mut text = format!("#{} {}", result.number, outcome_word(outcome));
    let served = matches!(outcome, Outcome::Completed | Outcome::Late);
    if served {
        text += &format!(" {:.0} ms", latency.as_secs_f64() * 1e3);
    } else {
        text += &format!(" at {}: {}", result.module, result.reason);
    }
    if result.emulated {
        text += "  emulated";
    }
    for note in notes {
        text += "  ";
        text += note;
    }
    (
        text,
        if outcome == Outcome::Completed {
            GOOD
        } else {
            BAD
        },
    )
}

/// Line width and letter height for one size of picture.
struct Pen {
    line: i64,
    height: RasterHeight,
}

impl Pen {
    fn for_picture(picture: &RgbImage) -> Self {
        let rows = picture.height();
        let height = match rows {
            0..=599 => RasterHeight::Size16,
            600..=1199 => RasterHeight::Size24,
            _ => RasterHeight::Size32,
        };
        Pen {
            line: i64::from(rows / 360).clamp(2, 6),
            height,
        }
    }

    fn frame(&self, picture: &mut RgbImage, area: &pb::Box, colour: Rgb<u8>) {
        let (x0, y0) = (pixel(area.x0), pixel(area.y0));
        let (x1, y1) = (pixel(area.x1), pixel(area.y1));
        let line = self.line;
        fill(picture, x0, y0, x1, y0 + line, colour);
        fill(picture, x0, y1 - line, x1, y1, colour);
        fill(picture, x0, y0, x0 + line, y1, colour);
        fill(picture, x1 - line, y0, x1, y1, colour);
    }

    /// Text above a point, or below it where there is no room, moved left at the right edge.
    fn caption(
        &self,
        picture: &mut RgbImage,
        x: i64,
        y: i64,
        text: &str,
        ink: Rgb<u8>,
        paper: Rgb<u8>,
    ) {
        let height = self.height.val() as i64;
        let width = self.text_width(text);
        let x = x.min(i64::from(picture.width()) - width).max(0);
        // The first row is for the headline.
        let y = if y - height < height {
            y + self.line
        } else {
            y - height
        };
        self.text(picture, x, y, text, ink, paper);
    }

    fn text_width(&self, text: &str) -> i64 {
        let letter = get_raster_width(FontWeight::Bold, self.height);
        (text.chars().count() * letter) as i64 + 4
    }

    fn text(
        &self,
        picture: &mut RgbImage,
        x: i64,
        y: i64,
        text: &str,
        ink: Rgb<u8>,
        paper: Rgb<u8>,
    ) {
        fill(
            picture,
            x,
            y,
            x + self.text_width(text),
            y + self.height.val() as i64,
            paper,
        );
        let mut left = x + 2;
        for letter in text.chars() {
            let raster = get_raster(letter, FontWeight::Bold, self.height)
                .or_else(|| get_raster('?', FontWeight::Bold, self.height));
            let Some(raster) = raster else {
                continue;
            };
            for (row, line) in raster.rows().enumerate() {
                for (column, cover) in line.iter().enumerate() {
                    let point = (left + column as i64, y + row as i64);
                    blend(picture, point, ink, *cover);
                }
            }
            left += raster.width() as i64;
        }
    }
}

/// A server may send any numbers; none is further away than [`shapes::FAR`].
fn pixel(place: f32) -> i64 {
    place.clamp(-shapes::FAR, shapes::FAR) as i64
}

fn fill(picture: &mut RgbImage, x0: i64, y0: i64, x1: i64, y1: i64, colour: Rgb<u8>) {
    let (width, height) = (i64::from(picture.width()), i64::from(picture.height()));
    for y in y0.clamp(0, height)..y1.clamp(0, height) {
        for x in x0.clamp(0, width)..x1.clamp(0, width) {
            picture.put_pixel(x as u32, y as u32, colour);
        }
    }
}

fn blend(picture: &mut RgbImage, (x, y): (i64, i64), ink: Rgb<u8>, cover: u8) {
    let (width, height) = (i64::from(picture.width()), i64::from(picture.height()));
    if cover == 0 || !(0..width).contains(&x) || !(0..height).contains(&y) {
        return;
    }
    let pixel = picture.get_pixel_mut(x as u32, y as u32);
    let cover = u32::from(cover);
    for (under, over) in pixel.0.iter_mut().zip(ink.0) {
        *under = ((u32::from(over) * cover + u32::from(*under) * (255 - cover)) / 255) as u8;
    }
}

#[cfg(test)]
mod tests;
