//! Payloads of requests: bytes, texts, or pictures. They are read, drawn and encoded before the load starts, so that
//! neither files nor the scene cost anything while it runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use image::RgbImage;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_proto::pb;
use spillgate_proto::pb::FrameFormat;
use spillgate_scenes::{GroundTruth, MIN_VISIBLE, Scene, SceneConfig};

use super::BenchArgs;
use super::scenario::Requests;
use crate::encode::{Encoding, encode};
use crate::models;
use crate::source::{Content, SILENT, SourceSpec};

/// Default size for pipelines over bytes.
const PAYLOAD_BYTES: usize = 1024;
/// Default number of pictures of each scene: enough to settle the mean work of a frame within some percent.
const FRAMES: u16 = 64;
/// Most bytes of all pictures and texts: they stay in memory while the load runs.
pub(crate) const PAYLOADS_BYTES_MAX: usize = 256 << 20;
/// Most streets that are searched for one person: an empty scene has none, however long the search.
const STREETS_MAX: u64 = 16;
/// Least width of a person in pixels; a narrower one is a speck.
const PERSON_WIDTH_MIN: u32 = 8;
/// Quality of the frames of a scene, as `stream` sends them.
const JPEG_QUALITY: u8 = 90;

/// The payloads; each request carries one of them.
pub(super) struct Payloads {
    pub(super) frames: Vec<pb::Frame>,
    pub(super) order: Order,
}

/// Which payload is next.
pub(crate) enum Order {
    /// One after the other, from this one on.
    InTurn(usize),
    /// At random.
    Random(Box<ChaCha8Rng>),
    /// As listed; what comes after the list is the first.
    Listed(std::vec::IntoIter<u32>),
}

impl Order {
    fn of(args: &BenchArgs) -> Order {
        if !args.shuffle {
            return Order::InTurn(0);
        }
        let mut random = ChaCha8Rng::seed_from_u64(args.seed);
        // Other numbers than those of the arrival times.
        random.set_stream(1);
        Order::Random(Box::new(random))
    }

    /// Which of `n` payloads the next request carries.
    pub(super) fn next(&mut self, n: usize) -> usize {
        match self {
            Order::InTurn(next) => {
                let idx = *next % n;
                *next = idx + 1;
                idx
            }
            Order::Random(random) => random.random_range(0..n),
            Order::Listed(list) => list.next().map_or(0, |idx| idx as usize),
        }
    }
}

impl Payloads {
    /// Makes all payloads.
    pub(super) fn of(args: &BenchArgs, pipeline: &pb::PipelineDescription) -> Result<Payloads> {
        let groups = groups(args, pipeline)?;
        let application = |idx: usize| match args.application.as_slice() {
            [] => Ok(String::new()),
            [one] => Ok(one.clone()),
            names if names.len() == groups.len() => Ok(names[idx].clone()),
            names => bail!(
                "--application: {} names for {} of --scene, --image or --texts; give one for all, or one for each",
                names.len(),
                groups.len()
            ),
        };
        let mut named = Vec::with_capacity(groups.len());
        for (idx, group) in groups.iter().enumerate() {
            named.push((application(idx)?, group));
        }
        // One of each set in turn, so that cameras alternate, until the longest set is used up.
        let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
        let mut frames = Vec::new();
        for idx in 0..longest {
            for (application, group) in &named {
                if let Some(frame) = group.get(idx) {
                    frames.push(pb::Frame {
                        timeout_ms: args.deadline.map_or(0.0, |d| d.as_secs_f64() * 1e3),
                        application: application.clone(),
                        ..frame.clone()
                    });
                }
            }
        }
        let frames = models::in_turn(&args.models, frames)?;
        Ok(Payloads {
            frames,
            order: Order::of(args),
        })
    }

    /// The only payload, for each model of a scenario.
    ///
    /// # Errors
    /// When there are several.
    pub(super) fn of_scenario(self, requests: &Requests, module: &str) -> Result<Payloads> {
        let [frame] = self.frames.as_slice() else {
            bail!("--scenario: give one picture for all requests");
        };
        Ok(Payloads {
            frames: requests.payloads(module, frame),
            order: Order::Listed(requests.order.clone().into_iter()),
        })
    }

