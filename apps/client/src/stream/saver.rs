//! Draws results into frames and writes them to files, on a thread of its own, in the order of the frames.
//!
//! It never delays the stream: when it is behind by [`WAITING_MAX`] frames, further ones are not saved, and the
//! summary says how many.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use image::RgbImage;
use spillgate_proto::pb;

use crate::annotate::annotate;
use crate::encode::jpeg;
use crate::record::FrameEnd;
use crate::video::VideoWriter;

/// Frames that wait for the saver: two seconds of a usual video.
pub(crate) const WAITING_MAX: usize = 60;
/// Most frames held back so that earlier ones come first; a frame that never ends is not waited for longer.
pub(crate) const REORDERED_MAX: usize = 60;
const JPEG_QUALITY: u8 = 90;

/// The targets.
#[derive(Clone, Debug, Default)]
pub(crate) struct SaverConfig {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) video: Option<PathBuf>,
    pub(crate) frames_per_second: f64,
}

impl SaverConfig {
    pub(crate) fn is_wanted(&self) -> bool {
        self.folder.is_some() || self.video.is_some()
    }

    /// Makes the folder, and checks that the files can be written.
    pub(crate) fn prepare(&self) -> Result<()> {
        if let Some(folder) = &self.folder {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            spillgate_output::check(&frame_file(folder, 0))?;
        }
        if let Some(video) = &self.video {
            spillgate_output::check(video)?;
        }
        Ok(())
    }

    /// The same for one of several clients: `out.mp4` becomes `out-2.mp4`, a folder gets a folder `2`.
    pub(crate) fn for_client(&self, client: usize, clients: usize) -> Self {
        if clients == 1 {
            return self.clone();
        }
        let numbered = |path: &PathBuf| {
            let stem = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let extension = path
                .extension()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            path.with_file_name(format!("{stem}-{client}.{extension}"))
        };
        SaverConfig {
            folder: self
                .folder
                .as_ref()
                .map(|folder| folder.join(client.to_string())),
            video: self.video.as_ref().map(numbered),
            frames_per_second: self.frames_per_second,
        }
    }
}

struct Job {
    picture: Arc<RgbImage>,
    result: pb::Result,
    due: Duration,
    latency: Duration,
}

/// Takes frames that have ended.
pub(crate) struct Saver {
    jobs: SyncSender<Job>,
    thread: JoinHandle<Result<u64>>,
    skipped: u64,
}

impl Saver {
    pub(crate) fn start(config: SaverConfig) -> Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("saver".to_owned())
            .spawn(move || save_all(&config, &waiting))
            .context("cannot start a thread for saving")?;
        Ok(Saver {
            jobs,
            thread,
            skipped: 0,
        })
    }

    /// Queues a frame for saving, or counts it as skipped.
    pub(crate) fn save(&mut self, picture: Arc<RgbImage>, end: FrameEnd) {
        let latency = end.latency();
        match self.jobs.try_send(Job {
            picture,
            result: end.result,
            due: end.due,
            latency,
        }) {
            Ok(()) => {}
            // A saver that failed has ended; `finish` returns the reason.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.skipped += 1,
        }
    }

    /// Waits for the last frame. Returns the number of saved and of skipped frames.
    pub(crate) fn finish(self) -> Result<(u64, u64)> {
        drop(self.jobs);
        let saved = self
            .thread
            .join()
            .map_err(|_| anyhow!("the saving thread panicked"))??;
        Ok((saved, self.skipped))
    }
}

fn save_all(config: &SaverConfig, waiting: &Receiver<Job>) -> Result<u64> {
    let mut files = Files {
        config,
        video: None,
        saved: 0,
    };
    let mut held: BTreeMap<u64, Job> = BTreeMap::new();
    let mut next = 0;
    while let Ok(job) = waiting.recv() {
        held.insert(job.result.number, job);
        while let Some(first) = held.first_entry() {
            if *first.key() > next && held.len() <= REORDERED_MAX {
                break;
            }
            let (number, job) = held.pop_first().expect("it has a first entry");
            next = next.max(number + 1);
            files.write(job)?;
        }
    }
    for job in held.into_values() {
        files.write(job)?;
    }
    if let Some(video) = files.video {
        video.finish()?;
    }
    Ok(files.saved)
}

struct Files<'a> {
    config: &'a SaverConfig,
    video: Option<VideoWriter>,
    saved: u64,
}

impl Files<'_> {
    fn write(&mut self, job: Job) -> Result<()> {
        let mut picture = Arc::unwrap_or_clone(job.picture);
        annotate(&mut picture, &job.result, job.latency);
        if let Some(folder) = &self.config.folder {
            let content = jpeg(&picture, JPEG_QUALITY)?;
            spillgate_output::write(frame_file(folder, job.result.number), content)?;
        }
        if let Some(path) = &self.config.video {
            let video = match &mut self.video {
                Some(video) => video,
                None => {
                    let (width, height) = picture.dimensions();
                    let rate = self.config.frames_per_second;
                    self.video
                        .insert(VideoWriter::create(path, width, height, rate)?)
                }
            };
            video.write(&picture, job.due)?;
        }
        self.saved += 1;
        Ok(())
    }
}

fn frame_file(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("frame-{number:06}.jpg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_files_of_their_own() {
        let config = SaverConfig {
            folder: Some("out".into()),
            video: Some("dir/out.mp4".into()),
            frames_per_second: 25.0,
        };
        let second = config.for_client(1, 2);
        assert_eq!(second.folder.unwrap(), Path::new("out/1"));
        assert_eq!(second.video.unwrap(), Path::new("dir/out-1.mp4"));
        assert_eq!(
            config.for_client(0, 1).video.unwrap(),
            Path::new("dir/out.mp4")
        );
    }
}
