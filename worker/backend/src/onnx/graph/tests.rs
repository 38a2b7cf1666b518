use super::super::fixture::Axis::{Is, Named};
use super::super::fixture::*;
use super::*;

fn refused(model: &[u8]) -> String {
    describe(model).expect_err("it is refused")
}

#[test]
fn a_model_says_what_it_takes_and_gives() {
    let described = describe(&colours(Named("batch"), 8).model()).expect("a model");
    assert_eq!(described.versions(), "IR version 8, opset 17");
    let dims = |rest: &[i64]| {
        let rest = rest.iter().map(|n| Dim::Fixed(*n));
        Some(
            [Dim::Free("batch".to_owned())]
                .into_iter()
                .chain(rest)
                .collect(),
        )
    };
    let port = |name: &str, rest: &[i64]| Port {
        name: name.to_owned(),
        ty: PortType::Tensor(Kind::FLOAT, dims(rest)),
    };
    assert_eq!(described.inputs, [port("images", &[3, 8, 8])]);
    assert_eq!(described.outputs, [port("scores", &[3])]);
}

#[test]
fn an_input_with_a_default_is_none() {
    let mut graph = colours(Named("batch"), 8);
    graph
        .inputs
        .insert(0, tensor_port("factor", FLOAT, &[Is(3)]));
    let described = describe(&graph.model()).expect("a model");
    assert_eq!(described.inputs.len(), 1);
}

#[test]
fn what_begins_as_a_model_is_told_from_other_files() {
    let model = colours(Is(1), 8).model();
    assert!(begins_as_onnx(&model));
    assert!(begins_as_onnx(&model[..20]));
    // Longer than what is looked at.
    let mut graph = colours(Is(1), 8);
    graph.weights.push(raw("w", UINT8, &[5000], &[1; 5000]));
    assert!(begins_as_onnx(&graph.model()));
    for other in [
        &b"PK\x03\x04"[..],
        b"this is no model",
        b"",
        b"\x08\x07",
        b"\x89HDF\r\n\x1a\n",
        b"GGUF\x03\0\0\0",
        b"\x80\x02\x8a\nl\xfc",
        b"\x08\x07 is a text",
    ] {
        assert!(!begins_as_onnx(other), "{other:?}");
    }
}

#[test]
fn a_file_that_is_cut_short_anywhere_is_an_error() {
    let model = colours(Named("batch"), 8).model();
    let opset = model.len() - 6;
    for n in 1..opset {
        let why = refused(&model[..n]);
        assert!(
            why.contains("cut short") || why.contains("without a graph"),
            "{n}: {why}"
        );
    }
}

#[test]
fn random_bytes_are_an_error_or_a_description_and_never_a_panic() {
    let model = colours(Named("batch"), 8).model();
    let mut state = 1u64;
    for _ in 0..20_000 {
        let mut changed = model.clone();
        for _ in 0..3 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = (state >> 33) as usize % changed.len();
            changed[at] = (state >> 20) as u8;
        }
        let _ = describe(&changed);
    }
}

#[test]
fn a_small_file_that_asks_for_much_is_refused_however_it_asks() {
    let large = [75_000_000_000i64];
    let base = || colours(Named("batch"), 8);
    let mut few = base();
    few.weights
        .push(raw("w", FLOAT, &[1_000_000, 1000], &vec![0; 3 << 20]));
    let mut many = base();
    many.weights
        .push(raw("w", FLOAT, &large, &vec![0; 3 << 20]));
    let mut beyond = base();
    beyond
        .weights
        .push(raw("w", FLOAT, &[i64::MAX, i64::MAX], &[]));
    let mut negative = base();
    negative.weights.push(raw("w", FLOAT, &[-1], &[]));
    let mut filled = base();
    filled.weights.push(integers("shape", &large));
    filled
        .nodes
        .push(node("ConstantOfShape", &["shape"], &["zeros"]));
    let mut constant = base();
    let value = Message::new()
        .bytes(1, "value")
        .message(5, &integers("", &large))
        .number(20, 4);
    constant
        .nodes
        .push(node("Constant", &[], &["shape"]).message(5, &value));
    constant
        .nodes
        .push(node("Expand", &["mean", "shape"], &["wide"]));
    let mut random = base();
    random
        .nodes
        .push(node("RandomNormal", &[], &["noise"]).message(5, &ints("shape", &large)));
    let mut declared = base();
    declared
        .outputs
        .push(tensor_port("wide", FLOAT, &[Named("batch"), Is(large[0])]));
    let mut listed = base();
    let sizes = Message::new()
        .number(1, large[0])
        .number(2, FLOAT)
        .bytes(8, "w");
    listed.weights.push(sizes.bytes(4, [0; 4000]));
    let cases = [
        (
            few,
            "would have 4000000000 bytes, and the file holds 3145728",
        ),
        (many, "more than the 8589934592 bytes"),
        (beyond, "more than the 8589934592 bytes"),
        (negative, "more than the 8589934592 bytes"),
        (filled, "\"zeros\" of float32 [75000000000]"),
        (constant, "\"wide\" of float32"),
        (random, "\"noise\" of float32"),
        (declared, "\"wide\" of float32"),
        (listed, "more than the 8589934592 bytes"),
    ];
    for (graph, part) in cases {
        let why = refused(&graph.model());
        assert!(why.contains(part) && !why.contains('\n'), "{part}: {why}");
    }
}

