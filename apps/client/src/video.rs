//! Writes pictures to an MP4 file: H.264 by OpenH264, no sound, each picture at a time of its own.
//!
//! The file is there once [`VideoWriter::finish`] has run: without its end no player opens a video.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use image::RgbImage;
use mp4::{AvcConfig, MediaConfig, Mp4Config, Mp4Sample, Mp4Writer, TrackConfig, TrackType};
use openh264::OpenH264API;
use openh264::encoder::{
    Encoder, EncoderConfig, FrameRate, IntraFramePeriod, QpRange, RateControlMode,
};
use openh264::formats::{RgbSliceU8, YUVBuffer};
use spillgate_output::Output;

/// Ticks a second of the file's clock: divisible by the usual frame rates.
const TIMESCALE: u32 = 90_000;
/// Quantiser of every picture, 0 (best) to 51: letters stay sharp, and a quiet scene costs little.
const QUANTISER: u8 = 24;
/// Distance of the frames that a player can jump to.
const KEY_FRAME_EVERY: u32 = 50;
const TRACK: u32 = 1;

/// Types of units in an H.264 stream that belong in the file's header.
const SEQUENCE_PARAMETERS: u8 = 7;
const PICTURE_PARAMETERS: u8 = 8;
const KEY_SLICE: u8 = 5;

/// An MP4 file that grows by one picture at a time.
pub struct VideoWriter {
    path: PathBuf,
    width: u32,
    height: u32,
    ticks_per_frame: u32,
    encoder: Encoder,
    writer: Mp4Writer<BufWriter<Output>>,
    frames: u64,
    /// When the first picture is shown.
    began: Duration,
    /// The last picture, which is shown until the next one.
    held: Option<Mp4Sample>,
}

impl VideoWriter {
    /// Starts a file for pictures of this size; of an odd side the last line is cut off, since H.264 has only even
    /// sides.
    ///
    /// # Errors
    /// When the file cannot be made, or the size or rate is not encodable.
    pub fn create(path: &Path, width: u32, height: u32, frames_per_second: f64) -> Result<Self> {
        let (width, height) = (width & !1, height & !1);
        let sides = 16..=u32::from(u16::MAX);
        if !sides.contains(&width) || !sides.contains(&height) {
            bail!("a video of {width}x{height} cannot be written");
        }
        if !(0.1..=1000.0).contains(&frames_per_second) {
            bail!("a video of {frames_per_second} frames a second cannot be written");
        }
        let config = EncoderConfig::new()
            .max_frame_rate(FrameRate::from_hz(frames_per_second as f32))
            .rate_control_mode(RateControlMode::Off)
            .qp(QpRange::new(QUANTISER, QUANTISER))
            .skip_frames(false)
            .intra_frame_period(IntraFramePeriod::from_num_frames(KEY_FRAME_EVERY));
        let encoder = Encoder::with_api_config(OpenH264API::from_source(), config)
            .context("OpenH264 does not start")?;
        let file = Output::begin(path)?;
        let brand = |text: &str| text.parse().context("an MP4 brand has four letters");
        let config = Mp4Config {
            major_brand: brand("isom")?,
            minor_version: 512,
            compatible_brands: vec![
                brand("isom")?,
                brand("iso2")?,
                brand("avc1")?,
                brand("mp41")?,
            ],
            timescale: TIMESCALE,
        };
        Ok(VideoWriter {
            path: path.to_owned(),
            width,
            height,
            ticks_per_frame: (f64::from(TIMESCALE) / frames_per_second).round() as u32,
            encoder,
            writer: Mp4Writer::write_start(BufWriter::new(file), &config)
                .with_context(|| format!("cannot write {}", path.display()))?,
            frames: 0,
            began: Duration::ZERO,
            held: None,
        })
    }

