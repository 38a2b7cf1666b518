//! The look of a vehicle: its kind, colour and number plate, seen from the front or from behind.

use rand::Rng;

use crate::font::{ALPHABET, GLYPH_WIDTH};
use crate::geometry::Rect;
use crate::sprite::{Canvas, Color, Sprite, shaded};

/// Letters on a plate: three of A to Z, then three of 0 to 9.
pub const PLATE_LEN: usize = 6;

/// Pixels that a sprite is wide.
const SPRITE_WIDTH: f32 = 256.0;
/// Width of a plate as a share of the vehicle's.
const PLATE_WIDTH: f32 = 0.6;
/// Height of a plate as a share of its own width.
const PLATE_ASPECT: f32 = 0.27;

/// Kinds of vehicles. The detector calls all of them `vehicle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VehicleKind {
    /// A low car.
    Car,
    /// A tall van.
    Van,
    /// A truck with a cargo box.
    Truck,
}

impl VehicleKind {
    /// All kinds, in the order of their class ordinals.
    pub const ALL: [VehicleKind; 3] = [VehicleKind::Car, VehicleKind::Van, VehicleKind::Truck];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            VehicleKind::Car => "car",
            VehicleKind::Van => "van",
            VehicleKind::Truck => "truck",
        }
    }

    /// Width at the near edge of a frame 360 pixels high.
    pub(crate) fn width(self) -> f32 {
        match self {
            VehicleKind::Car => 106.0,
            VehicleKind::Van => 112.0,
            VehicleKind::Truck => 120.0,
        }
    }

    /// Height as a share of the width.
    pub(crate) fn aspect(self) -> f32 {
        match self {
            VehicleKind::Car => 0.88,
            VehicleKind::Van => 1.1,
            VehicleKind::Truck => 1.32,
        }
    }
}

/// One vehicle, ready to be drawn.
pub(crate) struct Vehicle {
    pub(crate) kind: VehicleKind,
    pub(crate) plate: String,
    /// Where the plate is, in fractions of the vehicle's box.
    pub(crate) plate_part: [f32; 4],
    /// Where its lights are, in fractions of the box.
    pub(crate) light_y: f32,
    pub(crate) rear: bool,
    pub(crate) sprite: Sprite,
}

const PAINTS: [Color; 12] = [
    [196, 32, 38],
    [28, 66, 150],
    [230, 232, 235],
    [34, 36, 40],
    [140, 146, 152],
    [18, 96, 62],
    [236, 190, 36],
    [96, 30, 84],
    [70, 130, 190],
    [178, 110, 52],
    [238, 226, 196],
    [220, 96, 24],
];

impl Vehicle {
    /// A vehicle at random.
    pub(crate) fn random(rng: &mut impl Rng, rear: bool) -> Self {
        let kind = match rng.random_range(0..10) {
            0..6 => VehicleKind::Car,
            6..8 => VehicleKind::Van,
            _ => VehicleKind::Truck,
        };
        let plate = random_plate(rng);
        let h = kind.aspect();
        let paint = shaded(
            PAINTS[rng.random_range(0..PAINTS.len())],
            rng.random_range(0.8..1.15),
        );
        let mut canvas = Canvas::new(1.0, h, SPRITE_WIDTH);
        let light_y = match kind {
            VehicleKind::Car => draw_car(&mut canvas, h, paint, rear),
            VehicleKind::Van => draw_van(&mut canvas, h, paint, rear),
            VehicleKind::Truck => {
                let cargo = shaded(PAINTS[rng.random_range(0..PAINTS.len())], 1.0);
                draw_truck(&mut canvas, h, paint, cargo, rear)
            }
        };
        // The plate sits low, within what the text reader looks at.
        let centre_x = 0.5 + rng.random_range(-0.03..0.03);
        let plate_height = PLATE_WIDTH * PLATE_ASPECT;
        let centre_y = h - 0.06 - plate_height / 2.0 - rng.random_range(0.03..0.1);
        let plate_box = Rect::new(
            centre_x - PLATE_WIDTH / 2.0,
            centre_y - plate_height / 2.0,
            centre_x + PLATE_WIDTH / 2.0,
            centre_y + plate_height / 2.0,
        );
        draw_plate(&mut canvas, plate_box, &plate, rear && rng.random_bool(0.5));
        Vehicle {
            kind,
            plate,
            plate_part: [
                plate_box.x0,
                plate_box.y0 / h,
                plate_box.x1,
                plate_box.y1 / h,
            ],
            light_y: light_y / h,
            rear,
            sprite: canvas.into_sprite(),
        }
    }
}

