//! The frames of one video stream in the NUT container (<https://ffmpeg.org/nut.html>, version 3), as ffmpeg's muxer writes them into a pipe.
//!
//! Only what delimits frames is read: their sizes are exact, so a picture that has not the size that was announced for it shows. Index,
//! tags and syncpoints are skipped. Times come by another way (`words.rs`): the muxer changes those that go back.

use std::io::{ErrorKind, Read};

use anyhow::{Result, bail, ensure};

/// What a file begins with.
const NAME: &[u8; 25] = b"nut/multimedia container\0";
const MAIN: u64 = 0x4e4d_7a56_1f5f_04ad;
const STREAM: u64 = 0x4e53_1140_5bf2_f9db;
const SYNCPOINT: u64 = 0x4e4b_e4ad_eeca_4569;
const INDEX: u64 = 0x4e58_dd67_2f23_e64e;
const INFO: u64 = 0x4e49_ab68_b596_ba78;
/// A frame code that begins every start code, so no frame.
const START: u8 = b'N';
/// Packets above this size have a checksum of their header.
const SHORT_PACKET: u64 = 4096;
/// Most bytes of a packet that is no frame: tags are copied from the source.
const PACKET_MAX: u64 = 1 << 20;
/// Headers that frames may leave out of their data; ffmpeg writes eight.
const ELIDED_MAX: u64 = 128;

// What a frame's header has, in the order in which it comes.
const CODED_PTS: u64 = 8;
const STREAM_ID: u64 = 16;
const SIZE_MSB: u64 = 32;
const CHECKSUM: u64 = 64;
const RESERVED: u64 = 128;
const SIDE_DATA: u64 = 256;
const HEADER_IDX: u64 = 1024;
const MATCH_TIME: u64 = 2048;
const CODED_FLAGS: u64 = 4096;
const INVALID: u64 = 8192;

/// What a frame code stands for.
#[derive(Clone, Copy, Default)]
struct Code {
    flags: u64,
    size_mul: u64,
    size_lsb: u64,
    reserved: u64,
    header: usize,
}

/// Reads frames.
pub(super) struct Nut<R> {
    from: R,
    codes: Vec<Code>,
    /// What frames leave out of their data.
    elided: Vec<Vec<u8>>,
}

impl<R: Read> Nut<R> {
    /// Reads up to the first frame; `None` where nothing comes.
    ///
    /// # Errors
    /// Where it is no NUT, or has not exactly one stream.
    pub(super) fn open(mut from: R) -> Result<Option<Self>> {
        let mut name = [0; NAME.len()];
        if !fill(&mut from, &mut name)? {
            return Ok(None);
        }
        ensure!(name == *NAME, "it is no NUT");
        let mut nut = Nut {
            from,
            codes: Vec::new(),
            elided: Vec::new(),
        };
        let first = nut.u64()?;
        ensure!(first == MAIN, "it has no main header");
        let main = nut.packet()?;
        nut.main_header(&main)?;
        Ok(Some(nut))
    }

