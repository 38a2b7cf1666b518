//! How many entries the lists and maps of a message have, counted in its bytes before any memory is taken for them. An entry of
//! two bytes may take a hundred once decoded.

use std::marker::PhantomData;

use prost::Name;
use prost::encoding::{WireType, decode_key, decode_varint};

/// How entries lie in bytes that hold several of them.
enum Entry {
    /// Each in bytes of its own.
    Apart,
    Varint,
    Four,
    Eight,
}

/// A field that is a list, a map or a message.
struct Field {
    number: u32,
    name: &'static str,
    /// Most entries; none where it is no list.
    most: Option<u32>,
    entry: Entry,
    /// The place of its message's shape.
    inner: Option<usize>,
}

/// The fields of a message that are lists, maps or messages, by number.
pub(crate) struct Shape {
    name: &'static str,
    fields: &'static [Field],
}

/// By name.
const SHAPES: &[Shape] = &include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

/// Most fields of one shape.
const FIELDS_MAX: usize = 16;
const _: () = {
    let mut i = 0;
    while i < SHAPES.len() {
        assert!(SHAPES[i].fields.len() <= FIELDS_MAX);
        i += 1;
    }
};

/// The shape of `M`, if it is a message of this package. It is found while this is compiled.
pub(crate) fn of<M: Name>() -> Option<&'static Shape> {
    struct Of<M>(PhantomData<M>);
    impl<M: Name> Of<M> {
        const SHAPE: Option<&'static Shape> = find(M::PACKAGE, M::NAME);
    }
    Of::<M>::SHAPE
}

const fn find(package: &str, name: &str) -> Option<&'static Shape> {
    let mut i = 0;
    while i < SHAPES.len() {
        if is_named(SHAPES[i].name, package, name) {
            return Some(&SHAPES[i]);
        }
        i += 1;
    }
    None
}

/// Whether a full name is that of a name in a package.
const fn is_named(full: &str, package: &str, name: &str) -> bool {
    let (full, package, name) = (full.as_bytes(), package.as_bytes(), name.as_bytes());
    if full.len() != package.len() + 1 + name.len() {
        return false;
    }
    let mut i = 0;
    while i < full.len() {
        let byte = if i < package.len() {
            package[i]
        } else if i == package.len() {
            b'.'
        } else {
            name[i - package.len() - 1]
        };
        if full[i] != byte {
            return false;
        }
        i += 1;
    }
    true
}

impl Shape {
    /// Whether lists and maps have no more entries than they may, and messages in fields come once.
    ///
    /// # Errors
    /// Which field has too many, or why the bytes are no message.
    pub(crate) fn check(&self, mut bytes: &[u8]) -> Result<(), String> {
        let mut counts = [0u32; FIELDS_MAX];
        while !bytes.is_empty() {
            let malformed = |error: prost::DecodeError| format!("{}: {error}", self.name);
            let (number, wire_type) = decode_key(&mut bytes).map_err(malformed)?;
            let length = match wire_type {
                WireType::Varint => {
                    decode_varint(&mut bytes).map_err(malformed)?;
                    self.count(number, 1, &mut counts)?;
                    continue;
                }
                WireType::ThirtyTwoBit => 4,
                WireType::SixtyFourBit => 8,
                WireType::LengthDelimited => decode_varint(&mut bytes).map_err(malformed)?,
                WireType::StartGroup | WireType::EndGroup => {
                    return Err(format!("{}: groups are not used", self.name));
                }
            };
            let length = usize::try_from(length).ok();
            let taken = length.and_then(|length| bytes.split_at_checked(length));
            let Some((content, rest)) = taken else {
                return Err(format!("{}: it is cut short", self.name));
            };
            bytes = rest;
            let Some(field) = self.field(number) else {
                continue;
            };
            let entries = match (&field.entry, wire_type) {
                (Entry::Varint, WireType::LengthDelimited) => {
                    content.iter().filter(|byte| **byte < 0x80).count()
                }
                (Entry::Four, WireType::LengthDelimited) => content.len() / 4,
                (Entry::Eight, WireType::LengthDelimited) => content.len() / 8,
                _ => 1,
            };
            self.count(number, entries, &mut counts)?;
            if let (Some(inner), WireType::LengthDelimited) = (field.inner, wire_type) {
                SHAPES[inner].check(content)?;
            }
        }
        Ok(())
    }

    fn field(&self, number: u32) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.number == number)
    }

    fn count(
        &self,
        number: u32,
        entries: usize,
        counts: &mut [u32; FIELDS_MAX],
    ) -> Result<(), String> {
        let Some(place) = self.fields.iter().position(|field| field.number == number) else {
            return Ok(());
        };
        let (field, most) = (&self.fields[place], self.fields[place].most);
        counts[place] = counts[place].saturating_add(u32::try_from(entries).unwrap_or(u32::MAX));
        if counts[place] <= most.unwrap_or(1) {
            return Ok(());
        }
        Err(match most {
            Some(most) => format!("{}.{} has more than {most} entries", self.name, field.name),
            None => format!("{}.{} is given twice", self.name, field.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use prost::Message;

    use super::*;
    use crate::{link, pb};

    fn checked<M: Message + Name>(message: &M) -> Result<(), String> {
        of::<M>().unwrap().check(&message.encode_to_vec())
    }

    #[test]
    fn maps_have_a_bound() {
        let with = |n: usize| {
            let models: HashMap<String, String> =
                (0..n).map(|i| (i.to_string(), String::new())).collect();
            let frame = pb::Frame {
                models,
                ..Default::default()
            };
            checked(&pb::InferRequest {
                frame: Some(frame),
                ..Default::default()
            })
        };
        assert_eq!(with(1024), Ok(()));
        let error = with(1025).unwrap_err();
        assert_eq!(
            error,
            "spillgate.v1.Frame.models has more than 1024 entries"
        );
    }

    #[test]
    fn a_message_that_comes_in_parts_is_refused() {
        let frame = pb::Frame {
            models: [("a".to_owned(), "b".to_owned())].into(),
            ..Default::default()
        };
        let bytes = pb::InferRequest {
            frame: Some(frame),
            ..Default::default()
        }
        .encode_to_vec();
        let error = of::<pb::InferRequest>().unwrap().check(&bytes.repeat(2));
        assert_eq!(
            error.unwrap_err(),
            "spillgate.v1.InferRequest.frame is given twice"
        );
    }

    #[test]
    fn entries_count_together_or_apart() {
        let tensor = |n| pb::Tensor {
            shape: vec![1; n],
            data: vec![0.5; 100_000],
            ..Default::default()
        };
        assert_eq!(checked(&tensor(64)), Ok(()));
        assert!(checked(&tensor(65)).is_err());
        // Each with a key of its own.
        let apart = |n: usize| of::<pb::Tensor>().unwrap().check(&[0x08, 1].repeat(n));
        assert_eq!(apart(64), Ok(()));
        assert!(apart(65).is_err());
    }

    #[test]
    fn messages_of_links_have_bounds_too() {
        let packets = |n| link::Packets {
            packets: vec![link::Packet::default(); n],
        };
        assert_eq!(checked(&packets(256)), Ok(()));
        assert!(checked(&packets(257)).is_err());
    }

    #[test]
    fn bytes_that_are_no_message_are_errors_and_unknown_fields_are_none() {
        let check = |bytes: &[u8]| of::<pb::InferRequest>().unwrap().check(bytes);
        for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[0xff; 11], &[0x0b], &[0x0c]] {
            assert!(check(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(check(&[0xfa, 0x7f, 2, 1, 2]), Ok(()));
    }
}
