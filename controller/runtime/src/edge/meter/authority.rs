//! Names of servers that gRPC sends and the parser of HTTP/2 refuses. For the target `ipv4:10.0.0.1:7700,10.0.0.2:7700` a
//! client names the server `10.0.0.1:7700,10.0.0.2:7700`, or with `%2C`, which is no authority of a URI. Nothing here depends on that
//! name, so what could be refused in it is replaced, byte by byte, as the headers come in.

/// Types of the frames that carry headers, and their flags.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// Bytes of a priority.
const PRIORITY_BYTES: usize = 5;
/// The header, and its index in the table of headers that HTTP/2 begins with.
const NAME: &[u8] = b":authority";
const AUTHORITY: u8 = 1;
/// What a name may consist of whatever it is.
const REPLACED_BY: u8 = b'.';

/// What comes next in a block of headers (RFC 7541, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A field.
    Field,
    /// More bytes of the number that a field begins with; then a field.
    Index,
    /// The same; then the length of a value.
    IndexThenValue,
    /// The length of a text.
    Length(Text),
    /// More bytes of it: the length so far, and by how many bits the next ones are shifted.
    MoreLength(Text, usize, u32),
    /// That many bytes of a text.
    Text(Text, usize),
}

/// A text of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    /// A name that is `:authority` so far, not compressed.
    Name,
    OtherName,
    Value,
    /// The value of `:authority`, not compressed.
    Authority,
}

/// Follows blocks of headers, however their bytes are cut.
pub(super) struct HeaderBlocks {
    /// The length of the padding comes first.
    is_padded: bool,
    /// Bytes before the block that are not its own.
    before: usize,
    /// Bytes of the block in this frame.
    left: usize,
    next: Next,
}

impl Default for HeaderBlocks {
    fn default() -> Self {
        HeaderBlocks {
            is_padded: false,
            before: 0,
            left: 0,
            next: Next::Field,
        }
    }
}

impl HeaderBlocks {
    /// A frame begins.
    pub(super) fn begins(&mut self, kind: u8, flags: u8, length: usize) {
        let is_first = kind == HEADERS;
        self.is_padded = is_first && flags & PADDED != 0;
        self.before = match is_first && flags & PRIORITY != 0 {
            true => PRIORITY_BYTES,
            false => 0,
        };
        let own = self.before + usize::from(self.is_padded);
        self.left = match kind {
            HEADERS => length.saturating_sub(own),
            CONTINUATION => length,
            _ => 0,
        };
        if is_first {
            self.next = Next::Field;
        }
    }

    /// The next bytes of that frame.
    pub(super) fn read(&mut self, mut bytes: &mut [u8]) {
        while let Some(first) = bytes.first().copied() {
            let taken = if self.is_padded {
                self.is_padded = false;
                self.left = self.left.saturating_sub(first.into());
                1
            } else if self.before > 0 {
                let taken = self.before.min(bytes.len());
                self.before -= taken;
                taken
            } else if self.left == 0 {
                return;
            } else {
                let taken = match self.next {
                    Next::Text(text, n) => {
                        let taken = n.min(bytes.len()).min(self.left);
                        self.next = rest_of(text_of(text, n, &mut bytes[..taken]), n - taken);
                        taken
                    }
                    // Most fields are one byte each, of the table.
                    Next::Field if is_of_table(first) => {
                        let own = &bytes[..bytes.len().min(self.left)];
                        own.iter().take_while(|b| is_of_table(**b)).count()
                    }
                    next => {
                        self.next = after(next, first);
                        1
                    }
                };
                self.left -= taken;
                taken
            };
            bytes = &mut bytes[taken..];
        }
    }
}

/// Reads bytes of a text of which that many are left.
fn text_of(text: Text, left: usize, bytes: &mut [u8]) -> Text {
    match text {
        Text::Authority => bytes.iter_mut().for_each(tame),
        Text::Name if !NAME[NAME.len() - left..].starts_with(bytes) => return Text::OtherName,
        _ => {}
    }
    text
}

/// Replaces what is not part of every name.
fn tame(byte: &mut u8) {
    if !byte.is_ascii_alphanumeric() && !matches!(byte, b'-' | b'_' | b'.' | b'~') {
        *byte = REPLACED_BY;
    }
}

/// What comes when that many bytes of a text are left.
fn rest_of(text: Text, left: usize) -> Next {
    match (left, text) {
        (0, Text::Name) => Next::Length(Text::Authority),
        (0, Text::OtherName) => Next::Length(Text::Value),
        (0, _) => Next::Field,
        (left, text) => Next::Text(text, left),
    }
}

/// Whether it is a whole field: its index in the table is one byte.
fn is_of_table(byte: u8) -> bool {
    (0x80..0xff).contains(&byte)
}

