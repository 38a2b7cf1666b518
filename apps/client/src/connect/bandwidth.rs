//! Reads the file of a link's bandwidths.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use spillgate_camera::bandwidth::BandwidthTrace;

/// Most bytes of a file: a year in seconds takes more, and no run is as long.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a file.
///
/// # Errors
/// When it cannot be read, or is no trace of bandwidths; one line that names the file and the line in it.
pub(super) fn read(path: &Path) -> Result<BandwidthTrace> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let mut text = String::new();
    let n = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let n = n.with_context(|| format!("cannot read {name}"))?;
    if n as u64 > FILE_BYTES_MAX {
        bail!(
            "{name}: the file has more than {} MiB; cut it",
            FILE_BYTES_MAX >> 20
        );
    }
    BandwidthTrace::parse(&text).map_err(|bad| anyhow!(bad.in_file(&name.to_string())))
}