    /// A description: how many payloads there are, and their size.
    pub(super) fn words(&self) -> String {
        let sizes = || self.frames.iter().map(|frame| frame.data.len());
        match self.frames.as_slice() {
            [one] => format!("{} bytes each", one.data.len()),
            all => format!(
                "{} payloads of {} to {} bytes",
                all.len(),
                sizes().min().unwrap_or(0),
                sizes().max().unwrap_or(0)
            ),
        }
    }
}

/// The frames of each `--scene` or `--image`, or of the default.
fn groups(args: &BenchArgs, pipeline: &pb::PipelineDescription) -> Result<Vec<Vec<pb::Frame>>> {
    let mut held = Held::default();
    if !args.image.is_empty() {
        let files = args.image.iter();
        return files.map(|path| read(path, &mut held)).collect();
    }
    if !args.scene.is_empty() {
        let n = args.frames.unwrap_or(FRAMES);
        let scenes = args.scene.iter();
        let draw = if args.people { draw_people } else { draw };
        return scenes.map(|scene| draw(scene, n, &mut held)).collect();
    }
    if !args.texts.is_empty() {
        let files = args.texts.iter();
        return files.map(|path| lines(path, &mut held)).collect();
    }
    if args.payload_bytes.is_some() || pipeline.source == "bytes" {
        let n = args.payload_bytes.map_or(PAYLOAD_BYTES, |n| n as usize);
        let mut data = vec![0; n];
        ChaCha8Rng::seed_from_u64(args.seed).fill_bytes(&mut data);
        return Ok(vec![vec![pb::Frame {
            data: Bytes::from(data),
            format: FrameFormat::Bytes.into(),
            ..Default::default()
        }]]);
    }
    Ok(vec![draw(&SceneConfig::default(), 1, &mut held)?])
}

/// Bytes of the pictures so far.
#[derive(Default)]
struct Held(usize);

impl Held {
    fn add(&mut self, data: &Bytes, option: &str) -> Result<()> {
        self.0 += data.len();
        if self.0 > PAYLOADS_BYTES_MAX {
            bail!(
                "{option}: this is more than {} MiB, which is what is kept in memory; give less",
                PAYLOADS_BYTES_MAX >> 20
            );
        }
        Ok(())
    }
}

/// A file, or the files of a folder in the order of their names.
fn read(path: &Path, held: &mut Held) -> Result<Vec<pb::Frame>> {
    let mut files = SourceSpec::Folder(PathBuf::from(path)).open(0, SILENT)?;
    let mut frames = Vec::new();
    while let Some(frame) = files.next_frame()? {
        let Content::File { data, .. } = frame.content else {
            unreachable!("a folder yields files as they are");
        };
        held.add(&data, "--image")?;
        frames.push(pb::Frame {
            data,
            ..Default::default()
        });
    }
    Ok(frames)
}

/// The lines of a file, empty ones left out.
fn lines(path: &Path, held: &mut Held) -> Result<Vec<pb::Frame>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("--texts: cannot read {}", path.display()))?;
    let text = Bytes::from(text);
    held.add(&text, "--texts")?;
    let mut frames = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if !line.is_empty() {
            frames.push(pb::Frame {
                data: text.slice_ref(line),
                format: FrameFormat::Bytes.into(),
                ..Default::default()
            });
        }
    }
    if frames.is_empty() {
        bail!(
            "--texts: {} has no lines; give one text a line",
            path.display()
        );
    }
    Ok(frames)
}

/// That many frames, each of a street of its own: frames of one street differ little.
fn draw(scene: &SceneConfig, n: u16, held: &mut Held) -> Result<Vec<pb::Frame>> {
    let frames = (0..n.into()).map(|idx| {
        let (picture, _) = street(scene, idx)?;
        encoded(&picture, held)
    });
    frames.collect()
}

