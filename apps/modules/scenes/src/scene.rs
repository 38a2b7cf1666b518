//! A scene: the positions of vehicles and people at frame `n`, drawn from far to near.
//!
//! Everything follows from the seed and the frame number alone; frames may be asked for in any order.
//! Each lane is an endless belt of slots that moves at the lane's speed; a slot holds a vehicle or
//! nothing. Pavements are belts of people likewise.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::condition::{Camera, Condition};
use crate::geometry::Rect;
use crate::person::{self, Person};
use crate::road::{LANES, View, WALKS, background};
use crate::truth::{GroundTruth, PersonTruth, RgbFrame, VehicleTruth};
use crate::vehicle::Vehicle;

/// What to render.
#[derive(Clone, Debug, PartialEq)]
pub struct SceneConfig {
    /// Equal seeds give equal video.
    pub seed: u64,
    /// Columns of a frame; at least 64.
    pub width: u32,
    /// Rows of a frame; at least 64.
    pub height: u32,
    /// How full the street is, 0 (empty) to 1 (every slot taken).
    pub density: f32,
    /// Light and weather; by the seed when not given.
    pub condition: Option<Condition>,
    /// Share of each neighbour in the blur, 0 to 0.33; by the seed when not given.
    pub blur: Option<f32>,
    /// Standard deviation of the noise in grey levels (about); by the seed when not given.
    pub noise: Option<f32>,
}

impl Default for SceneConfig {
    /// 640x360, half full, light, blur and noise by the seed 1.
    fn default() -> Self {
        SceneConfig {
            seed: 1,
            width: 640,
            height: 360,
            density: 0.5,
            condition: None,
            blur: None,
            noise: None,
        }
    }
}

/// An endless video of one street.
pub struct Scene {
    config: SceneConfig,
    view: View,
    condition: Condition,
    camera: Camera,
    background: Vec<u8>,
    lanes: Vec<Belt>,
    walks: Vec<Belt>,
    /// Vehicles and people near the frame, by belt and slot.
    vehicles: BTreeMap<(usize, i64), Vehicle>,
    people: BTreeMap<(usize, i64), Person>,
}

/// Slots that move along a line.
struct Belt {
    /// Where it lies across the street.
    side: f32,
    /// Towards the camera.
    near: bool,
    /// Reference pixels a frame.
    speed: f32,
    /// Reference pixels a slot.
    slot: f32,
    /// Share of slots that are taken.
    taken: f32,
    seed: u64,
}

/// Frames drawn at once keep at most this many objects of each kind ready: a street holds far fewer.
const MAX_CACHED: usize = 64;

enum Thing {
    Vehicle(usize, i64),
    Person(usize, i64, usize),
}

impl Scene {
    /// A street at random.
    ///
    /// # Panics
    /// When a side of the frame is below 64 pixels.
    pub fn new(config: SceneConfig) -> Self {
        assert!(
            config.width >= 64 && config.height >= 64,
            "a frame of {}x{} is too small: both sides must be at least 64 pixels",
            config.width,
            config.height
        );
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        let view = View::new(config.width, config.height);
        let drawn = Condition::ALL[[0, 0, 0, 1, 1, 2, 2, 3][rng.random_range(0..8)]];
        let condition = config.condition.unwrap_or(drawn);
        let camera = Camera::new(&mut rng, condition, config.blur, config.noise);
        let background = background(&view, &mut rng);
        let density = config.density.clamp(0.0, 1.0);
        let lanes = LANES
            .iter()
            .enumerate()
            .map(|(i, side)| Belt {
                side: *side,
                near: i != 0,
                speed: rng.random_range(2.2..5.5),
                slot: rng.random_range(182.0..205.0),
                taken: density,
                seed: rng.random(),
            })
            .collect();
        let walks = WALKS
            .iter()
            .map(|side| Belt {
                side: *side,
                near: rng.random_bool(0.5),
                speed: rng.random_range(0.6..1.5),
                slot: rng.random_range(120.0..150.0),
                taken: density * 0.8,
                seed: rng.random(),
            })
            .collect();
        Scene {
            config,
            view,
            condition,
            camera,
            background,
            lanes,
            walks,
            vehicles: BTreeMap::new(),
            people: BTreeMap::new(),
        }
    }

