//! What ffmpeg says in its log, line by line. Each frame has a line of the `showinfo` filter with its time and size; the rest tells what the
//! source is, what could not be decoded, and why it ended.
//!
//! Texts of a source, such as titles, are printed there too, always indented: a line counts by how it begins.

use std::time::Duration;

use nix::sys::signal::Signal;

/// A frame, as ffmpeg announces it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Announced {
    /// Its number since the filters were set up.
    pub(super) number: u64,
    /// Its time on the clock of the source, in seconds; `None` where the source gives none.
    pub(super) time: Option<f64>,
    /// Width and height in pixels.
    pub(super) size: (u32, u32),
    /// Its two fields are of different times.
    pub(super) interlaced: bool,
    /// Width to height of a pixel.
    pub(super) pixel: (u32, u32),
}

/// A line that says something.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    Frame(Announced),
    /// How light becomes numbers in the frames that follow.
    Transfer(String),
    /// How long the source lasts; `None` where it has no end.
    Lasts(Option<Duration>),
    /// The kind of the file, by ffmpeg's name.
    Container(String),
    /// It has sound, too.
    Sound,
    /// Frames a second, on average.
    Rate(f64),
    /// What the source is has been said.
    Ready,
    /// The next frame was decoded with errors.
    Damaged,
    /// A piece of the source gave no frame.
    Undecoded,
    /// The source's file ends too early.
    Cut,
    /// An error, in ffmpeg's words.
    Error(String),
}

/// Reads a line of `-loglevel repeat+level+info`.
pub(super) fn read(line: &str) -> Option<Word> {
    if let Some(rest) = line.strip_prefix("[Parsed_showinfo_") {
        let (_, text) = rest.split_once("] [info] ")?;
        return match text.strip_prefix("color_range:") {
            Some(_) => Some(Word::Transfer(field(text, "color_trc:")?.to_owned())),
            None => frame(text).map(Word::Frame),
        };
    }
    if let Some(text) = line.strip_prefix("[info] ") {
        return header(text);
    }
    // `[error] text`, `[h264 @ 0x1] [error] text`, `[dec @ 0x1] [sub @ 0x2] [warning] text`.
    let (_, warning) = split_level(line, "warning").unwrap_or_default();
    if warning.contains("corrupt decoded frame") {
        return Some(Word::Damaged);
    }
    let error = ["error", "fatal"]
        .iter()
        .find_map(|level| split_level(line, level));
    let (by, error) = error?;
    // 5.1 and before, then 6.0 and later.
    if error.starts_with("Error while decoding stream") || error.starts_with("Decoding error: ") {
        return Some(Word::Undecoded);
    }
    if error.ends_with(": partial file") || error.starts_with("File ended prematurely") {
        return Some(Word::Cut);
    }
    // Decoders speak of pieces of pictures: what becomes of the picture is said by the lines above.
    let of_decoder = by.contains("h264") || by.contains("hevc") || by.contains("NULL");
    (!of_decoder).then(|| Word::Error(error.to_owned()))
}

/// Who speaks, and the text, of a line of this level.
fn split_level<'a>(line: &'a str, level: &str) -> Option<(&'a str, &'a str)> {
    if !line.starts_with('[') {
        return None;
    }
    line.split_once(&format!("[{level}] "))
}

fn frame(text: &str) -> Option<Announced> {
    if !text.starts_with("n:") {
        return None;
    }
    let pair = |name, between| {
        let (a, b) = field(text, name)?.split_once(between)?;
        Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?))
    };
    Some(Announced {
        number: field(text, "n:")?.parse().ok()?,
        time: field(text, "pts_time:")?
            .parse()
            .ok()
            .filter(|time: &f64| time.is_finite()),
        size: pair(" s:", 'x')?,
        interlaced: matches!(field(text, " i:"), Some("T" | "B")),
        pixel: pair(" sar:", '/').unwrap_or((1, 1)),
    })
}

/// The word behind `name:`, with or without blanks between.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(name)?;
    rest.split_whitespace().next()
}

fn header(text: &str) -> Option<Word> {
    if let Some(rest) = text.strip_prefix("  Duration: ") {
        return Some(Word::Lasts(duration(rest.split(',').next()?)));
    }
    if let Some(rest) = text.strip_prefix("Input #0, ") {
        return Some(Word::Container(rest.split_once(", from ")?.0.to_owned()));
    }
    if text.starts_with("  Stream #0:") && text.contains(": Audio: ") {
        return Some(Word::Sound);
    }
    if text.starts_with("Output #0") {
        return Some(Word::Ready);
    }
    if text.starts_with("  Stream #0:") && text.contains(": Video: ") {
        let rate = text
            .split(", ")
            .find_map(|piece| piece.strip_suffix(" fps")?.parse().ok());
        return rate.map(Word::Rate);
    }
    None
}

