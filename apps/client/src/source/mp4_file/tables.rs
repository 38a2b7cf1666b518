//! The positions of the samples of an MP4 file's video track, from the few boxes that describe them.
//!
//! Files are not trusted: every box is cut to its parent, every table to its box, and contradictions are errors. Not
//! read: fragments (`moof`), edit lists, encryption, sound.

use anyhow::{Context, Result, bail};

/// Most samples of a track: nine hours at 60 a second. A larger table is taken for damage.
const SAMPLES_MAX: u64 = 2_000_000;

/// A sample in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) offset: u64,
    pub(super) size: u32,
}

/// The video track.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VideoTrack {
    /// The codec's four letters: `avc1` is H.264.
    pub(super) codec: String,
    /// Parameter sets of H.264.
    pub(super) parameter_sets: Vec<Vec<u8>>,
    /// Bytes of the length field before each unit of a sample.
    pub(super) length_size: usize,
    pub(super) samples: Vec<Sample>,
    pub(super) frames_per_second: Option<f64>,
}

/// Finds the first video track in the contents of a `moov` box.
pub(super) fn video_track(moov: &[u8]) -> Result<VideoTrack> {
    for track in boxes(moov).filter(|b| b.name == *b"trak") {
        let Some(media) = find(track.data, b"mdia") else {
            continue;
        };
        let is_video = find(media, b"hdlr").and_then(|hdlr| hdlr.get(8..12)) == Some(b"vide");
        if is_video {
            return read_track(media);
        }
    }
    bail!("it has no video track")
}

fn read_track(media: &[u8]) -> Result<VideoTrack> {
    let tables = find(media, b"minf").and_then(|minf| find(minf, b"stbl"));
    let tables = tables.context("its video track has no sample table")?;
    let description = find(tables, b"stsd").context("its video track has no description")?;
    let entry = boxes(description.get(8..).unwrap_or_default()).next();
    let entry = entry.context("its video track has no description")?;
    let codec = String::from_utf8_lossy(&entry.name).trim().to_owned();
    let mut track = VideoTrack {
        codec,
        parameter_sets: Vec::new(),
        length_size: 4,
        samples: samples(tables)?,
        frames_per_second: None,
    };
    track.frames_per_second = frames_per_second(media, track.samples.len());
    // 78 bytes of a visual entry come before its boxes.
    if let Some(config) = entry.data.get(78..).and_then(|inner| find(inner, b"avcC")) {
        (track.parameter_sets, track.length_size) =
            decoder_config(config).context("its H.264 parameters are cut off")?;
    }
    Ok(track)
}

/// The parameter sets, and the bytes of a unit's length field.
fn decoder_config(config: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut reader = Reader(config);
    let head = reader.take(6)?;
    let length_size = usize::from(head[4] & 3) + 1;
    let mut sets = Vec::new();
    let mut n_sets = head[5] & 0x1f;
    // The sequence parameters, then the picture parameters, each kind after its count.
    for kind in 0..2 {
        if kind == 1 {
            n_sets = reader.take(1)?[0];
        }
        for _ in 0..n_sets {
            let length = u16::from_be_bytes(reader.take(2)?.try_into().ok()?);
            sets.push(reader.take(length.into())?.to_vec());
        }
    }
    Some((sets, length_size))
}

fn samples(tables: &[u8]) -> Result<Vec<Sample>> {
    let sizes = sizes(find(tables, b"stsz").context("it has no sample sizes")?)?;
    let chunks: Vec<u64> = if let Some(offsets) = find(tables, b"co64") {
        let entries = table(offsets, 8)?;
        entries
            .map(|e| (u64::from(be32(e, 0)) << 32) | u64::from(be32(e, 4)))
            .collect()
    } else {
        let offsets = find(tables, b"stco").context("it has no chunk offsets")?;
        table(offsets, 4)?.map(|e| u64::from(be32(e, 0))).collect()
    };
    // From each chunk on, so many samples a chunk.
    let runs: Vec<(usize, usize)> =
        table(find(tables, b"stsc").context("it has no chunk table")?, 12)?
            .map(|e| (be32(e, 0) as usize, be32(e, 4) as usize))
            .collect();
    let mut samples = Vec::with_capacity(sizes.len());
    let mut sizes = sizes.into_iter();
    let mut run = 0;
    for (idx, chunk) in chunks.into_iter().enumerate() {
        // Chunks count from one.
        while runs
            .get(run + 1)
            .is_some_and(|(first, _)| *first <= idx + 1)
        {
            run += 1;
        }
        let Some((_, samples_per_chunk)) = runs.get(run) else {
            bail!("its chunk table is empty");
        };
        let mut offset = chunk;
        for size in sizes.by_ref().take(*samples_per_chunk) {
            samples.push(Sample { offset, size });
            offset = offset.saturating_add(size.into());
        }
    }
    Ok(samples)
}

