//! The pieces of a message that came, and what its header says.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::HEADER;

/// Pieces smaller than this are copied together: each would keep the whole buffer that it was cut from.
const PIECE_MIN: usize = 4 << 10;

/// The length of the message that begins here, if its header is whole.
pub(super) fn length_of(bytes: &[u8]) -> Option<usize> {
    let &[_, a, b, c, d, ..] = bytes else {
        return None;
    };
    Some(u32::from_be_bytes([a, b, c, d]) as usize)
}

/// The pieces that came, in order.
#[derive(Default)]
pub(super) struct Pieces {
    /// Most messages are one piece. Empty where there are only small pieces.
    first: Bytes,
    more: VecDeque<Bytes>,
    /// Small pieces, copied together; they follow all others.
    small: BytesMut,
    pub(super) bytes: usize,
}

impl Pieces {
    pub(super) fn push(&mut self, data: Bytes) {
        self.bytes += data.len();
        if self.bytes == data.len() {
            self.first = match data.len() < PIECE_MIN {
                true => Bytes::copy_from_slice(&data),
                false => data,
            };
            return;
        }
        if data.len() < PIECE_MIN {
            self.small.extend_from_slice(&data);
            return;
        }
        if !self.small.is_empty() {
            self.more.push_back(self.small.split().freeze());
        }
        self.more.push_back(data);
    }

    /// The flag of the message that begins here.
    pub(super) fn flag(&self) -> Option<u8> {
        let more = self.more.iter().map(|b| &b[..]);
        let all = [&self.first[..]].into_iter().chain(more);
        all.chain([&self.small[..]]).flatten().next().copied()
    }

    /// Drops the first bytes.
    pub(super) fn drop_first(&mut self, mut bytes: usize) {
        while bytes > 0 && self.bytes > 0 {
            bytes -= self.pop(bytes).len();
        }
    }

    /// The length of the message that begins here, once its header is whole.
    pub(super) fn length(&self) -> Option<usize> {
        if let Some(length) = length_of(&self.first) {
            return Some(length);
        }
        let mut header = [0; HEADER];
        let mut n = 0;
        let more = self.more.iter().map(|b| &b[..]);
        for part in [&self.first[..]]
            .into_iter()
            .chain(more)
            .chain([&self.small[..]])
        {
            let take = part.len().min(HEADER - n);
            header[n..n + take].copy_from_slice(&part[..take]);
            n += take;
        }
        length_of(&header[..n])
    }

    /// The next piece, of at most `most` bytes.
    pub(super) fn pop(&mut self, most: usize) -> Bytes {
        if self.first.is_empty() {
            let next = self.more.pop_front();
            self.first = next.unwrap_or_else(|| self.small.split().freeze());
        }
        let piece = self.first.split_to(most.min(self.first.len()));
        self.bytes -= piece.len();
        piece
    }
}
