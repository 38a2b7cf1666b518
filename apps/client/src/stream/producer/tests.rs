//! Sources that end, break and come back, as their producer sees them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// What a camera does each time it is opened.
#[derive(Clone, Copy)]
enum Opened {
    /// So many frames, and then the end.
    Ends(u32),
    /// So many frames, and then an error.
    Breaks(u32),
    /// It cannot be opened.
    Refused,
}

struct Camera {
    left: u32,
    breaks: bool,
    live: bool,
    size: u32,
}

impl Source for Camera {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        if self.left == 0 {
            return if self.breaks {
                Err(anyhow!("unplugged"))
            } else {
                Ok(None)
            };
        }
        self.left -= 1;
        Ok(Some(SourceFrame {
            content: Content::Picture(RgbImage::new(self.size, 16)),
            truth: None,
            media: None,
            number: 0,
        }))
    }

    fn is_live(&self) -> bool {
        self.live
    }
}

type Told = Arc<Mutex<Vec<String>>>;

fn config(script: &'static [Opened], live: bool) -> (ProducerConfig, Told) {
    let opened = AtomicUsize::new(0);
    let told = Told::default();
    let notices = told.clone();
    let config = ProducerConfig {
        open: Box::new(move || {
            let idx = opened.fetch_add(1, Ordering::Relaxed);
            let camera = |left, breaks| {
                let size = 16;
                Ok(Box::new(Camera {
                    left,
                    breaks,
                    live,
                    size,
                }) as Box<dyn Source>)
            };
            match script.get(idx) {
                Some(Opened::Ends(n)) => camera(*n, false),
                Some(Opened::Breaks(n)) => camera(*n, true),
                Some(Opened::Refused) | None => Err(anyhow!("no such camera")),
            }
        }),
        encoding: Encoding::Rgb,
        max_side: 64,
        wanted: None,
        keep_pictures: false,
        repeat: false,
        reconnect: false,
        tell: Box::new(move |notice| {
            let text = match notice {
                Notice::Lost(text) => text,
                // How long it was away differs.
                Notice::Back(text) => text.split(" after").next().unwrap_or_default().to_owned(),
                Notice::Remark(text) | Notice::Jumped(text) => text,
                Notice::Skipped(n) => format!("{n} skipped"),
                Notice::Unreadable(..) => return,
            };
            notices.lock().unwrap().push(text);
        }),
        preload: None,
        limit: None,
        is_remote: false,
        live_interval: None,
        runs: Arc::new(AtomicBool::new(true)),
        stop: CancellationToken::new(),
    };
    (config, told)
}

/// The gaps before the frames that came, in order, and how it ended.
fn drain(config: ProducerConfig) -> (Vec<bool>, Option<String>) {
    let mut producer = Producer::start(config).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = producer.frames.blocking_recv() {
        match frame {
            Ok(frame) => frames.push(frame.after_gap),
            Err(error) => return (frames, Some(format!("{error:#}"))),
        }
    }
    (frames, None)
}

#[test]
fn a_live_source_that_ends_is_an_error_and_a_file_that_ends_is_not() {
    let (live, told) = config(&[Opened::Ends(1)], true);
    let (frames, error) = drain(live);
    assert_eq!(frames.len(), 1);
    assert_eq!(
        error.unwrap(),
        "the live source ended after 1 frames (--reconnect waits for it to come back)"
    );
    assert!(told.lock().unwrap().is_empty());
    let (file, _) = config(&[Opened::Ends(3)], false);
    assert_eq!(drain(file), (vec![false; 3], None));
}

#[test]
fn a_live_source_that_stops_is_opened_again_and_told_once_each_way() {
    const SCRIPT: &[Opened] = &[
        Opened::Breaks(1),
        Opened::Refused,
        Opened::Refused,
        // What ffmpeg does while the camera is away: it opens, and has no frame.
        Opened::Breaks(0),
        Opened::Ends(1),
    ];
    let (mut camera, told) = config(SCRIPT, true);
    camera.reconnect = true;
    camera.limit = Some(2);
    assert_eq!(drain(camera), (vec![false, true], None));
    assert_eq!(
        *told.lock().unwrap(),
        [
            "unplugged; trying to reach it again",
            "no such camera; still trying",
            "the source is back"
        ]
    );
}

#[test]
fn a_live_source_that_is_off_at_the_start_is_as_one_that_is_gone_later() {
    let (mut camera, told) = config(&[Opened::Breaks(0), Opened::Refused, Opened::Ends(1)], true);
    camera.reconnect = true;
    camera.limit = Some(1);
    assert_eq!(drain(camera), (vec![true], None));
    let says = [
        "unplugged; trying to reach it again",
        "no such camera; still trying",
        "the source is back",
    ];
    assert_eq!(*told.lock().unwrap(), says);
    let (camera, _) = config(&[Opened::Breaks(0)], true);
    let error = drain(camera).1.unwrap();
    assert_eq!(error, "unplugged (--reconnect waits for it to come back)");
}

#[test]
fn a_remote_source_that_cannot_be_opened_is_waited_for_unless_the_run_is_over() {
    const SCRIPT: &[Opened] = &[Opened::Refused, Opened::Ends(2)];
    let (mut remote, told) = config(SCRIPT, false);
    (remote.reconnect, remote.is_remote) = (true, true);
    assert_eq!(drain(remote), (vec![false; 2], None));
    assert_eq!(
        *told.lock().unwrap(),
        ["no such camera; trying to reach it again"]
    );
    let (mut over, _) = config(SCRIPT, false);
    (over.reconnect, over.is_remote) = (true, true);
    over.stop.cancel();
    assert!(Producer::start(over).is_err());
    let (file, _) = config(SCRIPT, false);
    assert!(Producer::start(file).is_err());
}