fn sizes(stsz: &[u8]) -> Result<Vec<u32>> {
    let mut reader = Reader(stsz);
    let head = reader.take(12).context("its sample sizes are cut off")?;
    let (all, n) = (be32(head, 4), be32(head, 8));
    if u64::from(n) > SAMPLES_MAX {
        bail!("it claims to have {n} frames");
    }
    if all != 0 {
        return Ok(vec![all; n as usize]);
    }
    let sizes = reader
        .take(n as usize * 4)
        .context("its sample sizes are cut off")?;
    Ok(sizes.chunks_exact(4).map(|e| be32(e, 0)).collect())
}

fn frames_per_second(media: &[u8], n_samples: usize) -> Option<f64> {
    let header = find(media, b"mdhd")?;
    let (ticks_at, long) = if *header.first()? == 1 {
        (20, true)
    } else {
        (12, false)
    };
    let ticks_per_second = f64::from(be32(header.get(ticks_at..)?.get(..4)?, 0));
    let field = header.get(ticks_at + 4..)?;
    let ticks = if long {
        u64::from_be_bytes(field.get(..8)?.try_into().ok()?) as f64
    } else {
        f64::from(be32(field.get(..4)?, 0))
    };
    let rate = n_samples as f64 * ticks_per_second / ticks;
    (0.01..=1000.0).contains(&rate).then_some(rate)
}

/// The entries of a table whose count follows four bytes of flags.
fn table(data: &[u8], entry_size: usize) -> Result<impl Iterator<Item = &[u8]>> {
    let mut reader = Reader(data);
    let head = reader.take(8).context("one of its tables is cut off")?;
    let n = be32(head, 4) as usize;
    let entries = n.checked_mul(entry_size).and_then(|size| reader.take(size));
    Ok(entries
        .context("one of its tables is cut off")?
        .chunks_exact(entry_size))
}

/// A box: its name and its content.
pub(super) struct Mp4Box<'a> {
    pub(super) name: [u8; 4],
    pub(super) data: &'a [u8],
}

fn find<'a>(data: &'a [u8], name: &[u8; 4]) -> Option<&'a [u8]> {
    boxes(data).find(|b| b.name == *name).map(|b| b.data)
}

/// The boxes in a box; ends at the first that does not fit.
fn boxes(data: &[u8]) -> impl Iterator<Item = Mp4Box<'_>> {
    let mut reader = Reader(data);
    std::iter::from_fn(move || {
        let head: [u8; 8] = reader.take(8)?.try_into().ok()?;
        let header = BoxHeader::parse(head);
        let size = match header.size {
            BoxSize::Known(size) => usize::try_from(size.checked_sub(8)?).ok()?,
            BoxSize::Long => {
                let size = u64::from_be_bytes(reader.take(8)?.try_into().ok()?);
                usize::try_from(size.checked_sub(16)?).ok()?
            }
            BoxSize::ToTheEnd => reader.0.len(),
        };
        Some(Mp4Box {
            name: header.name,
            data: reader.take(size)?,
        })
    })
}

/// The first eight bytes of a box.
pub(super) struct BoxHeader {
    pub(super) name: [u8; 4],
    pub(super) size: BoxSize,
}

/// The length of a box, its header included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoxSize {
    Known(u64),
    /// The length is in the next eight bytes.
    Long,
    ToTheEnd,
}

impl BoxHeader {
    pub(super) fn parse(head: [u8; 8]) -> Self {
        let [a, b, c, d, name @ ..] = head;
        let size = match u32::from_be_bytes([a, b, c, d]) {
            0 => BoxSize::ToTheEnd,
            1 => BoxSize::Long,
            size => BoxSize::Known(size.into()),
        };
        BoxHeader { name, size }
    }
}

/// Four bytes of a slice that is long enough.
fn be32(data: &[u8], at: usize) -> u32 {
    data[at..at + 4]
        .iter()
        .fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }
}