    /// The next frame's data; `None` at the end.
    ///
    /// # Errors
    /// Where the pipe breaks off within a frame, or carries something else.
    pub(super) fn next_frame(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>> {
        loop {
            let mut code = [0];
            if !fill(&mut self.from, &mut code)? {
                return Ok(None);
            }
            if code[0] != START {
                return self
                    .frame(self.codes[usize::from(code[0])], bytes_max)
                    .map(Some);
            }
            let mut rest = [0; 8];
            rest[0] = START;
            self.from.read_exact(&mut rest[1..])?;
            match u64::from_be_bytes(rest) {
                MAIN | STREAM | SYNCPOINT | INDEX | INFO => {
                    self.packet()?;
                }
                other => bail!("there is no packet {other:#x}"),
            }
        }
    }

    fn frame(&mut self, code: Code, bytes_max: usize) -> Result<Vec<u8>> {
        let mut flags = code.flags;
        if flags & CODED_FLAGS != 0 {
            flags ^= self.number()?;
        }
        ensure!(flags & INVALID == 0, "a frame has a code that is not used");
        ensure!(flags & SIDE_DATA == 0, "a frame has side data");
        if flags & STREAM_ID != 0 {
            ensure!(self.number()? == 0, "it has a second stream");
        }
        if flags & CODED_PTS != 0 {
            self.number()?;
        }
        let msb = match flags & SIZE_MSB {
            0 => 0,
            _ => self.number()?,
        };
        if flags & MATCH_TIME != 0 {
            self.number()?;
        }
        let header = match flags & HEADER_IDX {
            0 => code.header,
            _ => usize::try_from(self.number()?)?,
        };
        let reserved = match flags & RESERVED {
            0 => code.reserved,
            _ => self.number()?,
        };
        for _ in 0..reserved.min(PACKET_MAX) {
            self.number()?;
        }
        if flags & CHECKSUM != 0 {
            self.from.read_exact(&mut [0; 4])?;
        }
        let size = msb
            .checked_mul(code.size_mul)
            .and_then(|size| size.checked_add(code.size_lsb));
        let size = size.and_then(|size| usize::try_from(size).ok());
        let Some(size) = size.filter(|size| *size <= bytes_max) else {
            bail!("a frame has more than {bytes_max} bytes");
        };
        let Some(elided) = self
            .elided
            .get(header)
            .filter(|elided| elided.len() <= size)
        else {
            bail!("a frame has a header that was not announced");
        };
        let mut data = elided.clone();
        data.resize(size, 0);
        self.from
            .read_exact(&mut data[self.elided[header].len()..])?;
        Ok(data)
    }

    /// The content of a packet behind its start code.
    fn packet(&mut self) -> Result<Vec<u8>> {
        let size = self.number()?;
        if size > SHORT_PACKET {
            self.from.read_exact(&mut [0; 4])?;
        }
        ensure!(size <= PACKET_MAX, "a packet has {size} bytes");
        let mut content = vec![0; size as usize];
        self.from.read_exact(&mut content)?;
        Ok(content)
    }

    fn main_header(&mut self, mut at: &[u8]) -> Result<()> {
        let version = number(&mut at)?;
        ensure!(version == 3, "it is NUT of version {version}");
        let streams = number(&mut at)?;
        ensure!(streams == 1, "it has {streams} streams");
        number(&mut at)?;
        for _ in 0..2 * number(&mut at)?.min(PACKET_MAX) {
            number(&mut at)?;
        }
        self.codes = codes(&mut at)?;
        let elided = number(&mut at)?;
        ensure!(elided <= ELIDED_MAX, "it leaves out {elided} headers");
        self.elided.push(Vec::new());
        for _ in 0..elided {
            let size = usize::try_from(number(&mut at)?)?;
            ensure!(size <= at.len(), "its main header is cut off");
            let (header, rest) = at.split_at(size);
            self.elided.push(header.to_owned());
            at = rest;
        }
        Ok(())
    }

    fn u64(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.from.read_exact(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }

    fn number(&mut self) -> Result<u64> {
        number(&mut self.from)
    }
}

/// The table of the 256 frame codes: runs of them differ in the low bits of the size.
fn codes(at: &mut &[u8]) -> Result<Vec<Code>> {
    let mut codes = Vec::with_capacity(256);
    let mut run = Code {
        size_mul: 1,
        ..Code::default()
    };
    while codes.len() < 256 {
        run.flags = number(at)?;
        let fields = number(at)?;
        if fields > 0 {
            number(at)?;
        }
        if fields > 1 {
            run.size_mul = number(at)?;
        }
        if fields > 2 {
            number(at)?;
        }
        run.size_lsb = if fields > 3 { number(at)? } else { 0 };
        run.reserved = if fields > 4 { number(at)? } else { 0 };
        let count = match fields {
            0..=5 => run.size_mul.saturating_sub(run.size_lsb),
            _ => number(at)?,
        };
        if fields > 6 {
            number(at)?;
        }
        if fields > 7 {
            run.header = usize::try_from(number(at)?)?;
        }
        for _ in 8..fields.min(PACKET_MAX) {
            number(at)?;
        }
        let mut left = count;
        while left > 0 && codes.len() < 256 {
            if codes.len() == usize::from(START) {
                codes.push(Code {
                    flags: INVALID,
                    ..Code::default()
                });
                continue;
            }
            codes.push(Code {
                size_lsb: run.size_lsb + (count - left),
                ..run
            });
            left -= 1;
        }
    }
    Ok(codes)
}

/// Seven bits a byte, from the highest; all but the last byte have their highest bit set.
fn number(from: &mut impl Read) -> Result<u64> {
    let mut value: u64 = 0;
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        ensure!(value >> 57 == 0, "a number has more than 64 bits");
        value = value << 7 | u64::from(byte[0] & 0x7f);
        if byte[0] < 0x80 {
            return Ok(value);
        }
    }
}

/// Reads all of it; false where nothing comes any more.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> Result<bool> {
    let mut has = 0;
    while has < bytes.len() {
        match from.read(&mut bytes[has..]) {
            Ok(0) if has == 0 => return Ok(false),
            Ok(0) => bail!("it is cut off"),
            Ok(n) => has += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ffmpeg 5.1 wrote: three frames of 4x2 pixels, grey of 10, 20 and 30.
    const THREE: &[u8] = include_bytes!("three-5.1.nut");
    /// The same by ffmpeg 9.0.
    const THREE_NEWER: &[u8] = include_bytes!("three-9.0.nut");

    fn frames(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        if let Some(mut nut) = Nut::open(&mut bytes)? {
            while let Some(frame) = nut.next_frame(1 << 10)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_of_ffmpeg_are_read() {
        for file in [THREE, THREE_NEWER] {
            assert_eq!(frames(file).unwrap(), [[10; 24], [20; 24], [30; 24]]);
        }
        assert!(frames(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_cut_off_or_changed_is_an_error_or_other_frames_and_never_a_panic() {
        let mut errors = 0;
        for cut in 0..THREE.len() {
            errors += usize::from(frames(&THREE[..cut]).is_err());
        }
        assert!(errors > THREE.len() / 2, "{errors}");
        for at in 0..THREE.len() {
            for bit in 0..8 {
                let mut changed = THREE.to_vec();
                changed[at] ^= 1 << bit;
                let _ = frames(&changed);
            }
        }
    }

    #[test]
    fn a_frame_that_is_too_large_is_refused_before_it_is_read() {
        let mut nut = Nut::open(THREE).unwrap().unwrap();
        let error = nut.next_frame(23).unwrap_err();
        assert_eq!(error.to_string(), "a frame has more than 23 bytes");
    }
}