/// Frames with numbers and times of their own.
struct Scripted {
    frames: std::vec::IntoIter<(u64, f64)>,
    live: bool,
    unreadable: Unreadable,
}

impl Source for Scripted {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        self.unreadable.damaged += 1;
        Ok(self.frames.next().map(|(number, media)| SourceFrame {
            content: Content::Picture(RgbImage::new(16, 16)),
            truth: None,
            media: Some(media),
            number,
        }))
    }

    fn unreadable(&self) -> Option<&Unreadable> {
        Some(&self.unreadable)
    }

    fn is_live(&self) -> bool {
        self.live
    }
}

/// A source of these frames, what it tells, and its frames' times in milliseconds.
fn scripted(frames: &[(u64, f64)], live: bool) -> (Vec<String>, Vec<u128>, String) {
    let (mut config, told) = config(&[], live);
    let frames = frames.to_vec();
    config.open = Box::new(move || {
        let unreadable = Unreadable {
            pictures: 2,
            damaged: 0,
            why: "a hole".to_owned(),
        };
        Ok(Box::new(Scripted {
            frames: frames.clone().into_iter(),
            live,
            unreadable,
        }))
    });
    let mut producer = Producer::start(config).unwrap();
    let mut times = Vec::new();
    loop {
        match producer.frames.blocking_recv().unwrap() {
            Ok(frame) => times.push(frame.at.as_millis()),
            Err(error) => return (told.lock().unwrap().clone(), times, format!("{error:#}")),
        }
    }
}

#[test]
fn what_a_source_skips_loses_and_jumps_is_told() {
    let (told, _, _) = scripted(&[(0, 0.0), (3, 0.12), (4, 0.16)], true);
    assert_eq!(told, ["2 skipped"]);
    let (told, times, error) = scripted(&[(0, 5.0), (1, 5.5), (2, 1.0), (3, 1.5)], false);
    assert_eq!(told, ["the source's clock jumps from 5.500 s to 1.000 s"]);
    assert_eq!(times, [0, 500, 1000, 1500]);
    assert_eq!(
        error,
        "2 of 6 pictures of the source could not be decoded, and 5 are damaged; the first: a hole"
    );
}

#[test]
fn a_source_that_panics_is_an_error_and_no_end() {
    struct Broken;
    impl Source for Broken {
        fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
            panic!("a bug")
        }
    }
    let (mut config, _) = config(&[], false);
    config.open = Box::new(|| Ok(Box::new(Broken)));
    assert_eq!(
        drain(config).1.unwrap(),
        "the thread of the source panicked"
    );
}

#[test]
fn the_last_frame_that_is_wanted_ends_it_though_the_camera_goes_on() {
    let (mut camera, _) = config(&[Opened::Ends(1)], true);
    camera.limit = Some(1);
    assert_eq!(drain(camera), (vec![false], None));
}

#[test]
fn what_is_too_large_is_made_smaller_whatever_it_comes_as() {
    let (config, _) = config(&[], false);
    let large = RgbImage::new(200, 100);
    let file = crate::encode::jpeg(&large, 90).unwrap();
    for content in [
        Content::Picture(large),
        Content::File {
            data: file.into(),
            path: "large.jpg".into(),
        },
    ] {
        let frame = SourceFrame {
            content,
            truth: None,
            media: None,
            number: 0,
        };
        let encoded = prepare(frame, &config).unwrap().made.encoded;
        assert_eq!((encoded.width, encoded.height), (64, 32));
    }
}

/// A phone stores what it sees turned, and says so: what is made smaller of it, or drawn into, is upright.
#[test]
fn pictures_that_say_how_they_lie_are_turned_before_they_are_made_smaller() {
    let red = image::Rgb([220, 20, 20]);
    let blue = image::Rgb([20, 20, 220]);
    let stored = RgbImage::from_fn(64, 32, |x, _| if x < 32 { red } else { blue });
    let mut file = crate::encode::jpeg(&stored, 95).unwrap();
    // Behind the first marker: a segment of 34 bytes, in which the picture's left edge is at the top (6).
    let mut exif =
        b"\xff\xe1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06".to_vec();
    exif.extend([0; 6]);
    file.splice(2..2, exif);
    let config = ProducerConfig {
        open: Box::new(|| Err(anyhow!("it is open"))),
        encoding: Encoding::Jpeg(95),
        max_side: 32,
        wanted: None,
        keep_pictures: true,
        repeat: false,
        reconnect: false,
        tell: Box::new(|_| {}),
        preload: None,
        limit: None,
        is_remote: false,
        live_interval: None,
        runs: Arc::new(AtomicBool::new(true)),
        stop: CancellationToken::new(),
    };
    let frame = SourceFrame {
        media: None,
        number: 0,
        content: Content::File {
            data: file.into(),
            path: "phone.jpg".into(),
        },
        truth: None,
    };
    let prepared = prepare(frame, &config).unwrap();
    assert_eq!(prepared.made.source, (32, 64));
    assert_eq!(prepared.made.size, (16, 32));
    let sent = picture::read(&prepared.made.encoded.data).unwrap();
    let drawn_into = prepared.picture.unwrap();
    for picture in [&sent, &*drawn_into] {
        let (width, height) = picture.dimensions();
        let at = |y: u32| picture.get_pixel(width / 2, y).0;
        assert!(at(1)[0] > 180 && at(1)[2] < 80, "{:?}", at(1));
        assert!(at(height - 2)[2] > 180, "{:?}", at(height - 2));
    }
}