    /// Adds a picture that is shown from `at` on, on any clock. One of another size is resized.
    ///
    /// # Errors
    /// When encoding or writing fails.
    pub fn write(&mut self, picture: &RgbImage, at: Duration) -> Result<()> {
        let fitted;
        let size = picture.dimensions();
        let picture = if size == (self.width, self.height) {
            picture
        } else if (size.0 & !1, size.1 & !1) == (self.width, self.height) {
            fitted = image::imageops::crop_imm(picture, 0, 0, self.width, self.height).to_image();
            &fitted
        } else {
            let filter = image::imageops::FilterType::Triangle;
            fitted = image::imageops::resize(picture, self.width, self.height, filter);
            &fitted
        };
        let source = RgbSliceU8::new(picture, (self.width as usize, self.height as usize));
        let yuv = YUVBuffer::from_rgb8_source(source);
        let stream = self
            .encoder
            .encode(&yuv)
            .context("OpenH264 cannot encode a frame")?
            .to_vec();
        let units = Units::split(&stream);
        if self.frames == 0 {
            self.writer
                .add_track(&track(&units, self.width, self.height)?)
                .with_context(|| format!("cannot write {}", self.path.display()))?;
        }
        if self.frames == 0 {
            self.began = at;
        }
        let ticks = at.saturating_sub(self.began).as_secs_f64() * f64::from(TIMESCALE);
        let mut sample = Mp4Sample {
            start_time: ticks.round() as u64,
            duration: self.ticks_per_frame,
            rendering_offset: 0,
            is_sync: units.is_key,
            bytes: Bytes::from(units.sample),
        };
        if let Some(mut last) = self.held.take() {
            // Two pictures of one moment are shown one after the other.
            sample.start_time = sample.start_time.max(last.start_time + 1);
            last.duration = u32::try_from(sample.start_time - last.start_time).unwrap_or(u32::MAX);
            self.add(&last)?;
        }
        self.held = Some(sample);
        self.frames += 1;
        Ok(())
    }

    fn add(&mut self, sample: &Mp4Sample) -> Result<()> {
        let written = self.writer.write_sample(TRACK, sample);
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Completes the file.
    ///
    /// # Errors
    /// When writing fails, or no picture was added.
    pub fn finish(mut self) -> Result<u64> {
        if self.frames == 0 {
            bail!("{}: no frame to write", self.path.display());
        }
        if let Some(last) = self.held.take() {
            self.add(&last)?;
        }
        let write = |writer: &mut Mp4Writer<BufWriter<Output>>| -> Result<()> {
            writer.write_end()?;
            Ok(())
        };
        write(&mut self.writer).with_context(|| format!("cannot write {}", self.path.display()))?;
        let file = self.writer.into_writer().into_inner();
        let file = file.map_err(std::io::IntoInnerError::into_error);
        let file = file.with_context(|| format!("cannot write {}", self.path.display()))?;
        file.finish()?;
        Ok(self.frames)
    }
}

fn track(units: &Units<'_>, width: u32, height: u32) -> Result<TrackConfig> {
    let (Some(sequence), Some(picture)) = (units.sequence_parameters, units.picture_parameters)
    else {
        bail!("OpenH264 began without parameter sets");
    };
    Ok(TrackConfig {
        track_type: TrackType::Video,
        timescale: TIMESCALE,
        language: "und".to_owned(),
        media_conf: MediaConfig::AvcConfig(AvcConfig {
            width: u16::try_from(width)?,
            height: u16::try_from(height)?,
            seq_param_set: sequence.to_vec(),
            pic_param_set: picture.to_vec(),
        }),
    })
}

/// An encoded picture, split into units.
struct Units<'a> {
    sequence_parameters: Option<&'a [u8]>,
    picture_parameters: Option<&'a [u8]>,
    /// The picture's units, each with its length before it.
    sample: Vec<u8>,
    is_key: bool,
}

impl<'a> Units<'a> {
    fn split(stream: &'a [u8]) -> Self {
        let mut units = Units {
            sequence_parameters: None,
            picture_parameters: None,
            sample: Vec::with_capacity(stream.len() + 16),
            is_key: false,
        };
        for unit in openh264::nal_units(stream) {
            let zeros = unit.iter().take_while(|byte| **byte == 0).count();
            let unit = &unit[(zeros + 1).min(unit.len())..];
            let Some(kind) = unit.first().map(|byte| byte & 0x1f) else {
                continue;
            };
            match kind {
                SEQUENCE_PARAMETERS => units.sequence_parameters = Some(unit),
                PICTURE_PARAMETERS => units.picture_parameters = Some(unit),
                _ => {
                    units.is_key |= kind == KEY_SLICE;
                    units
                        .sample
                        .extend_from_slice(&(unit.len() as u32).to_be_bytes());
                    units.sample.extend_from_slice(unit);
                }
            }
        }
        units
    }
}
