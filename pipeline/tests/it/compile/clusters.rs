//! Errors of files of clusters. Most are those of pipeline files; all are in `pipeline/src/cluster_file/tests.rs`.

use std::time::Duration;

use spillgate_pipeline::cluster_file::{Served, parse_cluster};
use spillgate_pipeline::testing::noop_pipeline;

use crate::compile::errors::Golden;

pub(crate) fn errors(golden: &mut Golden) {
    let pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
    let served = Served {
        pipeline: &pipeline,
        n_devices: 2,
        n_requests: 10,
    };
    let texts = [
        "nodes:\n- { name: a, gateway: true }\n- { name: a, devices: all }",
        "nodes:\n- { name: a, gateway: true }\n- { name: device-1, devices: [0] }",
        "\
nodes:
- { name: a, gateway: true }
- { name: b, gateway: true }
faults:
- { at: 1s, for: 2s, crash: a }
- { at: 2s, for: 2s, crash: a }
- { at: 1s, for: 2s, partition: [a, b] }
",
    ];
    for text in texts {
        let errors = parse_cluster(text, "cluster.yaml", served).unwrap_err();
        golden.case(text, &errors.list);
    }
}
