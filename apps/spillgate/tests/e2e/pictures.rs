//! Pictures as the rest of the world reads them: files that `cjpeg` and Pillow write, flawed ones too, decode as Pillow decodes them, or
//! are refused as it refuses them. `SPILLGATE_PICTURES=all` tries every combination; otherwise some are drawn.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use spillgate_picture::{Decoded, Frame, NotDecoded, Picture, decode};

/// Writes the pictures that cjpeg does not, and reads all: `read FOLDER` leaves `NAME.raw`, or nothing where Pillow refuses a file.
const PILLOW: &str = include_str!("pictures.py");
/// Mean difference of a sample from Pillow's.
const DIFFERENCE_MAX: f64 = 2.0;
/// One of so many combinations is drawn.
const DRAWN_ONE_IN: usize = 12;

struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("spillgate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Files { folder }
    }

    fn python(&self, task: &str) {
        let python = super::env("SPILLGATE_PYTHON");
        let mut run = Command::new(python);
        run.args(["-c", PILLOW, task]).arg(&self.folder);
        let output = run.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let is_picture = |name: &String| !name.ends_with(".raw") && !name.ends_with(".ppm");
        let mut names: Vec<String> = names.filter(is_picture).collect();
        names.sort();
        names
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn ours(path: &Path) -> Result<Decoded, NotDecoded> {
    let frame = Frame::file(fs::read(path).unwrap().into());
    let picture = Picture::of(&frame, 1 << 26).map_err(NotDecoded::Unreadable)?;
    decode(&frame, &picture, &mut || false)
}

/// Mean difference of their samples; infinite where they have not equally many.
fn difference(ours: &[u8], theirs: &[u8]) -> f64 {
    if ours.len() != theirs.len() {
        return f64::INFINITY;
    }
    let pairs = ours.iter().zip(theirs);
    pairs.map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / ours.len() as f64
}

/// Reads all files both ways; says what differs, and returns what ours noticed of damage, by name.
fn compare(files: &Files) -> BTreeMap<String, Option<&'static str>> {
    files.python("read");
    let mut wrong = Vec::new();
    let mut read = BTreeMap::new();
    let names = files.names();
    for name in &names {
        let theirs = fs::read(files.folder.join(format!("{name}.raw")));
        match (ours(&files.folder.join(name)), theirs) {
            (Ok(ours), Ok(theirs)) => {
                let difference = difference(&ours.rgb, &theirs);
                if difference > DIFFERENCE_MAX {
                    wrong.push(format!("{name}: differs by {difference:.1}"));
                }
                read.insert(name.clone(), ours.damage.map(|d| d.explain()));
            }
            (Err(why), Ok(_)) => wrong.push(format!("{name}: Pillow reads it, we say {why:?}")),
            (Ok(_), Err(_)) => wrong.push(format!("{name}: Pillow refuses it, we read it")),
            (Err(_), Err(_)) => {}
        }
    }
    let n = names.len();
    println!("{n} files, {} read by both", read.len());
    assert!(
        wrong.is_empty(),
        "{} of {n}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    read
}

/// A gradient with edges, in which a wrong layout of samples shows.
fn ppm(width: usize, height: usize) -> Vec<u8> {
    let mut out = format!("P6\n{width} {height}\n255\n").into_bytes();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let edge = if (x / 5 + y / 3) % 2 == 0 { 40 } else { 200 };
        out.extend([
            (x * 255 / width.max(2)) as u8,
            (y * 255 / height.max(2)) as u8,
            edge,
        ]);
    }
    out
}

fn cjpeg(input: &Path, output: &Path, args: &[&str]) -> bool {
    let mut run = Command::new("cjpeg");
    run.args(["-quality", "90"]).args(args).arg("-outfile");
    let status = run.arg(output).arg(input).stderr(Stdio::null()).status();
    let status = status.expect("cjpeg is installed (Debian: libjpeg-turbo-progs)");
    if !status.success() {
        // It writes no picture of that combination.
        let _ = fs::remove_file(output);
    }
    status.success()
}

fn samplings() -> Vec<String> {
    let mut all = vec!["1x1".to_owned()];
    for (a, b) in (1..=4).flat_map(|a| (1..=4).map(move |b| (a, b))) {
        for (c, d) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            all.push(format!("{a}x{b},{c}x{d},{c}x{d}"));
        }
    }
    let odd = [
        "1x1,2x1,1x2",
        "1x2,2x2,2x1",
        "2x2,2x1,1x2",
        "2x1,2x1,1x1",
        "1x1,2x2,1x1",
    ];
    all.extend(odd.map(str::to_owned));
    all
}

#[test]
fn whatever_cjpeg_writes_decodes_as_pillow_decodes_it() {
    let files = Files::new("cjpeg");
    let scans = files.folder.join("scans.ppm");
    fs::write(&scans, "0;\n1;\n2;\n").unwrap();
    let scans = scans.to_str().unwrap();
    let ways: [&[&str]; 11] = [
        &[],
        &["-optimize"],
        &["-progressive"],
        &["-restart", "1"],
        &["-restart", "3B"],
        &["-progressive", "-restart", "2"],
        &["-arithmetic"],
        &["-arithmetic", "-progressive"],
        &["-grayscale"],
        &["-rgb"],
        &["-scans", scans],
    ];
    let all = std::env::var("SPILLGATE_PICTURES").is_ok_and(|which| which == "all");
    let (mut tried, mut wrote) = (0, 0);
    for (width, height) in [(1, 1), (7, 13), (16, 16), (33, 17), (64, 48), (97, 101)] {
        let input = files.folder.join(format!("{width}x{height}.ppm"));
        fs::write(&input, ppm(width, height)).unwrap();
        for (sampling, way) in samplings().iter().flat_map(|s| ways.map(|way| (s, way))) {
            tried += 1;
            // A step that shares no factor with the lists: each size, sampling and way is drawn.
            if !all && tried % DRAWN_ONE_IN != 5 {
                continue;
            }
            let name = format!("{width}x{height} {sampling} {}.jpg", way.join(" "));
            let output = files.folder.join(name.replace(['/', ' '], "_"));
            let args = [&["-sample", sampling.as_str()][..], way].concat();
            wrote += usize::from(cjpeg(&input, &output, &args));
        }
    }
    let read = compare(&files);
    assert!(
        read.len() == wrote && wrote > 150,
        "{} of {wrote}",
        read.len()
    );
    assert!(read.values().all(Option::is_none), "nothing is damaged");
}

#[test]
fn what_pillow_writes_is_read_upright_in_its_colours() {
    let files = Files::new("pillow");
    files.python("write");
    let read = compare(&files);
    assert_eq!(read.len(), files.names().len(), "each is read");
    assert!(read.values().all(Option::is_none), "nothing is damaged");
}

#[test]
fn flawed_pictures_are_read_or_refused_as_pillow_does_and_damage_is_told() {
    let files = Files::new("flawed");
    files.python("break");
    let read = compare(&files);
    for (name, damage) in &read {
        let is_whole = name.contains("whole");
        assert_eq!(damage.is_none(), is_whole, "{name}: {damage:?}");
    }
    let n_damaged = read.values().filter(|damage| damage.is_some()).count();
    assert!(n_damaged >= 3, "{read:?}");
}
