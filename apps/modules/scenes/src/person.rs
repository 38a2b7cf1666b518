//! The look of a person. A face belongs to one of [`IDENTITIES`]; clothes are drawn at random, so that only the face
//! identifies the person.

use rand::Rng;

use crate::geometry::Rect;
use crate::sprite::{Canvas, Color, Sprite, shaded};

/// Names of the people that walk through scenes; an identity is an index into it.
pub const IDENTITIES: [&str; 8] = [
    "ada", "bruno", "chen", "dora", "emil", "fatou", "goro", "hana",
];

/// Height of a person at the near edge of a frame 360 pixels high.
pub(crate) const HEIGHT: f32 = 96.0;
/// Width as a share of the height.
pub(crate) const ASPECT: f32 = 0.42;
/// Where the face is, in fractions of the box.
pub(crate) const FACE: [f32; 4] = [0.14, 0.02, 0.86, 0.36];
/// Poses of a walk.
pub(crate) const N_POSES: usize = 4;

const SPRITE_HEIGHT: f32 = 256.0;

/// One person, ready to be drawn in each pose.
pub(crate) struct Person {
    pub(crate) identity: usize,
    pub(crate) poses: Vec<Sprite>,
}

#[derive(Clone, Copy, PartialEq)]
enum Hair {
    Short,
    Long,
    Bald,
    Bun,
    Cap,
    Curly,
}

struct Look {
    skin: Color,
    hair: Color,
    style: Hair,
    glasses: bool,
    beard: bool,
}

#[rustfmt::skip]
const LOOKS: [Look; 8] = [
    Look { skin: [240, 200, 170], hair: [198, 84, 30], style: Hair::Long, glasses: false, beard: false },
    Look { skin: [226, 178, 140], hair: [40, 28, 22], style: Hair::Short, glasses: false, beard: true },
    Look { skin: [238, 204, 158], hair: [16, 16, 20], style: Hair::Short, glasses: true, beard: false },
    Look { skin: [244, 212, 186], hair: [232, 200, 96], style: Hair::Bun, glasses: false, beard: false },
    Look { skin: [236, 190, 160], hair: [180, 180, 184], style: Hair::Bald, glasses: true, beard: true },
    Look { skin: [112, 70, 46], hair: [24, 18, 16], style: Hair::Curly, glasses: false, beard: false },
    Look { skin: [206, 156, 110], hair: [30, 90, 170], style: Hair::Cap, glasses: false, beard: false },
    Look { skin: [140, 92, 62], hair: [20, 16, 18], style: Hair::Long, glasses: true, beard: false },
];

const CLOTHES: [Color; 10] = [
    [180, 40, 50],
    [40, 70, 140],
    [60, 120, 70],
    [230, 226, 214],
    [40, 40, 46],
    [214, 160, 50],
    [120, 70, 130],
    [90, 150, 180],
    [128, 100, 76],
    [220, 120, 130],
];

impl Person {
    /// A person at random.
    pub(crate) fn random(rng: &mut impl Rng) -> Self {
        let identity = rng.random_range(0..IDENTITIES.len());
        let top = CLOTHES[rng.random_range(0..CLOTHES.len())];
        let legs = shaded(CLOTHES[rng.random_range(0..CLOTHES.len())], 0.7);
        let poses = (0..N_POSES)
            .map(|pose| {
                let mut canvas = Canvas::new(ASPECT, 1.0, SPRITE_HEIGHT);
                draw_body(&mut canvas, top, legs, pose, LOOKS[identity].skin);
                draw_head(&mut canvas, &LOOKS[identity]);
                canvas.into_sprite()
            })
            .collect();
        Person { identity, poses }
    }
}

