//! `noop`: what goes in comes out.

use super::*;

#[test]
fn noop_passes_the_very_bytes_on() {
    let text = "name: test\nslo: 1s\nsource: { payload: bytes }\nmodules:\n  m:\n    op: noop\n    \
                inputs: { payload: $source.payload }\noutputs: { payload: $m.payload }\n";
    let fake = Fake::new(scores);
    let mut noop = build_in(&fake, &Folder::new(&[]), &compiled(text)).expect("builds");
    let payload = Bytes::from(vec![1, 2, 3]);
    let outputs = one(noop.run(0, &[vec![Some(Value::Bytes(payload.clone()))]])).expect("runs");
    let [Value::Bytes(same)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!(same.as_ptr(), payload.as_ptr());
    let other = Some(Value::Bytes(Bytes::from_static(b"other")));
    let joined = one(noop.run(0, &[vec![Some(Value::Bytes(payload.clone())), other]]));
    let [Value::Bytes(same)] = &joined.expect("runs")[..] else {
        panic!("not one output of bytes")
    };
    assert_eq!(same.as_ptr(), payload.as_ptr());
    assert!(one(noop.run(0, &[vec![None]])).is_err());
}
