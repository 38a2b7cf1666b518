//! The section `clients:`.

use crate::compile::errors::Golden;

pub(crate) fn errors(golden: &mut Golden) {
    golden.root("clients: camera-7");
    golden.root("clients: { by: adress, streams: token }");
    golden.root("clients: { by: metadata }");
    golden.root("clients: { metadata: X-Client }");
    golden.root("clients: { metadata: x-client }");
    golden.root("clients: { named: {} }");
    golden.root("clients: { each: { slo: 200ms }, named: { a: { slo: ~ }, b: { slo: nnoe }, c: { slo: [none] } } }");
    golden.root("clients: { each: { weight: 0, class: 8 } }");
    golden.root("clients: { named: { a: { weight: .nan }, b: { weight: heavy }, c: { class: high }, d: 2 } }");
    golden.root("clients: { named: { a: { rate: 0, in_flight: 0, wieght: 2 } } }");
}