fn draw_body(canvas: &mut Canvas, top: Color, legs: Color, pose: usize, skin: Color) {
    // The left and the right foot rise in turn.
    let lift = [0.0, 0.05, 0.0, -0.05][pose];
    let (left, right) = (0.985 - f32::max(lift, 0.0), 0.985 + f32::min(lift, 0.0));
    canvas.rounded(Rect::new(0.115, 0.6, 0.2, left), 0.03, legs);
    canvas.rounded(Rect::new(0.22, 0.6, 0.305, right), 0.03, shaded(legs, 0.9));
    canvas.rounded(
        Rect::new(0.1, left - 0.03, 0.2, left + 0.015),
        0.02,
        [26, 24, 24],
    );
    canvas.rounded(
        Rect::new(0.22, right - 0.03, 0.32, right + 0.015),
        0.02,
        [26, 24, 24],
    );
    // Arms swing against the legs.
    canvas.rounded(
        Rect::new(0.02, 0.38, 0.1, 0.62 - lift),
        0.035,
        shaded(top, 0.85),
    );
    canvas.rounded(
        Rect::new(0.32, 0.38, 0.4, 0.62 + lift),
        0.035,
        shaded(top, 0.85),
    );
    canvas.ellipse(Rect::new(0.025, 0.59 - lift, 0.095, 0.65 - lift), skin);
    canvas.ellipse(Rect::new(0.325, 0.59 + lift, 0.395, 0.65 + lift), skin);
    canvas.rounded(Rect::new(0.075, 0.35, 0.345, 0.68), 0.07, top);
    canvas.rect(Rect::new(0.18, 0.3, 0.24, 0.37), shaded(skin, 0.85));
}

fn draw_head(canvas: &mut Canvas, look: &Look) {
    let head = Rect::new(0.08, 0.03, 0.34, 0.34);
    let hair = look.hair;
    match look.style {
        Hair::Long => canvas.rounded(Rect::new(0.055, 0.0, 0.365, 0.4), 0.12, hair),
        Hair::Bun => {
            canvas.ellipse(Rect::new(0.14, 0.0, 0.28, 0.1), hair);
            canvas.ellipse(Rect::new(0.07, 0.025, 0.35, 0.28), hair);
        }
        Hair::Curly => {
            canvas.ellipse(Rect::new(0.04, 0.0, 0.38, 0.27), hair);
            canvas.ellipse(Rect::new(0.02, 0.08, 0.16, 0.26), hair);
            canvas.ellipse(Rect::new(0.26, 0.08, 0.4, 0.26), hair);
        }
        Hair::Short => canvas.ellipse(Rect::new(0.07, 0.0, 0.35, 0.28), hair),
        Hair::Bald | Hair::Cap => {}
    }
    // Ears, then the face.
    canvas.ellipse(Rect::new(0.06, 0.16, 0.11, 0.24), shaded(look.skin, 0.88));
    canvas.ellipse(Rect::new(0.31, 0.16, 0.36, 0.24), shaded(look.skin, 0.88));
    let face_top = if matches!(look.style, Hair::Bald) {
        0.0
    } else {
        0.06
    };
    canvas.ellipse(Rect::new(head.x0, face_top, head.x1, head.y1), look.skin);
    match look.style {
        Hair::Short | Hair::Long => {
            canvas.trapezoid((0.03, 0.105), (0.13, 0.29), (0.095, 0.325), hair);
        }
        Hair::Cap => {
            canvas.rounded(Rect::new(0.075, 0.0, 0.345, 0.12), 0.07, hair);
            canvas.rounded(Rect::new(0.06, 0.1, 0.36, 0.135), 0.015, shaded(hair, 0.7));
        }
        Hair::Bald | Hair::Bun | Hair::Curly => {}
    }
    if look.beard {
        canvas.trapezoid((0.24, 0.335), (0.09, 0.33), (0.15, 0.27), hair);
        canvas.ellipse(Rect::new(0.15, 0.23, 0.27, 0.28), hair);
    }
    for x in [0.155, 0.265] {
        canvas.ellipse(
            Rect::new(x - 0.025, 0.165, x + 0.025, 0.205),
            [250, 250, 250],
        );
        canvas.ellipse(Rect::new(x - 0.013, 0.17, x + 0.013, 0.203), [30, 26, 24]);
    }
    if look.glasses {
        for x in [0.15, 0.27] {
            let rim = Rect::new(x - 0.047, 0.15, x + 0.047, 0.225);
            canvas.ellipse(rim, [20, 20, 24]);
            canvas.ellipse(rim.part(0.16, 0.16, 0.84, 0.84), [196, 216, 226]);
            canvas.ellipse(Rect::new(x - 0.012, 0.172, x + 0.012, 0.204), [30, 26, 24]);
        }
        canvas.rect(Rect::new(0.19, 0.178, 0.23, 0.19), [20, 20, 24]);
    }
    canvas.ellipse(Rect::new(0.195, 0.2, 0.225, 0.245), shaded(look.skin, 0.8));
    canvas.ellipse(Rect::new(0.165, 0.26, 0.255, 0.29), [176, 62, 62]);
}
