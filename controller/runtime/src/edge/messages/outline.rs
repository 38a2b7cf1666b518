//! A message that is too long to be kept: all of it but the data of its frame, so that the frame can be refused by its
//! number.

use prost::encoding::{WireType, encode_key, encode_varint};

/// Most bytes that are kept: far more than a frame has beside its data.
pub(crate) const KEPT_MAX: usize = 64 << 10;
/// The field of a call's message that holds its frame, and that of a frame that holds its data.
const FRAME: u32 = 2;
const DATA: u32 = 3;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The number and type of a field.
    Key,
    /// The value of a field that is a number.
    Number(u32),
    /// The length of a field.
    Length(u32),
    /// That many bytes of the outline.
    Outlined(usize),
    /// That many bytes of the frame's data.
    Data(usize),
}

/// Follows a message of protobuf in pieces, however they are cut.
pub(super) struct Outline {
    next: Next,
    /// The number that is being read, and its bits so far.
    number: (u64, u32),
    /// Bytes of the frame that are still to come, inside of it.
    frame_left: Option<usize>,
    has_frame: bool,
    message: Vec<u8>,
    frame: Vec<u8>,
    /// Bytes of data, as far as lengths claim them.
    data: usize,
}

impl Outline {
    pub(super) fn new() -> Self {
        Outline {
            next: Next::Key,
            number: (0, 0),
            frame_left: None,
            has_frame: false,
            message: Vec::new(),
            frame: Vec::new(),
            data: 0,
        }
    }

    /// Reads the next bytes of the message.
    ///
    /// # Errors
    /// When they are no message, or it has too much beside its frame's data.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let taken = match self.next {
                Next::Outlined(n) => {
                    let taken = n.min(bytes.len());
                    let outline = self.bytes();
                    outline.extend_from_slice(&bytes[..taken]);
                    self.next = after(n - taken, Next::Outlined);
                    taken
                }
                Next::Data(n) => {
                    let taken = n.min(bytes.len());
                    self.next = after(n - taken, Next::Data);
                    taken
                }
                _ => {
                    self.number_goes_on(bytes[0])?;
                    1
                }
            };
            bytes = &bytes[taken..];
            if let Some(left) = self.frame_left {
                let left = left
                    .checked_sub(taken)
                    .ok_or("its frame is longer than it says")?;
                // A field that begins in the frame ends there.
                let is_within = self.next != Next::Key || self.number.1 > 0;
                self.frame_left = (left > 0 || is_within).then_some(left);
            }
            if self.message.len() + self.frame.len() > KEPT_MAX {
                return Err(format!(
                    "it has more than {KEPT_MAX} bytes beside its frame's data"
                ));
            }
        }
        Ok(())
    }

    /// The message without its frame's data, and how many bytes that are. The rest of the message may be data that was not
    /// read.
    ///
    /// # Errors
    /// When it has no frame, or ends elsewhere.
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, usize), String> {
        if !self.has_frame {
            return Err("it carries no frame".to_owned());
        }
        if !matches!(self.next, Next::Key | Next::Data(_)) || self.number.1 > 0 {
            return Err("it ends within a field".to_owned());
        }
        encode_key(FRAME, WireType::LengthDelimited, &mut self.message);
        encode_varint(self.frame.len() as u64, &mut self.message);
        self.message.extend_from_slice(&self.frame);
        Ok((self.message, self.data))
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        match self.frame_left {
            Some(_) => &mut self.frame,
            None => &mut self.message,
        }
    }

    /// One more byte of a number.
    fn number_goes_on(&mut self, byte: u8) -> Result<(), String> {
        let (value, bits) = self.number;
        if bits > 63 {
            return Err("a number of it has too many bytes".to_owned());
        }
        let value = value | u64::from(byte & 0x7f) << bits;
        if byte & 0x80 != 0 {
            self.number = (value, bits + 7);
            return Ok(());
        }
        self.number = (0, 0);
        self.number_ends(value)
    }

    fn number_ends(&mut self, value: u64) -> Result<(), String> {
        let length = || usize::try_from(value).map_err(|_| "a length of it is absurd".to_owned());
        self.next = match self.next {
            Next::Key => {
                let field = u32::try_from(value >> 3).map_err(|_| "it has an absurd field")?;
                let kind = WireType::try_from(value & 7).map_err(|error| error.to_string())?;
                match kind {
                    WireType::Varint => Next::Number(field),
                    WireType::LengthDelimited => Next::Length(field),
                    WireType::SixtyFourBit | WireType::ThirtyTwoBit => {
                        encode_key(field, kind, self.bytes());
                        Next::Outlined(if kind == WireType::SixtyFourBit { 8 } else { 4 })
                    }
                    _ => return Err("it has a group, which no message here has".to_owned()),
                }
            }
            Next::Number(field) => {
                let outline = self.bytes();
                encode_key(field, WireType::Varint, outline);
                encode_varint(value, outline);
                Next::Key
            }
            Next::Length(FRAME) if self.frame_left.is_none() => {
                self.has_frame = true;
                // The bytes of this length are not the frame's.
                self.frame_left = Some(length()?.saturating_add(1));
                Next::Key
            }
            Next::Length(DATA) if self.frame_left.is_some() => {
                self.data = self.data.saturating_add(length()?);
                after(length()?, Next::Data)
            }
            Next::Length(field) => {
                let outline = self.bytes();
                encode_key(field, WireType::LengthDelimited, outline);
                encode_varint(value, outline);
                after(length()?, Next::Outlined)
            }
            next => next,
        };
        Ok(())
    }
}

