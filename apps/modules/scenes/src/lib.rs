//! Synthetic road video with exact ground truth: vehicles with readable number plates, people with one
//! of eight faces, clutter, noise, blur, changing light. A camera hangs over a road; vehicles come
//! towards it or drive away, people walk on the pavements.
//!
//! ```
//! use spillgate_scenes::{Scene, SceneConfig};
//!
//! let mut scene = Scene::new(SceneConfig { seed: 7, density: 0.8, ..SceneConfig::default() });
//! let (frame, truth) = scene.frame(100);
//! assert_eq!(frame.rgb.len(), 640 * 360 * 3);
//! for vehicle in &truth.vehicles {
//!     println!("{} at {:?}", vehicle.plate, vehicle.bbox);
//! }
//! ```
//!
//! The same seed and frame number give the same pixels everywhere. [`score`] compares what a pipeline
//! found with the ground truth.
//!
//! This crate trains nothing and runs no model.

mod condition;
mod font;
mod geometry;
mod person;
mod road;
mod scene;
pub mod score;
mod sprite;
mod stretch;
mod truth;
mod vehicle;

pub use condition::Condition;
pub use font::ALPHABET;
pub use geometry::Rect;
pub use person::IDENTITIES;
pub use scene::{Scene, SceneConfig};
pub use stretch::Stretch;
pub use truth::{CLASSES, GroundTruth, MIN_VISIBLE, PersonTruth, RgbFrame, VehicleTruth};
pub use vehicle::{PLATE_LEN, VehicleKind};
