//! What was heard of ffmpeg so far, by the thread of its pictures and that of its words.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use image::RgbImage;

use super::words::{Announced, Word};

/// Most pictures that are announced and have not come: ffmpeg holds a few.
const ANNOUNCED_MAX: usize = 1024;
/// Errors that are kept: the first tell why, and a broken source has thousands.
const ERRORS_MAX: usize = 16;
/// A file whose last frames are shown for longer than others lacks none.
const FRAMES_SHORT_MAX: u64 = 3;

/// What the threads heard.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) so_far: Mutex<SoFar>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct SoFar {
    /// The newest picture takes the place of one that waits.
    pub(super) is_live: bool,
    /// Of pictures that have not come.
    pub(super) announced: VecDeque<Announced>,
    pub(super) last: Option<Announced>,
    /// The picture that waits.
    pub(super) waiting: Option<Picture>,
    /// Pictures that came.
    pub(super) came: u64,
    pub(super) came_at: Option<Instant>,
    /// Why no more pictures come, where that is an error of ours.
    pub(super) pictures_end: Option<Result<(), String>>,
    pub(super) is_ready: bool,
    pub(super) words_end: bool,
    pub(super) lasts: Option<Duration>,
    pub(super) rate: Option<f64>,
    pub(super) transfer: Option<String>,
    pub(super) damaged: u64,
    pub(super) undecoded: u64,
    /// The file's kind, by ffmpeg's name.
    pub(super) container: String,
    pub(super) has_sound: bool,
    pub(super) ends_early: bool,
    pub(super) errors: Vec<String>,
    /// Nobody wants any more.
    pub(super) is_closed: bool,
}

pub(super) struct Picture {
    pub(super) pixels: RgbImage,
    /// In the source, from 0.
    pub(super) number: u64,
    pub(super) announced: Announced,
}

impl Heard {
    pub(super) fn lock(&self) -> MutexGuard<'_, SoFar> {
        // Whoever panicked left whole values behind.
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut SoFar)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until there is something, for so long.
    pub(super) fn wait<T>(
        &self,
        until: Instant,
        mut take: impl FnMut(&mut SoFar) -> Option<T>,
    ) -> Option<T> {
        let mut so_far = self.lock();
        loop {
            if let Some(taken) = take(&mut so_far) {
                drop(so_far);
                self.changed.notify_all();
                return Some(taken);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(so_far, left);
            so_far = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl SoFar {
    /// Whether its file ends before its time. ffmpeg says so of most kinds; of these it does not, and they say how long they last.
    pub(super) fn is_cut(&self) -> bool {
        let tells = ["avi", "flv"].contains(&self.container.as_str());
        // Sound may go on for a while when there is nothing to see any more.
        let usual = match self.has_sound {
            true => self.rate.map_or(0, |rate| rate.ceil() as u64),
            false => FRAMES_SHORT_MAX,
        };
        self.ends_early || tells && self.missing() > usual
    }

    /// Pictures that the file says to have, by its length and rate, and that did not come.
    pub(super) fn missing(&self) -> u64 {
        let said = self
            .lasts
            .zip(self.rate)
            .map(|(lasts, rate)| lasts.as_secs_f64() * rate);
        let said = said.map_or(0, |pictures| {
            pictures.round().clamp(0.0, u32::MAX.into()) as u64
        });
        said.saturating_sub(self.came)
    }

    pub(super) fn hear(&mut self, word: Word) {
        match word {
            Word::Frame(frame) => self.announce(frame),
            Word::Transfer(transfer) => self.transfer = Some(transfer),
            Word::Lasts(lasts) => self.lasts = lasts,
            Word::Rate(rate) if !self.is_ready => self.rate = self.rate.or(Some(rate)),
            Word::Rate(_) => {}
            Word::Ready => self.is_ready = true,
            Word::Damaged => self.damaged += 1,
            Word::Undecoded => self.undecoded += 1,
            Word::Cut => self.ends_early = true,
            Word::Container(name) if !self.is_ready => self.container = name,
            Word::Container(_) => {}
            Word::Sound => self.has_sound = true,
            Word::Error(error) if self.errors.len() < ERRORS_MAX => self.errors.push(error),
            Word::Error(_) => {}
        }
    }

    /// Lines of several threads may run into each other. A line that is lost so shows in the number of the next one: the picture comes,
    /// without a time.
    pub(super) fn announce(&mut self, frame: Announced) {
        let lost = match self.last {
            Some(last) if frame.number > last.number => frame.number - last.number - 1,
            _ => 0,
        };
        for _ in 0..lost.min(ANNOUNCED_MAX as u64) {
            self.announced
                .extend(self.last.map(|last| Announced { time: None, ..last }));
        }
        self.announced.push_back(frame);
        self.last = Some(frame);
        if self.announced.len() > ANNOUNCED_MAX {
            self.announced.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(number: u64, time: f64) -> Announced {
        Announced {
            number,
            time: Some(time),
            size: (2, 1),
            interlaced: false,
            pixel: (1, 1),
        }
    }

    #[test]
    fn a_line_that_is_lost_costs_a_time_and_no_order() {
        let mut so_far = SoFar::default();
        for (number, time) in [(0, 0.0), (1, 0.1), (4, 0.4), (0, 0.5), (1, 0.6)] {
            so_far.announce(announced(number, time));
        }
        let times: Vec<Option<f64>> = so_far.announced.iter().map(|a| a.time).collect();
        assert_eq!(
            times,
            [
                Some(0.0),
                Some(0.1),
                None,
                None,
                Some(0.4),
                Some(0.5),
                Some(0.6)
            ]
        );
    }

    #[test]
    fn what_a_cut_file_lacks_is_counted_by_the_time_that_it_says_to_last() {
        let mut so_far = SoFar::default();
        so_far.hear(Word::Lasts(Some(Duration::from_millis(2400))));
        so_far.hear(Word::Rate(25.0));
        so_far.came = 34;
        assert_eq!(so_far.missing(), 26);
        assert!(!so_far.is_cut());
        so_far.hear(Word::Cut);
        assert!(so_far.is_cut());
    }
}
