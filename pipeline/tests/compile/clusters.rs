//! Errors of files of clusters. Most are those of pipeline files; all are in `pipeline/src/cluster_file/tests.rs`.

use std::time::Duration;

use spillgate_pipeline::cluster_file::{Served, parse_cluster};
use spillgate_pipeline::testing::noop_pipeline;

use crate::errors::Golden;

pub(crate) fn errors(golden: &mut Golden) {
    let pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
    let served = Served {
        pipeline: &pipeline,
        n_devices: 2,
        n_requests: 10,
    };
    let text = "nodes:\n- { name: a, gateway: true }\n- { name: a, devices: all }";
    let errors = parse_cluster(text, "cluster.yaml", served).unwrap_err();
    golden.case(text, &errors.list);
}
