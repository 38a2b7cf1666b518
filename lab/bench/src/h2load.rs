//! Runs h2load with calls of the API, and reads its output.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use xtask::process;

/// What one run of h2load measured.
pub(crate) struct Measured {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Requests without a 2xx answer.
    pub(crate) failed: u64,
    /// Bytes of answers, without headers.
    pub(crate) data_bytes: u64,
    /// Median latency.
    pub(crate) p50_ms: f64,
    /// 99th percentile.
    pub(crate) p99_ms: f64,
    /// CPU time of the server for a request, filled in by the caller.
    pub(crate) cpu_us: f64,
}

/// Says what to do where h2load is missing.
pub(crate) fn require() -> Result<()> {
    if !process::succeeds("h2load", &["--version"]) {
        bail!("h2load is missing; install it with: apt-get install nghttp2-client");
    }
    Ok(())
}

/// Drives `address` with that many requests in flight, one a connection.
pub(crate) fn run(
    address: &str,
    message: &[u8],
    in_flight: u32,
    seconds: u32,
    out: &Path,
) -> Result<Measured> {
    let body = out.join("message.bin");
    spillgate_output::write(&body, message)?;
    let log = out.join("requests.log");
    let _ = std::fs::remove_file(&log);
    let mut command = Command::new("h2load");
    command
        .args([
            "-c",
            &in_flight.to_string(),
            "-m",
            "1",
            "-D",
            &seconds.to_string(),
        ])
        .args(["-w", "22", "-W", "24"])
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .arg("-d")
        .arg(&body)
        .arg(format!("--log-file={}", log.display()))
        .arg(format!("http://{address}/spillgate.v1.Spillgate/Infer"));
    let text = process::capture(&mut command)?;
    let rate = between(&text, ", ", " req/s").context("h2load names no rate")?;
    let succeeded = between(&text, "done, ", " succeeded").context("h2load names no total")?;
    let failed = between(&text, "succeeded, ", " failed").context("h2load names no failures")?;
    let data_bytes = between(&text, "(", ") data").context("h2load names no bytes")?;
    // Start, status, microseconds; tab between.
    let mut micros: Vec<u64> = std::fs::read_to_string(&log)?
        .lines()
        .filter_map(|line| line.split('\t').nth(2)?.parse().ok())
        .collect();
    micros.sort_unstable();
    if micros.is_empty() {
        bail!("h2load finished no request:\n{text}");
    }
    let quantile = |q: f64| micros[((micros.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    Ok(Measured {
        rate,
        requests: succeeded as u64,
        failed: failed as u64,
        data_bytes: data_bytes as u64,
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
        cpu_us: 0.0,
    })
}

/// An `InferRequest` as gRPC frames it: pipeline (field 1), frame (field 2) with data (field 3).
pub(crate) fn message(pipeline: &str, n_bytes: usize) -> Vec<u8> {
    fn field(out: &mut Vec<u8>, number: u8, content: &[u8]) {
        out.push(number << 3 | 2);
        let mut length = content.len();
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(content);
    }
    let mut frame = Vec::new();
    field(&mut frame, 3, &vec![b'x'; n_bytes]);
    let mut request = Vec::new();
    field(&mut request, 1, pipeline.as_bytes());
    field(&mut request, 2, &frame);
    let mut framed = vec![0];
    framed.extend_from_slice(&(request.len() as u32).to_be_bytes());
    framed.extend_from_slice(&request);
    framed
}

/// The middle one.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The number between two texts.
fn between(text: &str, before: &str, after: &str) -> Option<f64> {
    let end = text.find(after)?;
    let start = text[..end].rfind(before)? + before.len();
    text[start..end].trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_h2loads_report() {
        let text = "finished in 4.00s, 15321.50 req/s, 1.2MB/s\n\
                    traffic: 1.2MB (1300000) total, 1KB (1024) headers (space savings 90%), 1MB (1200000) data\n\
                    requests: 61286 total, 61290 started, 61286 done, 61280 succeeded, 6 failed, 0 errored";
        assert_eq!(between(text, ", ", " req/s"), Some(15321.5));
        assert_eq!(between(text, "done, ", " succeeded"), Some(61280.0));
        assert_eq!(between(text, "succeeded, ", " failed"), Some(6.0));
        assert_eq!(between(text, "(", ") data"), Some(1_200_000.0));
        assert_eq!(between(text, "x", " nowhere"), None);
    }

    #[test]
    fn a_message_is_framed_as_grpc_frames_it() {
        let framed = message("ab", 200);
        assert_eq!(framed[..5], [0, 0, 0, 0, 4 + 3 + 3 + 200]);
        assert_eq!(framed[5..9], [0x0a, 2, b'a', b'b']);
        assert_eq!(framed[9..15], [0x12, 0xcb, 0x01, 0x1a, 0xc8, 0x01]);
        assert_eq!(framed.len(), 5 + 4 + 3 + 3 + 200);
    }
}
