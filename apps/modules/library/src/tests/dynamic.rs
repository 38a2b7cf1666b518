//! The modules whose batches shrink, against a fake backend: who goes on, who leaves, what fails alone.

use spillgate_process::value::{LeftOut, Text};

use super::*;

type Part = Arc<dyn Fn(&str, &[Tensor]) -> Tensor + Send + Sync>;

/// A backend whose models answer by the name of their file, and note it with the rows of each call.
#[derive(Clone)]
struct Parts {
    answer: Part,
    calls: Arc<Mutex<Vec<(String, i64)>>>,
    missing: &'static str,
}

impl Parts {
    fn new(answer: impl Fn(&str, &[Tensor]) -> Tensor + Send + Sync + 'static) -> Self {
        Parts {
            answer: Arc::new(answer),
            calls: Arc::default(),
            missing: "",
        }
    }

    /// The rows of each forward of a file, in order.
    fn sizes(&self, file: &str) -> Vec<i64> {
        let calls = self.calls.lock().unwrap();
        let of_file = calls.iter().filter(|(name, _)| name == file);
        of_file.map(|(_, n)| *n).collect()
    }
}

struct FakePart(String, Parts);

impl Backend for Parts {
    fn device_kind(&self) -> &'static str {
        "emulated"
    }

    fn load(&mut self, path: &Path) -> Result<Box<dyn Model>, BackendError> {
        let name = path.file_name().expect("a file").to_string_lossy();
        if name == self.missing {
            return Err(BackendError::Load {
                path: path.to_path_buf(),
                detail: "No such file or directory".to_owned(),
            });
        }
        Ok(Box::new(FakePart(name.into_owned(), self.clone())))
    }
}

impl Model for FakePart {
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let FakePart(name, parts) = self;
        (parts.calls.lock().unwrap()).push((name.clone(), inputs[0].shape[0]));
        Ok(vec![(parts.answer)(name, inputs)])
    }
}

const WHO: &str = "
op: early_exit_classifier
variants: [{ model: net.pt, input: 8 }]
inputs: { image: $source.frame }
";

/// Each picture carries how hard it is: its grey level, from 0. It leaves at the exit of that number, as the
/// class of that number.
fn as_hard_as_grey(file: &str, inputs: &[Tensor]) -> Tensor {
    let exit = match file {
        "net.pt" => 0.0,
        "net.2.pt" => 1.0,
        _ => 2.0,
    };
    let n = inputs[0].shape[0];
    let mut data = Vec::new();
    for i in 0..n as usize {
        let hard = (inputs[0].row(i)[0] * 255.0).round() / 10.0;
        let mut scores = [0.1; 3];
        scores[exit as usize] = if hard <= exit { 0.95 } else { 0.5 };
        data.extend(scores);
        if exit < 2.0 {
            // Features: the same grey once more.
            data.extend([inputs[0].row(i)[0]; 2]);
        }
    }
    Tensor::new(vec![n, data.len() as i64 / n], data)
}

fn grey(level: u8) -> Inputs {
    let rgb = Bytes::from(vec![level * 10; 8 * 8 * 3]);
    let image = Image {
        width: 8,
        height: 8,
        rgb,
    };
    vec![Some(Value::Image(Arc::new(image))), None]
}

