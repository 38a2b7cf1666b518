//! Frames that are made beforehand and sent over and over. In a smaller size they are made when it is first wanted.

use anyhow::{Context, Result, bail};
use image::RgbImage;
use indexmap::IndexMap;
use spillgate_proto::pb::FrameFormat;

use super::{Emitted, Made, Prepared, ProducerConfig, make, prepare};
use crate::encode::Encoded;
use crate::picture;
use crate::resize::smaller;
use crate::source::Source;

/// Smaller sizes of a frame that are kept. A stream goes to and fro between a few; when there are more, all are made anew.
pub(crate) const SIZES_MAX: usize = 4;

/// A frame in its largest size, and in smaller ones by longest side.
struct Kept {
    frame: Prepared,
    smaller: IndexMap<u32, Made>,
}

/// The frames of a source, as many as were wanted.
pub(super) struct Preloaded(Vec<Kept>);

impl Preloaded {
    pub(super) fn read(source: &mut dyn Source, n: usize, config: &ProducerConfig) -> Result<Self> {
        let mut frames = Vec::with_capacity(n);
        while frames.len() < n {
            let Some(frame) = source.next_frame()? else {
                break;
            };
            frames.push(Kept {
                frame: prepare(frame, config)?,
                smaller: IndexMap::new(),
            });
        }
        if frames.is_empty() {
            bail!("the source has no frames");
        }
        Ok(Preloaded(frames))
    }

    /// Emits them until no more are needed.
    pub(super) fn repeat(
        &mut self,
        config: &ProducerConfig,
        emit: &mut impl FnMut(Prepared) -> Emitted,
    ) -> Result<()> {
        loop {
            for kept in &mut self.0 {
                if emit(kept.within(config.side_max(), config)?) == Emitted::Last {
                    return Ok(());
                }
            }
        }
    }
}

impl Kept {
    /// The frame with no side longer than `side`.
    fn within(&mut self, side: u32, config: &ProducerConfig) -> Result<Prepared> {
        let mut frame = self.frame.clone();
        if smaller(frame.made.size, side).is_none() {
            return Ok(frame);
        }
        if let Some(made) = self.smaller.get(&side) {
            frame.made = made.clone();
            return Ok(frame);
        }
        let picture = decoded(&frame.made.encoded)?;
        let made = Made {
            source: frame.made.source,
            ..make(&picture, side, config.encoding)?
        };
        if self.smaller.len() == SIZES_MAX {
            self.smaller.clear();
        }
        self.smaller.insert(side, made.clone());
        frame.made = made;
        Ok(frame)
    }
}

fn decoded(encoded: &Encoded) -> Result<RgbImage> {
    if encoded.format == FrameFormat::Rgb8 {
        let data = encoded.data.to_vec();
        let picture = RgbImage::from_raw(encoded.width, encoded.height, data);
        return picture.context("a frame of RGB has all its pixels");
    }
    picture::read(&encoded.data)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use image::Rgb;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::encode::Encoding;
    use crate::record::Origin;
    use crate::stream::adapting::WantedSide;

    #[test]
    fn a_size_is_made_once() {
        let picture = RgbImage::from_pixel(64, 32, Rgb([90, 120, 30]));
        for encoding in [Encoding::Rgb, Encoding::Jpeg(90)] {
            let config = ProducerConfig {
                open: Box::new(|| bail!("it is open")),
                encoding,
                max_side: 64,
                wanted: Some(WantedSide::default()),
                keep_pictures: false,
                repeat: false,
                reconnect: false,
                tell: Box::new(|_| {}),
                preload: None,
                limit: None,
                is_remote: false,
                live_interval: None,
                runs: Arc::default(),
                stop: CancellationToken::new(),
            };
            let mut kept = Kept {
                frame: Prepared {
                    made: make(&picture, 64, encoding).unwrap(),
                    picture: None,
                    truth: None,
                    after_gap: false,
                    origin: Origin::default(),
                    at: Duration::ZERO,
                },
                smaller: IndexMap::new(),
            };
            for side in [64, 16, 100, 16] {
                let made = kept.within(side, &config).unwrap().made;
                let longer = side.min(64);
                assert_eq!((made.source, made.size), ((64, 32), (longer, longer / 2)));
            }
            assert_eq!(kept.smaller.len(), 1);
            for side in 17..40 {
                kept.within(side, &config).unwrap();
                assert!(kept.smaller.len() <= SIZES_MAX);
            }
        }
    }
}
