//! The street without its traffic: geometry of the lanes and pavements, and the picture behind all that
//! moves, with clutter that is neither vehicle nor person.
//!
//! The camera hangs over the road: vehicles come towards it or drive away from it. Sizes are those of a
//! frame 640x360; `unit` scales them.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::font::ALPHABET;
use crate::geometry::Rect;
use crate::sprite::{Canvas, Color, shaded};

/// Height of the frame that all sizes refer to.
pub(crate) const REFERENCE_HEIGHT: f32 = 360.0;
const REFERENCE_WIDTH: f32 = 640.0;
/// Size of things at the far edge; at the near edge it is 1.
const FAR: f32 = 0.68;
/// Half of the road at the near edge, as a share of the frame's width.
const ROAD_HALF: f32 = 0.335;

/// Where things are in the frame.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Pixels of this frame for a pixel of the reference frame.
    pub(crate) unit: f32,
    centre: f32,
}

impl View {
    pub(crate) fn new(width: u32, height: u32) -> Self {
        let unit = (width as f32 / REFERENCE_WIDTH).min(height as f32 / REFERENCE_HEIGHT);
        View {
            width,
            height,
            unit,
            centre: width as f32 * 0.5,
        }
    }

    /// How large things are whose lower edge is at `y`.
    pub(crate) fn scale(&self, y: f32) -> f32 {
        FAR + (1.0 - FAR) * y / self.height as f32
    }

    /// Column of a line along the road that is at `side` (-1 to 1 is the frame at its near edge).
    pub(crate) fn column(&self, side: f32, y: f32) -> f32 {
        self.centre + side * self.width as f32 * 0.5 * self.scale(y)
    }

    /// The box of a thing that stands at (`side`, `y`), `width` wide and `height` high at the near edge of
    /// the reference frame.
    pub(crate) fn place(&self, side: f32, y: f32, width: f32, height: f32) -> Rect {
        let size = self.scale(y) * self.unit;
        let x = self.column(side, y);
        Rect::new(
            x - width * size / 2.0,
            y - height * size,
            x + width * size / 2.0,
            y,
        )
    }
}

/// Sides of the three lanes, from the left.
pub(crate) const LANES: [f32; 3] = [-0.445, 0.0, 0.445];
/// Sides of the tracks on which people walk.
pub(crate) const WALKS: [f32; 4] = [-0.93, -0.77, 0.77, 0.93];

/// The picture behind the traffic, RGB.
pub(crate) fn background(view: &View, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let (w, h) = (view.width as f32, view.height as f32);
    let mut canvas = Canvas::new(w, h, 2.0);
    let all = Rect::new(0.0, 0.0, w, h);
    let paving: Color = [
        rng.random_range(120..190),
        rng.random_range(120..185),
        rng.random_range(110..180),
    ];
    canvas.rect(all, paving);
    tiles(
        &mut canvas,
        view,
        shaded(paving, 0.86),
        rng.random_range(14.0..30.0),
    );
    let asphalt: u8 = rng.random_range(62..104);
    let edge = |side: f32| {
        (
            (view.column(-side, 0.0), view.column(side, 0.0)),
            (view.column(-side, h), view.column(side, h)),
        )
    };
    let (top, bottom) = edge(2.0 * ROAD_HALF + 0.025);
    canvas.trapezoid((0.0, h), top, bottom, shaded(paving, 1.25));
    let (top, bottom) = edge(2.0 * ROAD_HALF);
    canvas.trapezoid((0.0, h), top, bottom, [asphalt, asphalt, asphalt + 4]);
    patches(&mut canvas, view, asphalt, rng);
    markings(&mut canvas, view, rng.random_bool(0.5));
    for _ in 0..rng.random_range(4..14) {
        clutter(&mut canvas, view, rng);
    }
    // Shadows of trees and buildings.
    for _ in 0..rng.random_range(0..5) {
        let (x, y) = (rng.random_range(0.0..w), rng.random_range(0.0..h));
        let r = rng.random_range(30.0..140.0) * view.unit;
        let alpha = rng.random_range(0.1..0.35);
        canvas.haze(
            Rect::new(x - r, y - r * 0.6, x + r, y + r * 0.6),
            [12, 14, 22],
            alpha,
        );
    }
    let mut rgb = canvas.into_sprite().opaque_at_half();
    for v in rgb.chunks_exact_mut(3) {
        let grain = rng.random_range(-6i8..=6);
        for c in v {
            *c = c.saturating_add_signed(grain);
        }
    }
    rgb
}

fn tiles(canvas: &mut Canvas, view: &View, color: Color, size: f32) {
    let (w, h) = (view.width as f32, view.height as f32);
    let step = size * view.unit;
    let line = (0.8 * view.unit).max(0.5);
    let mut y = 0.0;
    while y < h {
        canvas.rect(Rect::new(0.0, y, w, y + line), color);
        y += step * view.scale(y);
    }
    let mut x = 0.0;
    while x < w {
        canvas.rect(Rect::new(x, 0.0, x + line, h), color);
        x += step;
    }
}