#[test]
fn branches_in_one_another_are_bounded() {
    let nested = |depth: usize| {
        let mut graph = colours(Named("batch"), 8);
        for _ in 0..depth {
            let body = Message::new()
                .bytes(1, "body")
                .message(6, &graph.message())
                .number(20, 5);
            let mut outer = colours(Named("batch"), 8);
            outer.nodes.push(node("Loop", &[], &[]).message(5, &body));
            graph = outer;
        }
        graph.model()
    };
    assert!(describe(&nested(DEPTH_MAX)).is_ok());
    assert!(refused(&nested(DEPTH_MAX + 1)).contains("deep in one another"));
    // So deep that a walk without a bound would end the process.
    assert!(refused(&nested(1000)).contains("deep in one another"));
}

#[test]
fn nodes_are_bounded() {
    let mut graph = colours(Named("batch"), 8);
    graph.nodes = vec![Message::new(); NODES_MAX + 1];
    assert!(refused(&graph.model()).contains("more than the 200000 nodes"));
}

#[test]
fn parts_that_readers_would_put_together_are_refused() {
    let graph = colours(Named("batch"), 8);
    let twice = Message(graph.model()).message(7, &graph.message()).0;
    assert!(refused(&twice).contains("is there twice"));
}

#[test]
fn operators_that_are_not_of_onnx_are_named() {
    let mut graph = colours(Named("batch"), 8);
    graph
        .nodes
        .push(node("TRT_NMS", &["scores"], &["kept"]).bytes(7, "my.plugins"));
    let why = refused(&graph.model());
    assert!(
        why.contains("operator TRT_NMS is of the domain my.plugins"),
        "{why}"
    );
    // Unless the model brings them.
    let function = Message::new().bytes(1, "TRT_NMS").bytes(10, "my.plugins");
    let own = Message(graph.model()).message(25, &function).0;
    assert!(describe(&own).is_ok());
    let mut graph = colours(Named("batch"), 8);
    graph
        .nodes
        .push(node("FusedConv", &["scores"], &["kept"]).bytes(7, "com.microsoft"));
    assert!(describe(&graph.model()).is_ok());
    graph
        .nodes
        .push(node("EPContext", &[], &["x"]).bytes(7, "com.microsoft"));
    assert!(refused(&graph.model()).contains("EPContext"));
}

#[test]
fn where_weights_lie_in_other_files_is_read_and_checked() {
    let with = |tensor| {
        let mut graph = colours(Named("batch"), 8);
        graph.weights = vec![tensor];
        graph.model()
    };
    let described = describe(&with(external("factor", &[3], "w.bin", 8, 12))).expect("a model");
    let expected = External {
        name: "factor".to_owned(),
        location: "w.bin".to_owned(),
        offset: 8,
        bytes: 12,
    };
    assert_eq!(described.externals, [expected]);
    let why = refused(&with(external("factor", &[3], "w.bin", 8, 13)));
    assert!(
        why.contains("has 12 bytes, and 13 of w.bin are for it"),
        "{why}"
    );
    let nowhere = raw("factor", FLOAT, &[3], &[]).number(14, 1);
    assert!(refused(&with(nowhere)).contains("without a name"));
}
