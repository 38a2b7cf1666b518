//! `--cameras` of `simulate`: clients whose frames go over links of their own.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_camera::bandwidth::BandwidthTrace;
use spillgate_pipeline::time::Timestamp;
use spillgate_sim::network::EmulatedUplink;
use spillgate_sim::{CameraFigures, FrameBits, FramesReport, SimCamera};

use super::load;
use crate::commands::ranges::{duration, number};

/// As many as a gateway tells apart.
const CAMERAS_MAX: u16 = 512;
/// Longest round trip of a link, and time to encode: to the moon and back, twice.
const TIME_MAX: Duration = Duration::from_secs(5);
/// From a frame's arrival until the server acknowledges it (Jellyfish §7.2: 1 to 3 ms).
const ACKNOWLEDGED_IN: Duration = Duration::from_millis(2);
/// Bits of a pixel of a frame for which no size is said, and its height over its width: a JPEG of a street.
const BITS_OF_PIXEL: f64 = 2.0;
const HEIGHT: f64 = 9.0 / 16.0;

/// Cameras in place of --rate.
#[derive(Args)]
pub(super) struct CamerasArgs {
    /// That many cameras, each a client with a link of its own, in place of --rate. They decide as `spillgate stream` does, and a frame is in time
    /// if its camera has the result within the pipeline's SLO from the capture.
    #[arg(long, value_name = "N", value_parser = number(1u16, CAMERAS_MAX, "a gateway tells as many apart"), requires = "camera_link", conflicts_with_all = ["amount", "trace", "client", "cluster", "scenario", "arrivals"])]
    cameras: Option<u16>,
    /// Bandwidth of each link: a file of the columns second,mbps, over and over. Each camera begins at another place of it
    #[arg(long, value_name = "TRACE.csv", requires = "cameras")]
    camera_link: Option<PathBuf>,
    /// Round trip of each link, half of it in each direction
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration(TIME_MAX, "a frame comes later than any SLO allows"), requires = "cameras")]
    camera_rtt: Duration,
    /// Frames a second of a camera
    #[arg(long, value_name = "F", default_value_t = 10.0, value_parser = number(0.1, 240.0, "no camera has more"), requires = "cameras")]
    camera_fps: f64,
    /// Longer side of what a camera captures, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 640, value_parser = number(64u32, 8_192, "no picture is larger"), requires = "cameras")]
    camera_side: u32,
    /// Kilobits of a frame of that side; smaller ones have fewer, by the 5/6th power of their pixels [default: 2 bits a pixel, 16 by 9]
    #[arg(long, value_name = "KBIT", value_parser = number(0.1, 1e6, "a frame has bits"), requires = "cameras")]
    camera_kbit: Option<f64>,
    /// Time from the capture of a frame until it is encoded
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration(TIME_MAX, "a frame comes later than any SLO allows"), requires = "cameras")]
    camera_encoding: Duration,
    /// Cameras send frames as they are, whatever their links bear, and tell the server nothing about them
    #[arg(long, requires = "cameras")]
    cameras_no_adapt: bool,
}

impl CamerasArgs {
    /// Whether there are cameras.
    pub(super) fn any(&self) -> bool {
        self.cameras.is_some()
    }

    /// Frames a second of all; `None` without cameras.
    pub(super) fn rate(&self) -> Option<f64> {
        self.cameras.map(|n| f64::from(n) * self.camera_fps)
    }

    /// The cameras, where they begin drawn by that seed.
    ///
    /// # Errors
    /// When the file of the link is no trace.
    pub(super) fn cameras(&self, slo: Duration, seed: u64) -> anyhow::Result<Vec<SimCamera>> {
        let (Some(n), Some(file)) = (self.cameras, &self.camera_link) else {
            return Ok(Vec::new());
        };
        let trace = BandwidthTrace::parse(&load::read(file)?);
        let trace = trace.with_context(|| format!("--camera-link: {}", file.display()))?;
        let width = f64::from(self.camera_side);
        let usual = BITS_OF_PIXEL * width * width * HEIGHT;
        let bits = self.camera_kbit.map_or(usual, |kbit| kbit * 1e3);
        let bits = FrameBits::new([(self.camera_side, bits)]);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let camera = |i| {
            let offset = trace.period().mul_f64(rng.random());
            let link = EmulatedUplink::new(trace.clone(), offset, self.camera_rtt, ACKNOWLEDGED_IN);
            let within = rng.random::<f64>() / self.camera_fps;
            SimCamera {
                name: format!("camera-{i}"),
                rate: self.camera_fps,
                slo,
                link,
                side: self.camera_side,
                bits: bits.clone(),
                encoding: self.camera_encoding,
                starts: Timestamp::ZERO + Duration::from_secs_f64(within),
                adapts: !self.cameras_no_adapt,
            }
        };
        Ok((0..n).map(camera).collect())
    }
}

/// For people.
pub(super) fn text_of(frames: &FramesReport) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    one(&mut text, "cameras", &frames.all)?;
    for camera in &frames.each {
        one(&mut text, &camera.name, camera)?;
    }
    Ok(text)
}

fn one(text: &mut String, name: &str, of: &CameraFigures) -> std::fmt::Result {
    write!(
        text,
        "  {name}: {} frames, missed {:.2}% ({} not sent, {} refused, {} dropped, {} late), side {:.0}, {} switches, p50 {:.1} ms, p99 {:.1} \
         ms from the capture",
        of.frames,
        of.miss_rate * 100.0,
        of.unsent,
        of.refused,
        of.dropped,
        of.late,
        of.side_mean,
        of.switches,
        of.latency_ms_p50,
        of.latency_ms_p99
    )?;
    if let (Some(accuracy), Some(weighted)) = (of.accuracy_mean, of.goodput_weighted) {
        write!(
            text,
            ", accuracy {accuracy:.3} in time, {weighted:.2}/s weighted by it"
        )?;
    }
    text.push('\n');
    Ok(())
}