fn random_plate(rng: &mut impl Rng) -> String {
    let letters = ALPHABET.as_bytes();
    (0..PLATE_LEN)
        .map(|i| {
            let range = if i < 3 { 0..26 } else { 26..36 };
            char::from(letters[rng.random_range(range)])
        })
        .collect()
}

fn draw_plate(canvas: &mut Canvas, r: Rect, text: &str, yellow: bool) {
    let ground = if yellow {
        [240, 206, 60]
    } else {
        [240, 242, 240]
    };
    canvas.rounded(r, 0.012, [24, 24, 26]);
    let inner = r.part(0.015, 0.06, 0.985, 0.94);
    canvas.rounded(inner, 0.01, ground);
    for (part, letters) in GROUPS.iter().zip([&text[..3], &text[3..]]) {
        canvas.text(
            r.part(part.0, LETTERS_Y.0, part.1, LETTERS_Y.1),
            letters,
            [14, 14, 18],
        );
    }
}

/// Left and right end of the two groups of three letters, in fractions of the plate's width.
const GROUPS: [(f32, f32); 2] = [(0.05, 0.48), (0.52, 0.95)];
/// Upper and lower end of the letters, in fractions of the plate's height.
const LETTERS_Y: (f32, f32) = (0.15, 0.85);

/// Box of letter `idx` (0 to 5) of the plate that fills `plate`.
pub(crate) fn letter_box(plate: &Rect, idx: usize) -> Rect {
    let (x0, x1) = GROUPS[idx / 3];
    // Three glyphs with one column between them.
    let unit = (x1 - x0) / (3 * (GLYPH_WIDTH + 1) - 1) as f32;
    let left = x0 + (idx % 3 * (GLYPH_WIDTH + 1)) as f32 * unit;
    plate.part(
        left,
        LETTERS_Y.0,
        left + GLYPH_WIDTH as f32 * unit,
        LETTERS_Y.1,
    )
}

const TYRE: Color = [22, 22, 24];
const GLASS: Color = [44, 58, 74];
const GLINT: Color = [120, 146, 168];

fn draw_wheels(canvas: &mut Canvas, h: f32) {
    canvas.rounded(Rect::new(0.06, h - 0.18, 0.24, h), 0.04, TYRE);
    canvas.rounded(Rect::new(0.76, h - 0.18, 0.94, h), 0.04, TYRE);
    canvas.veil(Rect::new(0.2, h - 0.06, 0.8, h - 0.01), [10, 10, 12], 0.7);
}

fn draw_lights(canvas: &mut Canvas, y: f32, rear: bool) {
    let color = if rear { [208, 26, 30] } else { [250, 246, 222] };
    for (x0, x1) in [(0.05, 0.2), (0.8, 0.95)] {
        canvas.rounded(
            Rect::new(x0, y - 0.045, x1, y + 0.045),
            0.03,
            shaded(color, 0.7),
        );
        canvas.ellipse(Rect::new(x0 + 0.02, y - 0.035, x1 - 0.02, y + 0.035), color);
    }
}