/// `00:01:02.40`; `None` for `N/A`.
fn duration(text: &str) -> Option<Duration> {
    let seconds = text.split(':').try_fold(0.0, |sum, piece| {
        Some(sum * 60.0 + piece.parse::<f64>().ok().filter(|n| *n >= 0.0)?)
    })?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Why ffmpeg gave no (more) frames where that signal has ended it: it has a bug, or somebody killed it.
pub(super) fn crashed(signal: i32) -> String {
    let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
    format!("ffmpeg was ended by signal {signal} ({name}); another version of it may read this")
}

/// Why ffmpeg gave no (more) frames, of its errors in their order.
pub(super) fn reason(errors: &[String]) -> String {
    let says = |text: &str| errors.iter().any(|error| error.contains(text));
    if says("matches no streams") {
        return "it has no video".to_owned();
    }
    if says("moov atom not found") {
        return "it has no index (moov atom): it was never finished, is cut off, or is no video"
            .to_owned();
    }
    if says("Cannot allocate memory") {
        return "ffmpeg has no more memory for it".to_owned();
    }
    if says("not on whitelist") || says("not in allowed") {
        return "it is no kind of video that is read (and a list of other files is none)"
            .to_owned();
    }
    if says("Invalid data found when processing input") {
        return "ffmpeg finds no video in it".to_owned();
    }
    let quoted = |error: &String| format!("ffmpeg says \"{}\"", error.trim_end_matches('.'));
    errors
        .first()
        .map_or("ffmpeg does not say why".to_owned(), quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_old_and_new_versions_are_announced() {
        let old = "[Parsed_showinfo_0 @ 0x55d1090e6700] [info] n:   1 pts:    512 pts_time:0.04    pos:     9233 fmt:yuv420p sar:4/3 s:320x240 i:T iskey:0 type:B ";
        let new = "[Parsed_showinfo_0 @ 0x7f90e0001d40] [info] n:   1 pts:    512 pts_time:0.04    duration:    512 duration_time:0.04    fmt:yuv420p cl:left sar:4/3 s:320x240 i:T iskey:0 type:B ";
        let announced = Announced {
            number: 1,
            time: Some(0.04),
            size: (320, 240),
            interlaced: true,
            pixel: (4, 3),
        };
        for line in [old, new] {
            assert_eq!(read(line), Some(Word::Frame(announced)), "{line}");
        }
        let timeless = old.replace("512 pts_time:0.04", "NOPTS pts_time:NOPTS");
        let Some(Word::Frame(frame)) = read(&timeless) else {
            panic!("a frame")
        };
        assert_eq!(frame.time, None);
    }

    #[test]
    fn what_a_source_is_and_what_befalls_it_is_read() {
        let lasts = |ms| Word::Lasts(Some(Duration::from_millis(ms)));
        for (line, word) in [
            (
                "[info]   Duration: 00:01:02.40, start: 0.000000, bitrate: 349 kb/s",
                Some(lasts(62_400)),
            ),
            (
                "[info]   Duration: N/A, start: 0.000000, bitrate: N/A",
                Some(Word::Lasts(None)),
            ),
            (
                "[info]   Stream #0:0[0x1](und): Video: h264 (High), yuv420p(progressive), 320x240, 29.97 fps, 25 tbr (default)",
                Some(Word::Rate(29.97)),
            ),
            (
                "[info] Input #0, mov,mp4,m4a, from 'a, from b.mp4':",
                Some(Word::Container("mov,mp4,m4a".to_owned())),
            ),
            (
                "[info]   Stream #0:1[0x2](und): Audio: aac (LC), 44100 Hz",
                Some(Word::Sound),
            ),
            ("[info] Output #0, nut, to 'pipe:1':", Some(Word::Ready)),
            (
                "[Parsed_showinfo_0 @ 0x1] [info] color_range:tv color_space:bt2020nc color_primaries:bt2020 color_trc:smpte2084",
                Some(Word::Transfer("smpte2084".to_owned())),
            ),
            (
                "[warning] a.mp4: corrupt decoded frame in stream 0",
                Some(Word::Damaged),
            ),
            (
                "[vist#0:0/h264 @ 0x1] [dec:h264 @ 0x2] [warning] corrupt decoded frame",
                Some(Word::Damaged),
            ),
            (
                "[error] Error while decoding stream #0:0: Invalid data",
                Some(Word::Undecoded),
            ),
            (
                "[vist#0:0/h264 @ 0x1] [dec:h264 @ 0x2] [error] Decoding error: Invalid data",
                Some(Word::Undecoded),
            ),
            (
                "[mov,mp4 @ 0x1] [error] stream 0, offset 0xfa0d: partial file",
                Some(Word::Cut),
            ),
            (
                "[in#0 @ 0x1] [error] moov atom not found",
                Some(Word::Error("moov atom not found".to_owned())),
            ),
            ("[h264 @ 0x1] [error] error while decoding MB 2 6", None),
            // A title of the source that would like to be more.
            (
                "[info]     title           : [Parsed_showinfo_0 @ 0x1] [info] n: 0 pts: 0 pts_time:0 s:1x1",
                None,
            ),
            ("[info]     comment         :   Duration: 00:00:01", None),
        ] {
            assert_eq!(read(line), word, "{line}");
        }
    }

    #[test]
    fn reasons_are_plain() {
        for (errors, says) in [
            (
                &[
                    "moov atom not found",
                    "a.mp4: Invalid data found when processing input",
                ][..],
                "it has no index (moov atom)",
            ),
            (
                &["Stream map '0:V:0' matches no streams."],
                "it has no video",
            ),
            (
                &["a.txt: Invalid data found when processing input"],
                "ffmpeg finds no video in it",
            ),
            (
                &["Connection to tcp://10.0.0.1:554 failed: Connection refused."],
                "ffmpeg says \"Connection to tcp://10.0.0.1:554 failed: Connection refused\"",
            ),
            (&[], "ffmpeg does not say why"),
        ] {
            let errors: Vec<String> = errors.iter().map(|e| (*e).to_owned()).collect();
            assert!(reason(&errors).starts_with(says), "{}", reason(&errors));
        }
    }

    #[test]
    fn a_crash_is_named() {
        assert_eq!(
            crashed(11),
            "ffmpeg was ended by signal 11 (SIGSEGV); another version of it may read this"
        );
    }
}