/// That many people, cut out of as many streets as necessary.
fn draw_people(scene: &SceneConfig, n: u16, held: &mut Held) -> Result<Vec<pb::Frame>> {
    let n = usize::from(n);
    let mut frames = Vec::with_capacity(n);
    for idx in 0..n as u64 * STREETS_MAX {
        let (picture, truth) = street(scene, idx)?;
        for person in truth.people {
            let bbox = person.bbox;
            let (x0, y0) = (bbox.x0 as u32, bbox.y0 as u32);
            let (width, height) = ((bbox.x1 - bbox.x0) as u32, (bbox.y1 - bbox.y0) as u32);
            if person.visible >= MIN_VISIBLE && width >= PERSON_WIDTH_MIN && height > 0 {
                let cut = image::imageops::crop_imm(&picture, x0, y0, width, height);
                frames.push(encoded(&cut.to_image(), held)?);
            }
            if frames.len() == n {
                return Ok(frames);
            }
        }
    }
    bail!(
        "--people: {} streets of density {} and {}x{} pixels show only {} of {n} people; raise density or size",
        n as u64 * STREETS_MAX,
        scene.density,
        scene.width,
        scene.height,
        frames.len()
    )
}

/// A frame of a street that is determined by this seed and this number alone.
fn street(scene: &SceneConfig, idx: u64) -> Result<(RgbImage, GroundTruth)> {
    let street = SceneConfig {
        seed: scene.seed.wrapping_add(idx),
        ..scene.clone()
    };
    let (frame, truth) = Scene::new(street).frame(0);
    let picture = RgbImage::from_raw(frame.width, frame.height, frame.rgb)
        .context("a scene's frame has the wrong number of bytes")?;
    Ok((picture, truth))
}