/// What comes after a byte that is not of a text.
fn after(next: Next, byte: u8) -> Next {
    let goes_on = byte & 0x80 != 0;
    match next {
        // A field of the table, or its new size.
        Next::Field if goes_on => of_index(byte, 0x7f, Next::Field, Next::Index),
        Next::Field if byte & 0xe0 == 0x20 => of_index(byte, 0x1f, Next::Field, Next::Index),
        // A field whose name is in the table, or comes first.
        Next::Field => {
            let most = if byte & 0x40 != 0 { 0x3f } else { 0x0f };
            let value = match byte & most {
                0 => return Next::Length(Text::Name),
                AUTHORITY => Text::Authority,
                _ => Text::Value,
            };
            of_index(byte, most, Next::Length(value), Next::IndexThenValue)
        }
        Next::Index if goes_on => Next::Index,
        Next::Index => Next::Field,
        Next::IndexThenValue if goes_on => Next::IndexThenValue,
        Next::IndexThenValue => Next::Length(Text::Value),
        Next::Length(text) => {
            let text = match text {
                // Compressed ones come from clients that send no lists.
                Text::Authority if goes_on => Text::Value,
                Text::Name if goes_on || usize::from(byte) != NAME.len() => Text::OtherName,
                text => text,
            };
            match usize::from(byte & 0x7f) {
                0x7f => Next::MoreLength(text, 0x7f, 0),
                n => rest_of(text, n),
            }
        }
        Next::MoreLength(text, n, shift) => {
            let more = usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            let n = n.saturating_add(more);
            match goes_on {
                true => Next::MoreLength(text, n, shift + 7),
                false => rest_of(text, n),
            }
        }
        Next::Text(text, n) => Next::Text(text, n),
    }
}

/// What comes after the first byte of an index: the same in one byte, or more of it.
fn of_index(byte: u8, most: u8, whole: Next, more: Next) -> Next {
    match byte & most == most {
        true => more,
        false => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that is not compressed.
    fn text(of: &[u8]) -> Vec<u8> {
        let mut bytes = match of.len() {
            n if n < 0x7f => vec![n as u8],
            n => vec![0x7f, (n - 0x7f) as u8 | 0x80, ((n - 0x7f) >> 7) as u8],
        };
        bytes.extend(of);
        bytes
    }

    #[test]
    fn authorities_of_lists_become_names_and_nothing_else_changes_however_it_is_cut() {
        let list = b"10.0.0.1:7700%2C[::1]:7700";
        let long = b"x:7700%2C".repeat(40);
        let path = b"/spillgate.v1.Spillgate/Stream%2C";
        // New size, :method POST, :path by index, :authority, a name of its own, an index of several bytes.
        let block = |authority: &[u8]| {
            let mut block = vec![0x3f, 0xe1, 0x1f, 0x83];
            block.extend([vec![0x44], text(path)].concat());
            block.extend([vec![0x41], text(authority)].concat());
            block.extend([vec![0x40], text(NAME), text(authority)].concat());
            block.extend([vec![0x40], text(b":authoritx"), text(b"a:%2C")].concat());
            block.extend([vec![0x40], text(b"a-name"), text(b"100%: a, b")].concat());
            block.extend([vec![0x7f, 0x80, 0x01], text(b"%")].concat());
            block.extend([vec![0xff, 0x05], vec![0x01], text(authority)].concat());
            block
        };
        for authority in [&list[..], &long] {
            let mut expected = authority.to_vec();
            expected.iter_mut().for_each(tame);
            assert!(!expected.contains(&b'%') && !expected.contains(&b':'));
            let whole = block(authority);
            for size in [1, 2, 3, 7, 1000] {
                // Padding and a priority in the first frame, the rest in another one.
                let (first, second) = whole.split_at(20);
                let padded = [&[4][..], &[9; PRIORITY_BYTES], first, &[b'%'; 4]].concat();
                let mut blocks = HeaderBlocks::default();
                let mut seen = Vec::new();
                for (kind, flags, bytes) in [
                    (HEADERS, PADDED | PRIORITY, padded),
                    (CONTINUATION, 0, second.to_vec()),
                    (0, 0, b"%data%".to_vec()),
                ] {
                    let mut bytes = bytes;
                    blocks.begins(kind, flags, bytes.len());
                    bytes.chunks_mut(size).for_each(|piece| blocks.read(piece));
                    seen.push(bytes);
                }
                let expected = block(&expected);
                let (first, second) = expected.split_at(20);
                let padded = [&[4][..], &[9; PRIORITY_BYTES], first, &[b'%'; 4]].concat();
                let all = [padded, second.to_vec(), b"%data%".to_vec()];
                assert_eq!(seen, all, "in pieces of {size}");
            }
        }
    }
}