    /// What it was made from.
    pub fn config(&self) -> &SceneConfig {
        &self.config
    }

    /// Its light and weather.
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// Frame `n` of the video, meant for 25 frames a second, and what is in it.
    pub fn frame(&mut self, n: u64) -> (RgbFrame, GroundTruth) {
        let mut things = self.things(n);
        things.sort_by(|a, b| a.1.y1.total_cmp(&b.1.y1));
        let mut rgb = self.background.clone();
        let mut lights = Vec::new();
        for (thing, place) in &things {
            match thing {
                Thing::Vehicle(lane, slot) => {
                    let vehicle = &self.vehicles[&(*lane, *slot)];
                    let shadow = place.part(-0.04, 0.9, 1.08, 1.03);
                    darken(&mut rgb, self.view.width as usize, shadow);
                    vehicle
                        .sprite
                        .blend(&mut rgb, self.view.width as usize, *place);
                    if self.condition.lights_on() {
                        let (y, half) = (vehicle.light_y, 0.06);
                        for x in [0.125, 0.875] {
                            let lamp = place.part(x - half, y - half, x + half, y + half);
                            lights.push((lamp, vehicle.rear));
                        }
                    }
                }
                Thing::Person(walk, slot, pose) => {
                    let shadow = place.part(0.0, 0.96, 1.1, 1.02);
                    darken(&mut rgb, self.view.width as usize, shadow);
                    let person = &self.people[&(*walk, *slot)];
                    person.poses[*pose].blend(&mut rgb, self.view.width as usize, *place);
                }
            }
        }
        self.camera
            .expose(&mut rgb, self.view.width as usize, n, &lights);
        let truth = self.truth(n, &things);
        (
            RgbFrame {
                width: self.view.width,
                height: self.view.height,
                rgb,
            },
            truth,
        )
    }

    /// All that is in frame `n`, with its box.
    fn things(&mut self, n: u64) -> Vec<(Thing, Rect)> {
        let mut things = Vec::new();
        if self.vehicles.len() > MAX_CACHED {
            self.vehicles.clear();
        }
        if self.people.len() > MAX_CACHED {
            self.people.clear();
        }
        for (lane, belt) in self.lanes.iter().enumerate() {
            for (slot, y, mut rng) in belt.taken_slots(n, &self.view) {
                let vehicle = self
                    .vehicles
                    .entry((lane, slot))
                    .or_insert_with(|| Vehicle::random(&mut rng, !belt.near));
                let width = vehicle.kind.width();
                let side = belt.side + ((slot & 7) as f32 - 3.5) * 0.006;
                let place = self
                    .view
                    .place(side, y, width, width * vehicle.kind.aspect());
                things.push((Thing::Vehicle(lane, slot), place));
            }
        }
        for (walk, belt) in self.walks.iter().enumerate() {
            for (slot, y, mut rng) in belt.taken_slots(n, &self.view) {
                self.people
                    .entry((walk, slot))
                    .or_insert_with(|| Person::random(&mut rng));
                let phase = (slot.rem_euclid(16)) as f32;
                let sway = ((n as f32) * 0.05 + phase).sin() * 0.012;
                let size = 0.92 + 0.02 * (slot & 7) as f32;
                let place = self.view.place(
                    belt.side + sway,
                    y,
                    person::HEIGHT * person::ASPECT * size,
                    person::HEIGHT * size,
                );
                let pose = ((n / 5) as i64 + slot).rem_euclid(person::N_POSES as i64) as usize;
                things.push((Thing::Person(walk, slot, pose), place));
            }
        }
        let frame = Rect::new(0.0, 0.0, self.view.width as f32, self.view.height as f32);
        things.retain(|(_, place)| place.intersection(&frame).area() > 4.0);
        things
    }