fn encoded(picture: &RgbImage, held: &mut Held) -> Result<pb::Frame> {
    let encoded = encode(picture, Encoding::Jpeg(JPEG_QUALITY))?;
    held.add(&encoded.data, "--scene")?;
    Ok(pb::Frame {
        data: encoded.data,
        format: encoded.format.into(),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn payloads(arguments: &[&str]) -> Result<Payloads> {
        let words = ["bench", "--rate", "1"].iter().chain(arguments);
        let pipeline = pb::PipelineDescription {
            source: "image".into(),
            ..Default::default()
        };
        Payloads::of(&Cli::parse_from(words).bench, &pipeline)
    }

    #[test]
    fn cameras_alternate_and_each_frame_differs() {
        let arguments = ["--scene", "size=64x64,density=0", "--frames", "3"];
        let more = ["--scene", "scene:size=64x64,density=1,seed=9"];
        let names = ["--application", "quiet", "--application", "busy"];
        let all = payloads(&[&arguments[..], &more, &names].concat()).unwrap();
        let by: Vec<&str> = all.frames.iter().map(|f| f.application.as_str()).collect();
        assert_eq!(by, ["quiet", "busy", "quiet", "busy", "quiet", "busy"]);
        let distinct: std::collections::BTreeSet<_> = all.frames.iter().map(|f| &f.data).collect();
        assert_eq!(distinct.len(), 6);
        assert!(all.words().starts_with("6 payloads of "), "{}", all.words());
        let again = payloads(&[&arguments[..], &more].concat()).unwrap();
        assert_eq!(again.frames[3].data, all.frames[3].data);
        assert_eq!(again.frames[3].application, "");
    }

    #[test]
    fn the_models_of_a_module_are_asked_for_in_turn() {
        let arguments = ["--model", "m=a", "--model", "m=b", "--model", "n=c"];
        let all = payloads(&arguments).unwrap();
        let of = |module: &str| {
            let named = all.frames.iter().map(|f| f.models[module].as_str());
            named.collect::<Vec<&str>>()
        };
        assert_eq!((of("m"), of("n")), (vec!["a", "b"], vec!["c", "c"]));
        assert_eq!(all.frames[0].data, all.frames[1].data);
        assert!(payloads(&[]).unwrap().frames[0].models.is_empty());
    }

    #[test]
    fn names_that_fit_no_camera_are_refused() {
        let names = ["--application", "a", "--application", "b"];
        let error = payloads(&names).err().unwrap().to_string();
        assert_eq!(
            error,
            "--application: 2 names for 1 of --scene, --image or --texts; give one for all, or one for each"
        );
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_names() {
        let folder = std::env::temp_dir().join(format!("spillgate-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, side) in [("b.png", 2), ("a.png", 1), ("c.txt", 3)] {
            let file = folder.join(name);
            let picture = RgbImage::new(side, side);
            picture
                .save_with_format(file, image::ImageFormat::Png)
                .unwrap();
        }
        let path = folder.to_str().unwrap();
        let one = folder.join("b.png");
        let read = payloads(&["--image", path, "--image", one.to_str().unwrap()]);
        std::fs::remove_dir_all(&folder).unwrap();
        let widths: Vec<u32> = (read.unwrap().frames.iter())
            .map(|f| image::load_from_memory(&f.data).unwrap().width())
            .collect();
        // The folder's first, the single file, the folder's second.
        assert_eq!(widths, [1, 2, 2]);
        let error = payloads(&["--image", path]).err().unwrap();
        assert!(format!("{error:#}").contains(path), "{error:#}");
    }

    #[test]
    fn people_are_cut_out_and_an_empty_street_has_none() {
        let scene = [
            "--scene",
            "size=320x180,density=1",
            "--frames",
            "5",
            "--people",
        ];
        let people = payloads(&scene).unwrap().frames;
        assert_eq!(people.len(), 5);
        for frame in &people {
            let picture = image::load_from_memory(&frame.data).unwrap();
            assert!(picture.width() >= PERSON_WIDTH_MIN && picture.width() < 160);
            assert!(picture.height() > picture.width());
        }
        let empty = [
            "--scene",
            "size=64x64,density=0",
            "--frames",
            "1",
            "--people",
        ];
        let error = payloads(&empty).err().unwrap().to_string();
        assert!(
            error.starts_with("--people: 16 streets of density 0"),
            "{error}"
        );
    }

    #[test]
    fn texts_are_the_lines_of_a_file() {
        let file = std::env::temp_dir().join(format!("spillgate-lines-{}", std::process::id()));
        std::fs::write(&file, "12\r\n\n 345\n").unwrap();
        let read = payloads(&["--texts", file.to_str().unwrap()]).unwrap();
        std::fs::write(&file, "\n").unwrap();
        let empty = payloads(&["--texts", file.to_str().unwrap()]);
        std::fs::remove_file(&file).unwrap();
        let texts: Vec<&[u8]> = read.frames.iter().map(|f| &f.data[..]).collect();
        assert_eq!(texts, [b"12".as_slice(), b"345"]);
        assert!(empty.err().unwrap().to_string().contains("one text a line"));
    }

    #[test]
    fn memory_is_bounded() {
        let mut held = Held(PAYLOADS_BYTES_MAX);
        assert!(held.add(&Bytes::new(), "--image").is_ok());
        let error = held.add(&Bytes::from_static(b"x"), "--image").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("--image: this is more than 256 MiB")
        );
    }

    #[test]
    fn the_order_is_in_turn_or_at_random_by_the_seed() {
        let drawn = |arguments: &[&str]| {
            let mut order = payloads(&[&["--payload-bytes", "1"], arguments].concat())
                .unwrap()
                .order;
            (0..30).map(|_| order.next(4)).collect::<Vec<usize>>()
        };
        assert_eq!(drawn(&[])[..5], [0, 1, 2, 3, 0]);
        let shuffled = drawn(&["--shuffle"]);
        assert_eq!(shuffled, drawn(&["--shuffle"]));
        assert_ne!(shuffled, drawn(&["--shuffle", "--seed", "2"]));
        assert!((0..4).all(|idx| shuffled.contains(&idx)));
        assert!(shuffled.windows(2).any(|pair| pair[1] != (pair[0] + 1) % 4));
    }
}
