//! Pictures of the example pipeline; the golden SVG is there to be looked at.

use expect_test::{expect, expect_file};
use spillgate_pipeline::graph::{Format, render};
use spillgate_pipeline::{Pipeline, compile};

use crate::compile::{TRAFFIC, catalog};

fn traffic() -> Pipeline {
    compile(TRAFFIC, "traffic.yaml", &catalog(), None)
        .expect("a good file")
        .pipeline
}

#[test]
fn dot() {
    expect![[r#"
        digraph pipeline {
            rankdir = TB;
            label = "traffic, within 400ms";
            node [shape = box, style = rounded, fontname = "sans-serif"];
            edge [fontname = "sans-serif", fontsize = 10];
            m0 [label = "source\nframe: image", shape = ellipse];
            m1 [label = "detect\ndetector\ninputs 192, 320\nbatch 8, 1-4 workers\non auto"];
            m2 [label = "plates\ntext_reader\nplate.pt\nbatch 8, 1 worker\non auto"];
            m3 [label = "faces\nface_recognizer\nface.pt\nbatch 8, 1 worker\non auto"];
            m4 [label = "result", shape = ellipse];
            m0 -> m1 [label = "frame"];
            m0 -> m2 [label = "frame"];
            m1 -> m2 [label = "vehicles"];
            m1 -> m2 [label = "when vehicles", style = dashed];
            m0 -> m3 [label = "frame"];
            m1 -> m3 [label = "people"];
            m1 -> m4 [label = "vehicles"];
            m2 -> m4 [label = "text as plates"];
            m3 -> m4 [label = "id as people"];
        }
    "#]]
    .assert_eq(&render(&traffic(), Format::Dot));
}

#[test]
fn mermaid() {
    expect![[r#"
        flowchart TD
            m0(["source<br/>frame: image"])
            m1("detect<br/>detector<br/>inputs 192, 320<br/>batch 8, 1-4 workers<br/>on auto")
            m2("plates<br/>text_reader<br/>plate.pt<br/>batch 8, 1 worker<br/>on auto")
            m3("faces<br/>face_recognizer<br/>face.pt<br/>batch 8, 1 worker<br/>on auto")
            m4(["result"])
            m0 -->|"frame"| m1
            m0 -->|"frame"| m2
            m1 -->|"vehicles"| m2
            m1 -.->|"when vehicles"| m2
            m0 -->|"frame"| m3
            m1 -->|"people"| m3
            m1 -->|"vehicles"| m4
            m2 -->|"text as plates"| m4
            m3 -->|"id as people"| m4
    "#]]
    .assert_eq(&render(&traffic(), Format::Mermaid));
}

#[test]
fn svg() {
    expect_file!["traffic.svg"].assert_eq(&render(&traffic(), Format::Svg));
}

/// A pipeline whose arrows pass many layers and cross.
const GAME: &str = "
name: game
slo: 150ms
modules:
  detect: { op: detector, model: game.pt, input: 640, inputs: { image: $source.frame }, device: [cuda:0, cuda:1, cuda:2, cuda:3], workers: 4 }
  widen: { op: crop, inputs: { boxes: $detect.people }, options: { margin: 0.2 } }
  narrow: { op: crop, inputs: { boxes: $widen.boxes }, options: { margin: -0.1 } }
  names: { op: text_reader, model: text.pt, inputs: { image: $source.frame, boxes: $detect.vehicles }, when: $detect.vehicles }
  scores: { op: text_reader, model: text.pt, inputs: { image: $source.frame, boxes: $narrow.boxes } }
  faces: { op: face_recognizer, model: face.pt, inputs: { image: $source.frame, boxes: $widen.boxes }, when: $names.text }
outputs: { names: $names.text, scores: $scores.text, faces: $faces.id, raw: $detect.people, frame: $source.frame }
";

#[test]
fn svg_of_a_deep_pipeline() {
    let compiled = compile(GAME, "game.yaml", &catalog(), None).expect("a good file");
    expect_file!["game.svg"].assert_eq(&render(&compiled.pipeline, Format::Svg));
}

#[test]
fn text_is_escaped() {
    let mut pipeline = traffic();
    pipeline.name = "<a> & \"b\" \\ 'c' #\u{0}\n".to_owned();
    pipeline.modules[1].op = "x</text><script>\"];evil[\"\n".to_owned();
    pipeline.modules[1].devices = vec!["]]>".to_owned(); 5];
    let dot = render(&pipeline, Format::Dot);
    assert!(
        dot.contains("detect\\nx</text><script>\\\"];evil[\\\" \\n"),
        "{dot}"
    );
    let mermaid = render(&pipeline, Format::Mermaid);
    assert!(
        mermaid.contains("x#60;/text#62;#60;script#62;#34;#93;#59;evil#91;#34;"),
        "{mermaid}"
    );
    let svg = render(&pipeline, Format::Svg);
    assert!(
        svg.contains("x&lt;/text&gt;&lt;script&gt;&quot;];evil[&quot;<"),
        "{svg}"
    );
    assert!(
        svg.contains("&lt;a&gt; &amp; &quot;b&quot; \\ &#39;c&#39; #, within"),
        "{svg}"
    );
    assert!(
        [dot, mermaid, svg]
            .iter()
            .all(|text| !text.contains('\u{0}'))
    );
}
