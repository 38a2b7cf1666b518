//! Files that ONNX Runtime and this reader could read in two ways, and small ones that become large.

use super::super::fixture::Axis::{Is, Named};
use super::super::fixture::*;
use super::*;

fn base() -> Graph {
    colours(Named("batch"), 8)
}

fn refused(model: &[u8]) -> String {
    describe(model).expect_err("it is refused")
}

fn with(weight: Message) -> Vec<u8> {
    let mut graph = base();
    graph.weights.push(weight);
    graph.model()
}

#[test]
fn where_a_tensor_lies_is_said_once_and_in_one_way() {
    let inline = || floats("w", &[1], &[1.0]);
    let entry = |key: &str, value: &str| Message::new().bytes(1, key).bytes(2, value);
    let elsewhere = |tensor: Message| tensor.message(13, &entry("location", "secret.bin"));
    let beside = || external("w", &[1], "w.bin", 0, 4);
    // Readers of Protocol Buffers pass over a choice that they do not know, and cut one that is too long.
    let twice = [
        elsewhere(inline()).number(14, 1).number(14, 9),
        elsewhere(inline()).number(14, 1 << 32 | 1),
        beside().number(14, 0),
        beside().number(14, 9),
        beside().bytes(14, "x"),
    ];
    for tensor in twice {
        let why = refused(&with(tensor));
        assert!(why.contains("not said once"), "{why}");
    }
    let why = refused(&with(elsewhere(inline())));
    assert!(why.contains("lies in it and in another file"), "{why}");
    let many = (0..16).fold(beside(), |t, _| t.message(13, &entry("x", "y")));
    let why = refused(&with(many));
    assert!(why.contains("more than 16 entries"), "{why}");
    describe(&with(beside())).expect("one file beside it");
}

#[test]
fn kinds_that_readers_cut_in_their_own_ways_are_refused() {
    for kind in [1i64 << 32 | 7, -1, 99] {
        let tensor = Message::new().number(1, 1).number(2, kind).bytes(8, "w");
        let why = refused(&with(tensor.bytes(9, [0u8; 8])));
        assert!(
            why.contains("a tensor's kind") || why.contains("not known here"),
            "{why}"
        );
    }
    let mut graph = base();
    graph.inputs = vec![tensor_port("images", 1 << 32 | 1, &[Is(1), Is(3)])];
    let why = refused(&graph.model());
    assert!(why.contains("the kind of a value"), "{why}");
}

#[test]
fn a_file_that_is_of_another_format_at_the_same_time_is_refused() {
    // The version, then the name of the producer.
    let mut model = vec![0x08, 8, 0x12, 4];
    model.extend(b"ORTM");
    let opset = Message::new().bytes(1, "").number(2, 17);
    let rest = Message::new().message(7, &base().message());
    model.extend(rest.message(8, &opset).0);
    assert!(begins_as_onnx(&model));
    let why = refused(&model);
    assert!(why.contains("ONNX Runtime's own format"), "{why}");
}

#[test]
fn weights_of_a_branch_lie_in_the_file_itself() {
    let branch = Graph {
        weights: vec![external("w", &[1], "w.bin", 0, 4)],
        outputs: vec![tensor_port("w", FLOAT, &[Is(1)])],
        ..Graph::default()
    };
    let attribute = Message::new()
        .bytes(1, "then_branch")
        .message(6, &branch.message())
        .number(20, 5);
    let mut graph = base();
    let branches = node("If", &["x"], &["y"]).message(5, &attribute);
    graph.nodes.push(branches);
    let why = refused(&graph.model());
    assert!(why.contains("save_as_external_data=False"), "{why}");
}

/// Each function calls the next one twice.
fn functions(n: usize) -> Vec<u8> {
    let name = |at: usize| format!("f{at}");
    let call = |at: usize| {
        let operator = name(at);
        node(&operator, &["x"], &["y"]).bytes(7, "own")
    };
    let function = |at: usize| {
        let body = match at + 1 < n {
            true => [call(at + 1), call(at + 1)].to_vec(),
            false => vec![node("Relu", &["x"], &["y"])],
        };
        let named = Message::new().bytes(1, name(at));
        named.all(7, &body).bytes(10, "own")
    };
    let mut graph = base();
    graph.nodes.push(call(0));
    let functions: Vec<Message> = (0..n).map(function).collect();
    Message(graph.model()).all(25, &functions).0
}

#[test]
fn functions_are_counted_as_often_as_they_are_called() {
    describe(&functions(14)).expect("16,000 nodes");
    let why = refused(&functions(60));
    assert!(why.contains("written out"), "{why}");
    let why = refused(&functions(100));
    assert!(why.contains("64 deep"), "{why}");
    let own = Message::new()
        .bytes(1, "f")
        .message(7, &node("f", &["x"], &["y"]).bytes(7, "own"))
        .bytes(10, "own");
    let mut graph = base();
    let call = node("f", &["x"], &["y"]).bytes(7, "own");
    graph.nodes.push(call);
    let circle = Message(graph.model()).message(25, &own).0;
    let why = refused(&circle);
    assert!(why.contains("written out"), "{why}");
    // An operator of such a domain that is none of its functions.
    let mut graph = base();
    graph.nodes.push(node("g", &["x"], &["y"]).bytes(7, "own"));
    let why = refused(&Message(graph.model()).message(25, &own).0);
    assert!(why.contains("operator g is of the domain own"), "{why}");
}

#[test]
fn lists_that_are_long_are_not_kept() {
    // Each number has one byte.
    let many = Message::new()
        .bytes(1, "shape")
        .bytes(8, vec![1u8; 655_360])
        .number(20, 7);
    let mut graph = base();
    let random = node("RandomNormal", &[], &["r"]).message(5, &many);
    graph.nodes.push(random);
    let why = refused(&graph.model());
    assert!(why.len() < 200, "{}", why.len());
    let tensor = Message::new().number(1, 1).number(2, INT64).bytes(8, "w");
    let model = with(tensor.bytes(7, vec![1u8; 655_360]));
    describe(&model).expect("ONNX Runtime says what is wrong with it");
    let axes = (0..65).fold(Message::new(), |t, _| t.number(1, 1));
    let why = refused(&with(
        axes.number(2, FLOAT).bytes(8, "w").bytes(9, [0u8; 4]),
    ));
    assert!(why.contains("64 axes"), "{why}");
}
