//! Decodes frames: the source of a pipeline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use indexmap::IndexMap;
use nix::time::{ClockId, clock_gettime};
use rustc_hash::FxBuildHasher;
use spillgate_picture::{Decoded, NotDecoded, Picture, PictureKind, decode};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::pipeline::Damaged;
use spillgate_process::account::Lease;
use spillgate_process::job::{Failure, Job, Ran};
use spillgate_process::value::{Image, Value};

/// Decoding is stopped after this many times the processor time that was computed from the picture's bytes, or after the pipeline's bound
/// for a picture (`limits.decoding`) if that is less. The factor allows for slow machines; that others are busy on it does not count.
const DECODING_SLACK: u32 = 8;
/// But no decoding is stopped before it took this long.
const DECODING_LEAST: Duration = Duration::from_millis(50);

/// Decodes frames: the source module.
pub(crate) struct Decoder {
    pipelines: IndexMap<WorkerId, Arc<Pipeline>, FxBuildHasher>,
}

impl Decoder {
    /// A decoder for the sources of these pipelines, by worker.
    pub(crate) fn new(of: Vec<(WorkerId, Arc<Pipeline>)>) -> Self {
        let pipelines = of.into_iter().collect();
        Decoder { pipelines }
    }

    /// Decodes the frames of one worker's requests.
    pub(crate) fn run<'j>(
        &self,
        worker: WorkerId,
        jobs: impl Iterator<Item = &'j Job>,
    ) -> Vec<Ran> {
        let pipeline = &self.pipelines[&worker];
        let decoded = jobs.map(|job| {
            let image = contained(|| decode_job(job, pipeline))?;
            Ok(vec![Value::Image(image)])
        });
        decoded.collect()
    }
}

/// Decoders are third-party code and read any client's bytes. A panic must fail only that frame, not the thread that
/// decodes the frames of all clients. Decoders keep no state that a panic could leave inconsistent.
fn contained<T>(decode: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        let text = "the frame cannot be decoded: the decoder failed on it";
        Err(Failure::Module(text.to_owned()))
    })
}

/// Decodes a request's frame. It stops when the request has ended, or when decoding takes much longer than was computed.
/// The bytes of the decoded picture are taken from the account before a byte is decoded.
fn decode_job(job: &Job, pipeline: &Pipeline) -> Result<Arc<Image>, Failure> {
    let picture = Picture::of(job.frame(), pipeline.limits.pixels)?;
    let lease = job.holder().take(picture.bytes).map_err(Failure::Memory)?;
    let most = pipeline.decoding_max().max(DECODING_LEAST);
    let give_up =
        processor_time() + (picture.decoding * DECODING_SLACK).clamp(DECODING_LEAST, most);
    let mut stops = || job.has_ended() || processor_time() > give_up;
    match decode(job.frame(), &picture, &mut stops) {
        Ok(Decoded { rgb, damage }) => {
            if let Some(damage) = damage {
                if pipeline.limits.damaged == Damaged::Refused {
                    let text = damage.explain();
                    let text = format!("{text}; such frames are refused here (limits.damaged)");
                    return Err(Failure::Module(text));
                }
                job.note_damage(damage);
            }
            Ok(Arc::new(Image {
                width: picture.width,
                height: picture.height,
                rgb: match picture.kind {
                    PictureKind::Rgb8 => rgb,
                    _ => held(lease, rgb),
                },
            }))
        }
        Err(NotDecoded::Unreadable(text)) => Err(Failure::Module(text)),
        Err(NotDecoded::Stopped) => Err(Failure::Module(
            "decoding the frame was stopped: its client left, or it took far longer than pictures of its size and length do".to_owned(),
        )),
    }
}

/// Of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.expect("every thread has this clock").into()
}

/// A decoded picture, and the bytes that it still holds.
fn held(mut lease: Lease, rgb: Bytes) -> Bytes {
    lease.shrink_to(rgb.len() as u64);
    lease.around(rgb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_that_panics_costs_its_frame_only() {
        let failure = contained::<()>(|| panic!("index out of bounds")).unwrap_err();
        let text = "the frame cannot be decoded: the decoder failed on it".to_owned();
        assert_eq!(failure, Failure::Module(text));
        assert_eq!(contained(|| Ok(1)), Ok(1));
    }
}
