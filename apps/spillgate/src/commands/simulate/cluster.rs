//! The file of a cluster.

use std::path::Path;
use std::sync::Arc;

use crate::files;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::placement::ServedBy;
use spillgate_sim::cluster_file::Served;
use spillgate_sim::{ClusterReport, SimConfig};

/// Puts the roles of a run on the nodes of a file.
pub(super) fn apply(file: &Path, config: &mut SimConfig) -> anyhow::Result<()> {
    let devices = config.workers.iter().flatten().max();
    let served = Served {
        pipeline: &config.pipeline,
        n_devices: devices.map_or(0, |last| usize::from(*last) + 1),
        n_requests: config.arrivals.len(),
    };
    let cluster = files::load_cluster(file, served)?;
    config.gateways = cluster.shares();
    let by = ServedBy {
        decider: None,
        gateways: Some(config.gateways.len()),
    };
    config.pipeline = Arc::new(Pipeline::clone(&config.pipeline).served_by(by));
    config.cluster = Some(Arc::new(cluster));
    Ok(())
}

/// What happened between the processes, in a line.
pub(super) fn text_of(counts: &ClusterReport) -> String {
    let ClusterReport {
        greeted,
        lost,
        unsent,
        lost_on_purpose,
        ignored,
        repeated,
        rogue,
        full,
        // In JSON alone.
        traffic: _,
    } = counts;
    format!(
        "cluster: {greeted} greetings, {lost} losses, {unsent} messages without a session, {lost_on_purpose} lost on purpose, \
         {ignored} ignored, {repeated} came twice, {rogue} by rogue nodes, {full} connections closed when full"
    )
}
