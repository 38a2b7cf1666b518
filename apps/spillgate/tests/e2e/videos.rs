//! Videos as ffmpeg and ffprobe see them: files that ffmpeg writes here come with its frames, their times and their pixels; what is broken is
//! counted or refused by name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use spillgate_client::source::{Content, SILENT, SourceSpec, Unreadable};

/// Times are written with six digits.
const TIME_ERROR_MAX: f64 = 2e-6;
/// A test picture in which no two frames are the same.
const PICTURE: &str = "testsrc2=size=192x144:rate=25:duration=2.4";
const TONE: &str = "sine=duration=2.4";

struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("spillgate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Files(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `ffmpeg` with these words, in the folder.
    fn ffmpeg(&self, words: &str) {
        let mut run = Command::new("ffmpeg");
        run.current_dir(&self.0);
        run.args(["-nostdin", "-v", "error", "-y"]);
        let output = run.args(words.split_whitespace()).output();
        let output = output.expect("ffmpeg is installed (Debian: ffmpeg)");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {said}");
    }

    /// Writes a file of the test picture with these words before its name.
    fn make(&self, name: &str, words: &str) {
        self.ffmpeg(&format!("-f lavfi -i {PICTURE} {words} {name}"));
    }

    /// The first 6 of 10 bytes of a file.
    fn cut(&self, name: &str, to: &str) {
        let whole = fs::read(self.path(name)).unwrap();
        fs::write(self.path(to), &whole[..whole.len() * 6 / 10]).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A frame's time, and its size and pixels.
type Seen = (Option<f64>, (u32, u32), Vec<u8>);

struct Read {
    frames: Vec<Seen>,
    unreadable: Option<Unreadable>,
    remark: Option<String>,
}

fn read(path: &Path) -> anyhow::Result<Read> {
    let spec = SourceSpec::parse(&path.to_string_lossy())?;
    let mut source = spec.open(0, SILENT)?;
    let mut frames = Vec::new();
    while let Some(frame) = source.next_frame()? {
        assert_eq!(frame.number, frames.len() as u64, "none is skipped");
        let Content::Picture(picture) = frame.content else {
            panic!("a video has pictures")
        };
        frames.push((frame.media, picture.dimensions(), picture.into_raw()));
    }
    Ok(Read {
        frames,
        unreadable: source.unreadable().cloned(),
        remark: source.remark(),
    })
}

fn output(program: &str, path: &Path, words: &str) -> Output {
    let mut run = Command::new(program);
    run.args(["-v", "quiet", "-i"]).arg(path);
    run.args(words.split_whitespace()).output().unwrap()
}

/// The times of the frames, by ffprobe.
fn their_times(path: &Path) -> Vec<f64> {
    let words = "-select_streams V:0 -show_entries frame=best_effort_timestamp_time -of default=nokey=1:noprint_wrappers=1";
    let output = output("ffprobe", path, words);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The pixels of all frames, by ffmpeg.
fn their_pixels(path: &Path) -> Vec<u8> {
    let words = "-map 0:V:0 -fps_mode passthrough -f rawvideo -pix_fmt rgb24 pipe:1";
    output("ffmpeg", path, words).stdout
}

/// What differs from ffprobe's frames and ffmpeg's pixels.
fn differs(path: &Path, read: &Read) -> Option<String> {
    let theirs = their_times(path);
    let ours: Vec<Option<f64>> = read.frames.iter().map(|(time, ..)| *time).collect();
    if ours.len() != theirs.len() {
        return Some(format!(
            "{} frames, ffprobe has {}",
            ours.len(),
            theirs.len()
        ));
    }
    for (n, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        if ours.is_none_or(|ours| (ours - theirs).abs() > TIME_ERROR_MAX) {
            return Some(format!("frame {n} is at {ours:?}, ffprobe says {theirs}"));
        }
    }
    let pixels: Vec<u8> = read
        .frames
        .iter()
        .flat_map(|(_, _, pixels)| pixels.iter().copied())
        .collect();
    (pixels != their_pixels(path)).then(|| "pixels differ from ffmpeg's".to_owned())
}

#[test]
fn what_ffmpeg_writes_has_its_frames_times_and_pixels() {
    let files = Files::new("videos");
    let h264 = "-c:v libx264 -preset veryfast -pix_fmt yuv420p";
    files.make(
        "b-frames.mp4",
        &format!("-f lavfi -i {TONE} {h264} -bf 3 -c:a aac"),
    );
    files.make("faststart.mp4", &format!("{h264} -movflags +faststart"));
    files.make(
        "fragmented.mp4",
        &format!("{h264} -g 10 -movflags frag_keyframe+empty_moov"),
    );
    files.make(
        "10-bit.mp4",
        "-c:v libx264 -preset veryfast -pix_fmt yuv420p10le",
    );
    files.make("422.mp4", "-c:v libx264 -preset veryfast -pix_fmt yuv422p");
    files.make("444.mp4", "-c:v libx264 -preset veryfast -pix_fmt yuv444p");
    files.make(
        "hevc-main10.mp4",
        "-c:v libx265 -preset ultrafast -x265-params log-level=error -pix_fmt yuv420p10le",
    );
    files.make(
        "vfr.mp4",
        &format!("-vf select='lt(n,20)+not(mod(n,8))' -fps_mode vfr {h264}"),
    );
    files.make(
        "60.mkv",
        &format!("-vf setpts='if(lt(N,30),N/60,0.5+(N-30)/3)/TB' -fps_mode vfr {h264}"),
    );
    files.make("a.ts", &format!("{h264} -g 12"));
    files.make("mjpeg.avi", "-c:v mjpeg -pix_fmt yuvj420p");
    files.make("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8");
    files.make("av1.mkv", "-c:v libsvtav1 -preset 12");
    files.make("odd.mkv", "-vf crop=161:97 -c:v ffv1");
    files.make(
        "full-range.mp4",
        "-vf scale=out_range=pc -color_range pc -c:v libx264 -preset veryfast -pix_fmt yuvj420p",
    );
    files.ffmpeg("-f lavfi -i testsrc2=size=3840x2160:rate=10:duration=0.3 -c:v libx264 -preset ultrafast -pix_fmt yuv420p 4k.mp4");
    for turned in [90, 180, 270] {
        for kind in ["mp4", "mov"] {
            files.ffmpeg(&format!(
                "-i b-frames.mp4 -c copy -metadata:s:v rotate={turned} turned-{turned}.{kind}"
            ));
        }
    }
    files.ffmpeg("-i turned-90.mp4 -c copy turned-90.mkv");
    files.ffmpeg(
        "-i turned-90.mp4 -an -c copy -movflags frag_keyframe+empty_moov turned-90-fragmented.mp4",
    );
    files.ffmpeg("-ss 0.7 -i b-frames.mp4 -c copy edit-list.mp4");
    let ts = fs::read(files.path("a.ts")).unwrap();
    fs::write(files.path("mid-gop.ts"), &ts[188 * (ts.len() / 188 / 5)..]).unwrap();
    let mut names: Vec<String> = fs::read_dir(&files.0)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut wrong = Vec::new();
    for name in &names {
        let path = files.path(name);
        match read(&path) {
            Ok(read) if read.frames.is_empty() => wrong.push(format!("{name}: no frames")),
            Ok(read) => {
                wrong.extend(differs(&path, &read).map(|why| format!("{name}: {why}")));
                wrong.extend(read.unreadable.map(|lost| format!("{name}: {lost:?}")));
                let (_, size, _) = read.frames[0];
                // This ffmpeg writes no turn into a .mkv.
                let turned = name.contains("-90") || name.contains("-270");
                let upright = turned && !name.ends_with(".mkv");
                if upright && size != (144, 192) {
                    wrong.push(format!("{name}: it is {size:?}"));
                }
            }
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
    }
    println!("{} files", names.len());
    assert!(
        names.len() >= 25 && wrong.is_empty(),
        "{}",
        wrong.join("\n")
    );
}

#[test]
fn another_size_within_a_stream_is_taken() {
    let files = Files::new("sizes");
    files.make(
        "small.ts",
        "-c:v libx264 -preset veryfast -pix_fmt yuv420p -frames:v 10",
    );
    files.make(
        "large.ts",
        "-vf scale=320:180 -c:v libx264 -preset veryfast -pix_fmt yuv420p -frames:v 10",
    );
    let both = [
        fs::read(files.path("small.ts")).unwrap(),
        fs::read(files.path("large.ts")).unwrap(),
    ]
    .concat();
    fs::write(files.path("both.ts"), both).unwrap();
    let sizes: Vec<(u32, u32)> = read(&files.path("both.ts"))
        .unwrap()
        .frames
        .iter()
        .map(|(_, size, _)| *size)
        .collect();
    assert_eq!(sizes, [[(192, 144); 10], [(320, 180); 10]].concat());
}

#[test]
fn what_a_file_loses_is_counted() {
    let files = Files::new("flawed");
    let h264 = "-c:v libx264 -preset veryfast -pix_fmt yuv420p";
    files.make("whole.mp4", &format!("{h264} -movflags +faststart"));
    files.make("whole.mkv", h264);
    files.make("whole.avi", "-c:v mjpeg -pix_fmt yuvj420p");
    for kind in ["mp4", "mkv", "avi"] {
        files.cut(&format!("whole.{kind}"), &format!("cut.{kind}"));
        let path = files.path(&format!("cut.{kind}"));
        let read = read(&path).unwrap();
        assert_eq!(differs(&path, &read), None, "{kind}");
        let lost = read
            .unreadable
            .unwrap_or_else(|| panic!("{kind}: nothing is lost"));
        let all = read.frames.len() as u64 + lost.pictures;
        // An AVI says how long it lasts for its size, too.
        assert!(
            all == 60 || kind == "avi" && lost.pictures > 0,
            "{kind}: {} came, {lost:?}",
            read.frames.len()
        );
        assert_eq!(lost.why, "the file is cut off");
    }
    let mut flipped = fs::read(files.path("whole.mp4")).unwrap();
    let data = flipped.windows(4).position(|w| w == b"mdat").unwrap() + 4;
    // A simple generator: the same damage in every run.
    let mut state = 1_u64;
    for _ in 0..40 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = data + (state >> 33) as usize % (flipped.len() - data);
        flipped[at] ^= 1 << (state >> 61);
    }
    let path = files.path("flipped.mp4");
    fs::write(&path, flipped).unwrap();
    let read = read(&path).unwrap();
    // What is made up for broken parts depends on the threads that decode.
    assert_eq!(read.frames.len(), their_times(&path).len());
    let lost = read.unreadable.expect("some are damaged");
    assert!(lost.damaged + lost.pictures > 0, "{lost:?}");
}

#[test]
fn what_is_no_video_is_refused_by_name_and_what_looks_odd_is_told() {
    let files = Files::new("no-video");
    let h264 = "-c:v libx264 -preset veryfast -pix_fmt yuv420p";
    files.make("whole.mp4", h264);
    files.cut("whole.mp4", "no-moov.mp4");
    files.ffmpeg(&format!("-f lavfi -i {TONE} sound.m4a"));
    fs::write(files.path("empty.mp4"), "").unwrap();
    fs::write(files.path("text.txt"), "These are words.\n".repeat(50)).unwrap();
    fs::write(files.path("text.mp4"), "These are words.\n".repeat(50)).unwrap();
    fs::write(files.path("list.ts"), "#EXTM3U\n#EXTINF:1,\n/etc/passwd\n").unwrap();
    fs::write(
        files.path("list.txt"),
        "ffconcat version 1.0\nfile whole.mp4\n",
    )
    .unwrap();
    for (name, says) in [
        ("no-moov.mp4", "it has no index (moov atom)"),
        ("empty.mp4", "it has no index (moov atom)"),
        ("sound.m4a", "it has no video"),
        ("text.txt", "it is no kind of video that is read"),
        ("text.mp4", "it has no index (moov atom)"),
        ("list.ts", "ffmpeg finds no video in it"),
        ("list.txt", "it is no kind of video that is read"),
    ] {
        let path = files.path(name);
        let error = format!(
            "{:#}",
            read(&path)
                .err()
                .unwrap_or_else(|| panic!("{name} is read"))
        );
        let expected = format!("{}: {says}", path.display());
        assert!(error.starts_with(&expected), "{error}");
    }
    files.make(
        "interlaced.mp4",
        "-vf interlace -flags +ildct+ilme -c:v libx264 -preset veryfast -pix_fmt yuv420p",
    );
    files.make(
        "hdr.mp4",
        &format!("{h264} -color_trc smpte2084 -color_primaries bt2020 -colorspace bt2020nc"),
    );
    files.make("anamorphic.mp4", &format!("-vf setsar=4/3 {h264}"));
    for (name, says) in [
        ("interlaced.mp4", "its frames are interlaced"),
        ("hdr.mp4", "it is HDR (smpte2084)"),
        ("anamorphic.mp4", "its pixels are not square (4:3)"),
    ] {
        let path = files.path(name);
        let read = read(&path).unwrap();
        assert_eq!(differs(&path, &read), None, "{name}");
        let remark = read.remark.unwrap_or_default();
        assert!(remark.contains(says), "{name}: {remark}");
    }
}

/// The process of ffmpeg is bound to a thread: that must not be the one that opened the source, which may end.
#[test]
fn a_source_outlives_the_thread_that_opened_it() {
    let files = Files::new("outlives");
    files.make("a.mp4", "-c:v libx264 -preset veryfast -pix_fmt yuv420p");
    let path = files.path("a.mp4").to_string_lossy().into_owned();
    let open = move || SourceSpec::parse(&path).unwrap().open(0, SILENT).unwrap();
    let mut source = std::thread::spawn(open).join().unwrap();
    let mut frames = 0;
    while source.next_frame().unwrap().is_some() {
        frames += 1;
    }
    assert_eq!(frames, 60);
    // Its end is known, and the process is not ended before.
    assert!(source.next_frame().unwrap().is_none());
}
