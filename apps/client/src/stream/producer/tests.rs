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
            };
            notices.lock().unwrap().push(text);
        }),
        preload: None,
        limit: None,
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
fn a_live_source_that_never_had_a_frame_is_an_error_at_once() {
    let (mut camera, told) = config(&[Opened::Breaks(0), Opened::Ends(9)], true);
    camera.reconnect = true;
    assert_eq!(drain(camera), (vec![], Some("unplugged".to_owned())));
    assert!(told.lock().unwrap().is_empty());
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
    };
    let frame = SourceFrame {
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