/// What comes next when that many bytes of a field are left.
fn after(left: usize, field: impl Fn(usize) -> Next) -> Next {
    match left {
        0 => Next::Key,
        left => field(left),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use spillgate_proto::pb;

    use super::*;

    fn frame() -> pb::Frame {
        pb::Frame {
            number: 300,
            format: 2,
            data: vec![7; 5000].into(),
            width: 640,
            timeout_ms: 1.5,
            application: "door".to_owned(),
            models: [("faces".to_owned(), "cam-1".to_owned())].into(),
            ..Default::default()
        }
    }

    #[test]
    fn all_but_the_data_is_kept_however_the_message_is_cut() {
        let request = |frame| pb::InferRequest {
            pipeline: "p".to_owned(),
            frame: Some(frame),
        };
        let whole = request(frame()).encode_to_vec();
        let without = request(pb::Frame {
            data: Default::default(),
            ..frame()
        });
        for size in [1, 2, 7, 100, 4999, 1 << 20] {
            let mut outline = Outline::new();
            whole
                .chunks(size)
                .for_each(|piece| outline.read(piece).unwrap());
            let (message, data) = outline.finish().unwrap();
            assert_eq!(data, 5000, "in pieces of {size}");
            let read = pb::InferRequest::decode(&message[..]).unwrap();
            assert_eq!(read, without, "in pieces of {size}");
        }
        // Its beginning says which frame it is.
        let mut outline = Outline::new();
        outline.read(&whole[..100]).unwrap();
        let (message, data) = outline.finish().unwrap();
        let read = pb::InferRequest::decode(&message[..]).unwrap();
        assert_eq!((read.frame.unwrap().number, data), (300, 5000));
    }

    #[test]
    fn what_is_no_message_with_a_frame_says_so() {
        let read = |bytes: &[u8]| {
            let mut outline = Outline::new();
            outline.read(bytes).and_then(|()| outline.finish())
        };
        let open = pb::StreamOpen {
            client: "x".repeat(5000),
            ..Default::default()
        };
        let message = pb::stream_request::Message::Open(open);
        let open = pb::StreamRequest {
            message: Some(message),
        };
        assert_eq!(
            read(&open.encode_to_vec()).unwrap_err(),
            "it carries no frame"
        );
        let models = (0..5000).map(|i| (format!("module-{i:020}"), String::new()));
        let many = pb::InferRequest {
            pipeline: String::new(),
            frame: Some(pb::Frame {
                models: models.collect(),
                ..frame()
            }),
        };
        let error = read(&many.encode_to_vec()).unwrap_err();
        assert!(error.contains("beside its frame's data"), "{error}");
        // A field that ends behind the frame that it is in; a number without end; a group; half of a field.
        for bytes in [
            &[0x12, 2, 0x1a, 9, 1, 1][..],
            &[0xff; 12],
            &[0x0b],
            &[0x12, 9, 0x4a, 7, 1],
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