fn patches(canvas: &mut Canvas, view: &View, asphalt: u8, rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(3..10) {
        let y = rng.random_range(0.0..view.height as f32);
        let side = rng.random_range(-0.55..0.55);
        let r = view.place(
            side,
            y,
            rng.random_range(10.0..90.0),
            rng.random_range(6.0..70.0),
        );
        let grey = asphalt.saturating_add_signed(rng.random_range(-18..18));
        match rng.random_range(0..3) {
            0 => canvas.veil(r, [grey, grey, grey], 0.8),
            1 => canvas.haze(r, [20, 20, 22], 0.35),
            _ => {
                // A manhole cover.
                let r = view.place(side, y, 26.0, 16.0);
                canvas.ellipse(r, [44, 42, 40]);
                canvas.ellipse(r.part(0.12, 0.12, 0.88, 0.88), [70, 66, 62]);
            }
        }
    }
}

fn markings(canvas: &mut Canvas, view: &View, zebra: bool) {
    let h = view.height as f32;
    for side in [-0.2225, 0.2225] {
        let mut y = 10.0 * view.unit;
        while y < h {
            let r = view.place(side, y, 6.0, 26.0);
            canvas.rect(r, [206, 206, 200]);
            y += 56.0 * view.unit;
        }
    }
    for side in [-0.64, 0.64] {
        let mut y = 0.0;
        while y < h + 4.0 {
            canvas.rect(view.place(side, y, 5.0, 5.0), [206, 200, 150]);
            y += 3.0 * view.unit;
        }
    }
    if zebra {
        let y = 0.55 * h;
        let mut side = -0.6;
        while side < 0.62 {
            canvas.rect(view.place(side, y, 18.0, 40.0), [196, 196, 192]);
            side += 0.12;
        }
    }
}

/// Something on the pavement, and at times on the road, that a detector should leave alone.
fn clutter(canvas: &mut Canvas, view: &View, rng: &mut ChaCha8Rng) {
    let y = rng.random_range(0.1..1.0) * view.height as f32;
    let sign = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
    let side = sign * rng.random_range(0.72..1.2);
    let color: Color = [
        rng.random_range(20..235),
        rng.random_range(20..235),
        rng.random_range(20..235),
    ];
    match rng.random_range(0..7) {
        0 => {
            // A litter bin.
            let r = view.place(side, y, 22.0, 34.0);
            canvas.rounded(r, 3.0 * view.unit, color);
            canvas.rect(r.part(0.1, 0.1, 0.9, 0.25), [24, 24, 24]);
        }
        1 => {
            // A lamp post.
            let r = view.place(side, y, 14.0, 110.0);
            canvas.rect(r.part(0.4, 0.05, 0.6, 1.0), [70, 74, 76]);
            canvas.ellipse(r.part(0.0, 0.0, 1.0, 0.12), [230, 226, 200]);
        }
        2 => {
            // A bush.
            let r = view.place(side, y, 50.0, 44.0);
            let green = [rng.random_range(30..80), rng.random_range(90..150), 50];
            canvas.ellipse(r, green);
            canvas.ellipse(r.part(0.1, 0.05, 0.6, 0.5), shaded(green, 1.25));
            canvas.ellipse(r.part(0.4, 0.3, 0.9, 0.8), shaded(green, 0.8));
        }
        3 => {
            // A sign with a text that is no plate.
            let r = view.place(side, y, 46.0, 64.0);
            canvas.rect(r.part(0.45, 0.4, 0.55, 1.0), [80, 80, 84]);
            canvas.rounded(r.part(0.0, 0.0, 1.0, 0.45), 3.0, color);
            let letters = ALPHABET.as_bytes();
            let text: String = (0..4)
                .map(|_| char::from(letters[rng.random_range(0..letters.len())]))
                .collect();
            canvas.text(r.part(0.1, 0.1, 0.9, 0.32), &text, [244, 244, 244]);
        }
        4 => {
            // A round sign: a disc on a post, not a head on a body.
            let r = view.place(side, y, 28.0, 84.0);
            canvas.rect(r.part(0.45, 0.2, 0.55, 1.0), [90, 90, 94]);
            canvas.ellipse(r.part(0.0, 0.0, 1.0, 0.33), [200, 30, 34]);
            canvas.ellipse(r.part(0.2, 0.07, 0.8, 0.26), [240, 240, 240]);
        }
        5 => {
            // A crate.
            let r = view.place(
                side,
                y,
                rng.random_range(24.0..60.0),
                rng.random_range(18.0..40.0),
            );
            canvas.rect(r, color);
            canvas.rect(r.part(0.0, 0.0, 1.0, 0.2), shaded(color, 1.2));
            canvas.rect(r.part(0.48, 0.2, 0.52, 1.0), shaded(color, 0.7));
        }
        _ => {
            // A cone or a barrier on the road's edge.
            let r = view.place(sign * 0.62, y, 20.0, 30.0);
            canvas.trapezoid(
                (r.y0, r.y1),
                (r.part(0.4, 0.0, 0.6, 1.0).x0, r.part(0.4, 0.0, 0.6, 1.0).x1),
                (r.x0, r.x1),
                [236, 104, 24],
            );
            canvas.rect(r.part(0.25, 0.5, 0.75, 0.65), [240, 240, 240]);
        }
    }
}