fn name_and_exit(result: Result<Outputs, OperatorError>) -> (String, Vec<f32>) {
    let outputs = result.expect("runs");
    let [Value::Labels(labels), Value::Tensor(exits)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!(exits.shape, [labels.len() as i64]);
    let names: Vec<&str> = labels.iter().map(|l| &*l.label).collect();
    (names.join(" "), exits.data.clone())
}

#[test]
fn a_batch_shrinks_as_members_leave_at_their_exits() {
    let fake = Parts::new(as_hard_as_grey);
    let folder = Folder::new(&["easy", "so-so", "hard"]);
    let lines = format!("{WHO}options: {{ activation: none }}");
    let mut who = build(&fake, &folder, &lines).expect("builds");
    let batch = [2, 0, 1, 0, 2].map(grey);
    let results: Vec<_> = who.run(0, &batch).into_iter().map(name_and_exit).collect();
    let expected = [
        ("hard", 3.0),
        ("easy", 1.0),
        ("so-so", 2.0),
        ("easy", 1.0),
        ("hard", 3.0),
    ];
    let expected = expected.map(|(name, exit)| (name.to_owned(), vec![exit]));
    assert_eq!(results, expected);
    assert_eq!(fake.sizes("net.pt"), [5]);
    assert_eq!(fake.sizes("net.2.pt"), [3]);
    assert_eq!(fake.sizes("net.3.pt"), [2]);
    // Where all leave early, nothing more runs.
    who.run(0, &[grey(0), grey(0)]);
    assert_eq!(fake.sizes("net.pt"), [5, 2]);
    assert_eq!(fake.sizes("net.2.pt"), [3]);
}

#[test]
fn the_threshold_says_how_sure_is_sure() {
    let folder = Folder::new(&["easy", "so-so", "hard"]);
    for (threshold, exit) in [(0.0, 1.0), (0.5, 1.0), (0.51, 3.0), (1.0, 3.0)] {
        let fake = Parts::new(as_hard_as_grey);
        let lines = format!("{WHO}options: {{ activation: none, threshold: {threshold} }}");
        let mut who = build(&fake, &folder, &lines).expect("builds");
        let (_, exits) = name_and_exit(who.run(0, &[grey(2)]).remove(0));
        assert_eq!(exits, [exit], "threshold {threshold}");
    }
}

#[test]
fn each_box_leaves_on_its_own() {
    let fake = Parts::new(as_hard_as_grey);
    let folder = Folder::new(&["easy", "so-so", "hard"]);
    let lines = "op: early_exit_classifier\nvariants: [{ model: net.pt, input: 8 }]\n\
                 inputs: { image: $source.frame, boxes: $find.boxes }\n\
                 options: { activation: none, region: [0, 0, 1, 0.5] }";
    let mut who = build(&fake, &folder, lines).expect("builds");
    let frame = |level, n| {
        let mut inputs = grey(level);
        inputs[1] = Some(some_boxes(n));
        inputs
    };
    let results = who.run(0, &[frame(0, 2), frame(2, 6), frame(1, 0)]);
    let [Value::Labels(labels), Value::Tensor(exits)] = &results[1].as_ref().expect("runs")[..]
    else {
        panic!("{results:?}")
    };
    let why: Vec<_> = labels.iter().map(|label| label.left_out).collect();
    let over = Some(LeftOut::OverLimit);
    assert_eq!(why, [over, over, None, None, None, None]);
    assert_eq!(exits.left_out, [0, 1]);
    let results: Vec<_> = results.into_iter().map(name_and_exit).collect();
    assert_eq!(results[0], ("easy easy".to_owned(), vec![1.0, 1.0]));
    // `limits.objects` is 4: the two of lowest score are left out and keep their place.
    let six = "unknown unknown hard hard hard hard".to_owned();
    assert_eq!(results[1], (six, vec![0.0, 0.0, 3.0, 3.0, 3.0, 3.0]));
    assert_eq!(results[2], (String::new(), vec![]));
    assert_eq!(fake.sizes("net.3.pt"), [4]);
}

#[test]
fn bad_segments_and_options_are_told_well() {
    let folder = Folder::new(&["easy", "so-so", "hard"]);
    let mut fake = Parts::new(as_hard_as_grey);
    fake.missing = "net.3.pt";
    let error = build(&fake, &folder, WHO).err().expect("a file is missing");
    let error = error.to_string();
    assert!(
        error.contains("net.3.pt: No such file")
            && error.contains("modules.m: options.exits: 3 segments are 3 files"),
        "{error}"
    );
    fake.missing = "";
    let two = Folder::new(&["easy", "hard"]);
    let cases = [
        (
            "exits: 3",
            &two,
            "net.3.pt: expected an output of shape [1, 2] (one score a class), got [1, 3]",
        ),
        (
            "exits: 4",
            &folder,
            "net.3.pt: expected an output of shape [1, 3 + features] (one score a class, then what the next \
             segment takes), got [1, 3]",
        ),
        (
            "exits: 1",
            &folder,
            "net.pt: expected an output of shape [1, 3] (one score a class), got [1, 5]",
        ),
    ];
    for (options, folder, expected) in cases {
        let lines = format!("{WHO}options: {{ activation: none, threshold: 1, {options} }}");
        let mut who = build(&fake, folder, &lines).expect("builds");
        let error = one(who.run(0, &[grey(2)])).expect_err(options);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_broken_picture_does_not_disturb_the_others() {
    let fake = Parts::new(as_hard_as_grey);
    let folder = Folder::new(&["easy", "so-so", "hard"]);
    let lines = format!("{WHO}options: {{ activation: none }}");
    let mut who = build(&fake, &folder, &lines).expect("builds");
    let mut results = who.run(0, &[grey(2), vec![None, None], grey(1)]);
    let last = results.remove(2);
    assert!(
        results
            .remove(1)
            .expect_err("no picture")
            .to_string()
            .contains("nothing")
    );
    assert_eq!(name_and_exit(last).1, [2.0]);
    assert_eq!(fake.sizes("net.pt"), [2]);
}

const SAY: &str = "
op: text_generator
model: net.pt
inputs: { texts: $read.text }
";

/// Builds a `text_generator` over bytes, or over the texts of a module `read`.
fn build_say(
    fake: &Parts,
    from_texts: bool,
    options: &str,
) -> Result<Box<dyn Operator>, OperatorError> {
    let folder = Folder::new(&[]);
    if from_texts {
        let lines = format!("{SAY}options: {{ {options} }}");
        return build(fake, &folder, &lines);
    }
    let text = format!(
        "name: test\nslo: 1s\nsource: {{ payload: bytes }}\nmodules:\n  m:\n    op: text_generator\n    \
         model: net.pt\n    inputs: {{ payload: $source.payload }}\n    options: {{ {options} }}\n\
         outputs: {{ text: $m.text }}\n"
    );
    build_in(fake, &folder, &compiled(&text))
}

/// Writes an `a` as often as the last digit says: the state counts what is left.
fn as_often_as_said(file: &str, inputs: &[Tensor]) -> Tensor {
    let n = inputs[0].shape[0] as usize;
    if file == "net.pt" {
        // Ordinal 1 is the digit 0.
        let left = |i| inputs[0].row(i)[8] - 1.0;
        return Tensor::new(vec![n as i64, 1], (0..n).map(left).collect());
    }
    let mut data = Vec::new();
    for i in 0..n {
        let left = inputs[1].row(i)[0];
        let mut scores = vec![0.0; 28];
        scores[if left > 0.0 { 2 } else { 0 }] = 9.0;
        data.extend(scores);
        data.push(left - 1.0);
    }
    Tensor::new(vec![n as i64, 29], data)
}

fn payload(text: &'static [u8]) -> Inputs {
    vec![Some(Value::Bytes(Bytes::from_static(text))), None]
}

fn texts_of(result: Result<Outputs, OperatorError>) -> Vec<String> {
    match &result.expect("runs")[..] {
        [Value::Texts(texts)] => texts.iter().map(|t| t.text.clone()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn texts_that_have_ended_leave_the_batch() {
    let fake = Parts::new(as_often_as_said);
    let mut say = build_say(&fake, false, "max_output: 5").expect("builds");
    let results = say.run(
        0,
        &[payload(b"3"), payload(b"0"), payload(b"1"), payload(b"45")],
    );
    let texts: Vec<_> = results.into_iter().map(|r| texts_of(r).concat()).collect();
    assert_eq!(texts, ["aaa", "", "a", "aaaaa"]);
    assert_eq!(fake.sizes("net.pt"), [4]);
    assert_eq!(fake.sizes("net.step.pt"), [4, 3, 2, 2, 1, 1]);
}

#[test]
fn what_cannot_be_read_fails_alone_with_a_reason() {
    let fake = Parts::new(as_often_as_said);
    let mut say = build_say(&fake, false, "max_output: 5").expect("builds");
    let batch = [
        payload(b""),
        payload(b"4x"),
        payload(b"1234567890"),
        payload(&[b'1', 0xff]),
        payload(b"6"),
        vec![None, None],
        payload(b"2"),
    ];
    let results = say.run(0, &batch);
    let texts: Vec<String> = results
        .into_iter()
        .map(|r| r.map_or_else(|e| e.to_string(), |ok| texts_of(Ok(ok)).concat()))
        .collect();
    assert_eq!(
        texts,
        [
            "there is no text to read in the payload",
            "'x' in the text cannot be read; its characters must be among \"0123456789\"",
            "the text is too long to be read: it may have at most 9 characters",
            "the payload is no text in UTF-8: the byte at 1 does not fit",
            "the text did not end within 5 letters (options.max_output)",
            "",
            "aa",
        ]
    );
    assert_eq!(fake.sizes("net.pt"), [2], "only what can be read is run");
}

#[test]
fn one_text_for_each_text_that_came() {
    let fake = Parts::new(as_often_as_said);
    let mut say = build_say(&fake, true, "others: skip").expect("builds");
    let texts = |all: &[&str]| {
        let text = |t: &&str| Text {
            text: (*t).to_owned(),
            score: 1.0,
            left_out: None,
        };
        let all: Vec<_> = all.iter().map(text).collect();
        vec![None, Some(Value::Texts(Arc::from(all)))]
    };
    // Unread plates are empty and stay so; of five texts the first four are written: `limits.objects`.
    let batch = [
        texts(&["AB2", "", "XY"]),
        texts(&[]),
        texts(&["1", "2", "3", "4", "5"]),
        vec![None, None],
    ];
    let results: Vec<_> = say.run(0, &batch).into_iter().map(texts_of).collect();
    assert_eq!(results[0], ["aa", "", ""]);
    assert_eq!(results[1], [""; 0]);
    assert_eq!(results[2], ["a", "aa", "aaa", "aaaa", ""]);
    assert_eq!(results[3], [""; 0]);
    assert_eq!(fake.sizes("net.pt"), [5]);
}

#[test]
fn a_text_that_is_not_gone_on_from_says_why() {
    let fake = Parts::new(as_often_as_said);
    let mut say = build_say(&fake, true, "").expect("builds");
    let text = |text: &str, left_out| Text {
        text: text.to_owned(),
        score: 1.0,
        left_out,
    };
    // Its box was not looked at; nothing was read there; the last one is over the bound of four.
    let all = [
        text("", Some(LeftOut::NoArea)),
        text("", None),
        text("1", None),
        text("2", None),
        text("3", None),
        text("1", None),
        text("2", None),
    ];
    let outputs = one(say.run(0, &[vec![None, Some(Value::Texts(Arc::from(all)))]]));
    let [Value::Texts(texts)] = &outputs.expect("runs")[..] else {
        panic!("not one output of texts")
    };
    let why: Vec<_> = texts.iter().map(|text| text.left_out).collect();
    let (flat, over) = (Some(LeftOut::NoArea), Some(LeftOut::OverLimit));
    assert_eq!(why, [flat, None, None, None, None, None, over]);
}

#[test]
fn a_generator_says_what_is_wrong_with_its_files_and_options() {
    let mut fake = Parts::new(as_often_as_said);
    let error = |fake: &Parts, from_texts, options: &str| {
        let built = build_say(fake, from_texts, options);
        built.err().expect(options).to_string()
    };
    assert_eq!(
        error(&fake, true, "alphabet: '01233'"),
        "modules.m: options.alphabet: '3' is in it twice; name each character once"
    );
    let folder = Folder::new(&[]);
    let unwired = "op: text_generator\nmodel: net.pt\ninputs: {}";
    let unwired = build(&fake, &folder, unwired)
        .err()
        .expect("nothing to read");
    assert_eq!(
        unwired.to_string(),
        "modules.m: inputs: wire exactly one of `payload` and `texts`"
    );
    fake.missing = "net.step.pt";
    let missing = error(&fake, false, "");
    assert!(
        missing.contains("net.step.pt: No such file") && missing.contains("NAME.step.pt"),
        "{missing}"
    );
    fake.missing = "";
    let mut say = build_say(&fake, false, "letters: 'ab'").expect("builds");
    let error = one(say.run(0, &[payload(b"4")])).expect_err("28 classes are not 3");
    assert_eq!(
        error.to_string(),
        "net.step.pt: expected an output of shape [1, 4] (3 scores of the end and the letters, then the next \
         state), got [1, 29]"
    );
}

#[test]
fn examples_of_modules_whose_work_differs_run() {
    let fake = Parts::new(as_hard_as_grey);
    let folder = Folder::new(&["easy", "so-so", "hard"]);
    let mut who = build(&fake, &folder, WHO).expect("builds");
    let example = who.example(3);
    assert!(one(who.run(0, &[example])).is_ok());
    let fake = Parts::new(as_often_as_said);
    for (from_texts, n) in [(false, 1), (true, 3)] {
        let mut say = build_say(&fake, from_texts, "").expect("builds");
        let example = say.example(3);
        assert_eq!(texts_of(one(say.run(0, &[example]))), vec!["aaaaa"; n]);
    }
}
