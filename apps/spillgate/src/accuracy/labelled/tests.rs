use expect_test::{Expect, expect};
use image::{Rgb, RgbImage};
use tempfile::TempDir;

use super::*;

/// A folder that goes with its test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn text(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A picture of 200x100.
    fn picture(&self, name: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let pixels = RgbImage::from_pixel(200, 100, Rgb([9, 9, 9]));
        pixels.save(path).unwrap();
    }

    fn open(&self) -> Result<Labelled> {
        Labelled::open(self.path(), None)
    }

    /// The error without this machine's path.
    fn error(&self, expected: &Expect) {
        let error = format!("{:#}", self.open().expect_err("an error"));
        expected.assert_eq(&error.replace(self.path(), "DIR"));
    }
}

fn truths(source: &Labelled) -> Vec<Truth> {
    source.samples().map(|s| s.unwrap().truth).collect()
}

#[test]
fn labels_lie_beside_pictures_or_in_folders_of_their_own() {
    for (images, labels) in [("", ""), ("images/", "labels/")] {
        let folder = Folder::new();
        folder.text("classes.txt", "vehicle\nperson\n");
        folder.picture(&format!("{images}b.png"));
        folder.picture(&format!("{images}a.1.jpg"));
        folder.text(
            &format!("{labels}a.1.txt"),
            "1 0.5 0.5 0.5 0.5\n0 0 0.5 0.2 1\n",
        );
        folder.text(&format!("{labels}b.txt"), "");
        let source = folder.open().unwrap();
        assert_eq!((source.kind(), source.count()), (Kind::Boxes, 2));
        assert_eq!(source.classes(), ["vehicle", "person"]);
        let vehicle = (Rect::new(0.0, 0.0, 20.0, 100.0), true);
        let person = (Rect::new(50.0, 25.0, 150.0, 75.0), true);
        assert_eq!(
            truths(&source),
            [
                Truth::Boxes(vec![vec![vehicle], vec![person]]),
                Truth::Boxes(vec![vec![], vec![]]),
            ]
        );
    }
}

#[test]
fn subfolders_are_classes() {
    let folder = Folder::new();
    folder.picture("night/a.png");
    folder.picture("day/b.jpg");
    folder.picture("day/a.png");
    folder.text("empty/notes.md", "");
    folder.picture(".hidden/a.png");
    let source = folder.open().unwrap();
    assert_eq!(source.kind(), Kind::Class);
    assert_eq!(source.classes(), ["day", "night"]);
    assert_eq!(
        truths(&source),
        [Truth::Class(0), Truth::Class(0), Truth::Class(1)]
    );
}

#[test]
fn errors_name_file_and_line() {
    let folder = Folder::new();
    folder.error(&expect!["DIR has no .jpg, .jpeg, .png or .webp files, and no folder in it has; give scene, scene:density=0.7, or a folder with labels: either pictures with YOLO labels (NAME.txt beside NAME.jpg, and classes.txt), or a subfolder of pictures for each class"]);
    folder.picture("a.png");
    folder.error(&expect!["DIR/classes.txt: cannot be read; it names the classes of the labels, one a line, in the order of their numbers: No such file or directory (os error 2)"]);
    folder.text("classes.txt", "car\n");
    folder.picture("b.png");
    folder.text("b.txt", "0 0.5 0.5 0.1 0.1\n1 0.5 0.5 0.1 0.1\n");
    folder.error(&expect![[r#"
        DIR/a.txt: No such file or directory (os error 2); each picture needs its labels: a line an object, "class x_center y_center width height", or an empty file where there is none
        DIR/b.txt:2: class "1" is none of the 1 of classes.txt; use its number there, 0 to 0"#]]);
    folder.text("a.txt", &"x\n".repeat(12));
    let error = folder.open().unwrap_err().to_string();
    assert_eq!(error.lines().count(), ERRORS + 1);
    assert!(error.ends_with("\nand 3 more"), "{error}");
    folder.text("a.txt", "");
    folder.text("b.txt", "");
    folder.error(&expect![
        "the labels in DIR name no object at all, so there is nothing to find"
    ]);
    std::fs::remove_file(folder.0.path().join("a.png")).unwrap();
    std::fs::remove_file(folder.0.path().join("b.png")).unwrap();
    folder.error(&expect!["DIR has no .jpg, .jpeg, .png or .webp files"]);
}

/// Errors that are shown.
const ERRORS: usize = 10;

#[test]
fn a_picture_that_is_none_is_named() {
    let folder = Folder::new();
    folder.text("classes.txt", "car\n");
    folder.text("a.jpg", "junk");
    folder.text("a.txt", "0 0.5 0.5 0.1 0.1\n");
    let source = folder.open().unwrap();
    let error = source.samples().next().unwrap().unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("a.jpg: the frame's 4 bytes are neither JPEG, PNG nor WebP"),
        "{error}"
    );
}

/// Whoever fills the folder takes no memory of the program.
#[test]
fn pictures_and_labels_without_end_are_refused() {
    let folder = Folder::new();
    folder.text("classes.txt", "car\n");
    let endless = |name: &str| {
        std::os::unix::fs::symlink("/dev/zero", folder.0.path().join(name)).unwrap();
    };
    endless("a.jpg");
    folder.text("a.txt", "0 0.5 0.5 0.1 0.1\n");
    let error = folder.open().unwrap().samples().next().unwrap();
    let error = format!("{:#}", error.unwrap_err());
    let limit = "it has more than the 67108864 bytes that are read";
    assert!(error.ends_with(&format!("a.jpg: {limit}")), "{error}");
    folder.picture("b.jpg");
    endless("b.txt");
    let error = folder.open().unwrap_err().to_string();
    assert!(
        error.contains("b.txt: it has more than the 4194304 bytes"),
        "{error}"
    );
}

#[test]
fn other_sources_are_refused() {
    let error = |text: &str, frames| Labelled::open(text, frames).unwrap_err().to_string();
    let unknown = error("scenes", None);
    assert!(
        unknown.starts_with("no folder \"scenes\" can be read; give scene, "),
        "{unknown}"
    );
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(error(file, None).contains("has no truth to compare with; give scene, "));
    assert!(error(env!("CARGO_MANIFEST_DIR"), Some(9)).starts_with("--frames is for scenes"));
    assert!(error("scene:sed=7", None).contains("unknown scene option"));
}

#[test]
fn a_scene_is_many_streets() {
    let source = Labelled::open("scene:seed=7,size=128x96", Some(6)).unwrap();
    assert_eq!((source.kind(), source.count()), (Kind::Boxes, 6));
    assert_eq!(source.classes(), ["vehicle", "person"]);
    let names: Vec<String> = source.samples().map(|s| s.unwrap().name).collect();
    let streets: Vec<&str> = names
        .iter()
        .filter_map(|n| Some(n.split_once(" of ")?.1))
        .collect();
    assert!(
        streets[..4]
            .iter()
            .all(|s| s.starts_with("scene:seed=7,density=")),
        "{names:?}"
    );
    assert!(
        streets[4..]
            .iter()
            .all(|s| s.starts_with("scene:seed=8,density=")),
        "{names:?}"
    );
    assert_ne!(names[0], names[1]);
    let of_density = Labelled::open("scene:density=0.25", Some(1)).unwrap();
    let name = of_density.samples().next().unwrap().unwrap().name;
    assert!(name.ends_with(" of scene:seed=1,density=0.25"), "{name}");
    let pictures = |source: &Labelled| -> Vec<Bytes> {
        source.samples().map(|s| s.unwrap().picture).collect()
    };
    assert_eq!(pictures(&source), pictures(&source));
}