    fn truth(&self, n: u64, things: &[(Thing, Rect)]) -> GroundTruth {
        let (width, height) = (self.view.width, self.view.height);
        let mut vehicles = Vec::new();
        let mut people = Vec::new();
        for (i, (thing, place)) in things.iter().enumerate() {
            let nearer = &things[i + 1..];
            // Nearer things seldom overlap each other: the sum of what they cover is close enough.
            let seen = |r: &Rect| {
                let covered: f32 = nearer.iter().map(|(_, p)| p.intersection(r).area()).sum();
                ((r.clipped(width, height).area() - covered) / r.area()).clamp(0.0, 1.0)
            };
            match thing {
                Thing::Vehicle(lane, slot) => {
                    let vehicle = &self.vehicles[&(*lane, *slot)];
                    let [x0, y0, x1, y1] = vehicle.plate_part;
                    let plate_box = place.part(x0, y0, x1, y1);
                    vehicles.push(VehicleTruth {
                        track: track(*lane, *slot),
                        bbox: place.clipped(width, height),
                        kind: vehicle.kind,
                        plate: vehicle.plate.clone(),
                        plate_box,
                        plate_visible: seen(&plate_box) > 0.99,
                        visible: seen(place),
                    });
                }
                Thing::Person(walk, slot, _) => {
                    let [x0, y0, x1, y1] = person::FACE;
                    let face_box = place.part(x0, y0, x1, y1);
                    people.push(PersonTruth {
                        track: track(LANES.len() + *walk, *slot),
                        bbox: place.clipped(width, height),
                        identity: self.people[&(*walk, *slot)].identity,
                        face_box,
                        face_visible: seen(&face_box) > 0.99,
                        visible: seen(place),
                    });
                }
            }
        }
        GroundTruth {
            frame: n,
            condition: self.condition,
            vehicles,
            people,
        }
    }
}

impl Belt {
    /// Taken slots that may be in frame `n`: number, lower edge in pixels, generator of what is in it.
    fn taken_slots(&self, n: u64, view: &View) -> Vec<(i64, f32, ChaCha8Rng)> {
        let length = f64::from(view.height as f32 / view.unit);
        let moved = f64::from(self.speed) * n as f64;
        let slot = f64::from(self.slot);
        // Things enter wholly outside: a truck is 160 reference pixels high.
        let (from, to) = (-20.0, length + 180.0);
        let first = ((from - moved) / slot).floor() as i64 - 1;
        let last = ((to - moved) / slot).ceil() as i64 + 1;
        (first..=last)
            .filter_map(|k| {
                let mut rng = ChaCha8Rng::seed_from_u64(
                    self.seed ^ (k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                );
                let taken = rng.random::<f32>() < self.taken;
                let jitter: f64 = rng.random_range(-9.0..9.0);
                let along = k as f64 * slot + jitter + moved;
                let y = if self.near {
                    along
                } else {
                    length + 170.0 - along
                };
                (taken && (from..to).contains(&y)).then_some((k, y as f32 * view.unit, rng))
            })
            .collect()
    }
}

/// One number for a belt and a slot.
fn track(belt: usize, slot: i64) -> u64 {
    (slot as u64).wrapping_mul(16).wrapping_add(belt as u64)
}

fn darken(rgb: &mut [u8], width: usize, r: Rect) {
    let height = rgb.len() / 3 / width;
    let r = r.clipped(width as u32, height as u32);
    if r.area() <= 0.0 {
        return;
    }
    for y in r.y0 as usize..r.y1 as usize {
        let row = &mut rgb[(y * width + r.x0 as usize) * 3..(y * width + r.x1 as usize) * 3];
        for v in row {
            *v = (u16::from(*v) * 5 / 8) as u8;
        }
    }
}