/// Draws it and returns the height of the lights.
fn draw_car(canvas: &mut Canvas, h: f32, paint: Color, rear: bool) -> f32 {
    draw_wheels(canvas, h);
    canvas.trapezoid((0.0, 0.36), (0.22, 0.78), (0.1, 0.9), shaded(paint, 0.82));
    canvas.trapezoid((0.05, 0.32), (0.25, 0.75), (0.16, 0.84), GLASS);
    canvas.trapezoid((0.05, 0.32), (0.33, 0.42), (0.25, 0.36), GLINT);
    canvas.rounded(Rect::new(0.0, 0.3, 1.0, h - 0.07), 0.09, paint);
    canvas.rounded(Rect::new(0.04, 0.33, 0.96, 0.4), 0.03, shaded(paint, 1.2));
    // Mirrors.
    canvas.rounded(Rect::new(0.0, 0.24, 0.1, 0.31), 0.02, shaded(paint, 0.7));
    canvas.rounded(Rect::new(0.9, 0.24, 1.0, 0.31), 0.02, shaded(paint, 0.7));
    let y = 0.47;
    draw_lights(canvas, y, rear);
    if !rear {
        canvas.rounded(
            Rect::new(0.26, y - 0.035, 0.74, y + 0.035),
            0.02,
            [30, 30, 34],
        );
    }
    canvas.rect(
        Rect::new(0.03, h - 0.13, 0.97, h - 0.09),
        shaded(paint, 0.6),
    );
    y
}

fn draw_van(canvas: &mut Canvas, h: f32, paint: Color, rear: bool) -> f32 {
    draw_wheels(canvas, h);
    canvas.rounded(Rect::new(0.02, 0.0, 0.98, h - 0.07), 0.08, paint);
    canvas.rounded(Rect::new(0.06, 0.02, 0.94, 0.08), 0.03, shaded(paint, 1.15));
    if rear {
        for (x0, x1) in [(0.1, 0.48), (0.52, 0.9)] {
            canvas.rounded(Rect::new(x0, 0.14, x1, 0.44), 0.03, GLASS);
        }
        canvas.rect(Rect::new(0.495, 0.06, 0.505, h - 0.2), shaded(paint, 0.5));
    } else {
        canvas.trapezoid((0.12, 0.46), (0.1, 0.9), (0.07, 0.93), GLASS);
        canvas.trapezoid((0.12, 0.46), (0.2, 0.32), (0.12, 0.26), GLINT);
    }
    let y = h - 0.45;
    draw_lights(canvas, y, rear);
    if !rear {
        canvas.rounded(
            Rect::new(0.28, y - 0.03, 0.72, y + 0.03),
            0.02,
            [36, 36, 40],
        );
    }
    canvas.rect(
        Rect::new(0.02, h - 0.13, 0.98, h - 0.08),
        shaded(paint, 0.55),
    );
    y
}

fn draw_truck(canvas: &mut Canvas, h: f32, paint: Color, cargo: Color, rear: bool) -> f32 {
    draw_wheels(canvas, h);
    if rear {
        canvas.rect(Rect::new(0.0, 0.0, 1.0, h - 0.36), cargo);
        canvas.rect(Rect::new(0.49, 0.02, 0.51, h - 0.38), shaded(cargo, 0.6));
        canvas.rect(Rect::new(0.0, 0.0, 1.0, 0.03), shaded(cargo, 0.7));
        canvas.rect(Rect::new(0.3, 0.3, 0.34, h - 0.45), shaded(cargo, 0.75));
        canvas.rect(Rect::new(0.66, 0.3, 0.7, h - 0.45), shaded(cargo, 0.75));
        canvas.rect(Rect::new(0.02, h - 0.37, 0.98, h - 0.08), [46, 46, 50]);
    } else {
        canvas.rect(Rect::new(0.0, 0.0, 1.0, 0.5), cargo);
        canvas.rect(Rect::new(0.0, 0.0, 1.0, 0.03), shaded(cargo, 0.7));
        canvas.rounded(Rect::new(0.05, 0.3, 0.95, h - 0.07), 0.06, paint);
        canvas.trapezoid((0.38, 0.68), (0.12, 0.88), (0.09, 0.91), GLASS);
        canvas.trapezoid((0.38, 0.68), (0.2, 0.3), (0.13, 0.25), GLINT);
        canvas.rect(Rect::new(0.2, 0.74, 0.8, 0.86), shaded(paint, 0.5));
    }
    let y = h - 0.4;
    draw_lights(canvas, y, rear);
    y
}
