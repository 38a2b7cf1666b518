//! A tensor of an ONNX file: its size, checked against what the file holds of it, and the file beside it where it lies there.

use std::fmt;

use super::super::wire::{Fields, Value, integers};
use super::{TENSOR_BYTES_MAX, once, shown, text, too_large};

/// Most axes of a tensor.
pub(super) const AXES_MAX: usize = 64;
/// Most integers that may be the sizes of a tensor.
const NUMBERS_MAX: usize = AXES_MAX;
/// Most integers of a list in an attribute that are read: more than any operator takes as sizes.
const INTEGERS_MAX: usize = 1 << 16;

/// Most entries that say where a tensor lies in another file: four have a meaning.
const ENTRIES_MAX: usize = 16;

/// A kind of numbers, by ONNX's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::onnx) struct Kind(pub(in crate::onnx) i64);

impl Kind {
    pub(in crate::onnx) const FLOAT: Kind = Kind(1);
    pub(in crate::onnx) const UINT8: Kind = Kind(2);
    pub(in crate::onnx) const INT64: Kind = Kind(7);
    pub(in crate::onnx) const STRING: Kind = Kind(8);
    pub(in crate::onnx) const FLOAT16: Kind = Kind(10);

    /// Bits of a number, and its name. None for kinds that are not known.
    fn known(self) -> Option<(u64, &'static str)> {
        Some(match self.0 {
            1 => (32, "float32"),
            2 => (8, "uint8"),
            3 => (8, "int8"),
            4 => (16, "uint16"),
            5 => (16, "int16"),
            6 => (32, "int32"),
            7 => (64, "int64"),
            // A pointer and a length at least.
            8 => (128, "string"),
            9 => (8, "bool"),
            10 => (16, "float16"),
            11 => (64, "float64"),
            12 => (32, "uint32"),
            13 => (64, "uint64"),
            14 => (64, "complex64"),
            15 => (128, "complex128"),
            16 => (16, "bfloat16"),
            17 => (8, "float8e4m3fn"),
            18 => (8, "float8e4m3fnuz"),
            19 => (8, "float8e5m2"),
            20 => (8, "float8e5m2fnuz"),
            21 => (4, "uint4"),
            22 => (4, "int4"),
            23 => (4, "float4e2m1"),
            24 => (8, "float8e8m0"),
            25 => (2, "uint2"),
            26 => (2, "int2"),
            _ => return None,
        })
    }

    /// Its name.
    pub(in crate::onnx) fn name(self) -> &'static str {
        self.known().map_or("of an unknown kind", |(_, name)| name)
    }

    /// Whether outputs of it can be given on as f32.
    pub(in crate::onnx) fn is_number(self) -> bool {
        matches!(self.0, 1..=7 | 9..=13 | 16)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "kind {}", self.0),
        }
    }
}

/// A short list of integers.
pub(super) type Numbers = Vec<i64>;

/// A tensor in another file.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::onnx) struct External {
    /// The tensor.
    pub(in crate::onnx) name: String,
    /// The file, relative to the model's folder.
    pub(in crate::onnx) location: String,
    /// Where it begins there.
    pub(in crate::onnx) offset: u64,
    pub(in crate::onnx) bytes: u64,
}

/// A tensor.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    pub(super) external: Option<External>,
    /// Its numbers, of a short list of 64-bit integers.
    pub(super) numbers: Option<Numbers>,
}

/// Bytes of a tensor. None where they are too many to count, or an axis is negative.
pub(super) fn declared_bytes(kind: Kind, dims: &[i64]) -> Option<u64> {
    let (bits, _) = kind.known().unwrap_or((8, ""));
    let n = dims
        .iter()
        .try_fold(1u64, |n, dim| n.checked_mul(u64::try_from(*dim).ok()?))?;
    Some(n.checked_mul(bits)?.div_ceil(8))
}

/// The integers of a list that is not too long.
pub(super) fn bounded_integers(value: Value<'_>, into: &mut Vec<i64>) -> Result<(), String> {
    match integers(value, INTEGERS_MAX, into)? {
        true => Ok(()),
        false => Err(format!("a list in it has more than {INTEGERS_MAX} numbers")),
    }
}

/// Sizes of axes: not more than a tensor may have.
pub(super) fn sizes(value: Value<'_>, into: &mut Vec<i64>) -> Result<(), String> {
    match integers(value, AXES_MAX, into)? {
        true => Ok(()),
        false => Err(format!("a tensor of it has more than {AXES_MAX} axes")),
    }
}

/// A number of 32 bits. Readers of Protocol Buffers cut a longer one, each in its own way.
pub(super) fn short(number: u64, what: &str) -> Result<i64, String> {
    match i32::try_from(number) {
        Ok(number) => Ok(i64::from(number)),
        Err(_) => Err(format!("it is damaged: {what} is {number}")),
    }
}

/// Where numbers of a tensor lie in the file.
#[derive(Clone, Copy)]
enum Held<'a> {
    /// As they are in memory.
    Raw(&'a [u8]),
    /// In lists, of so many bytes in all.
    Listed(u64),
}

impl Tensor {
    /// Reads it, and checks that the file holds as many numbers as it says.
    pub(super) fn read(tensor: &[u8]) -> Result<Tensor, String> {
        let (mut name, mut kind, mut dims) = (String::new(), Kind(0), Vec::new());
        let (mut entries, mut location) = (Vec::new(), None);
        let (mut held, mut listed) = (Held::Listed(0), Vec::new());
        let mut raw = None;
        for field in Fields::of(tensor) {
            match field? {
                (1, value) => sizes(value, &mut dims)?,
                (2, Value::Number(number)) => kind = Kind(short(number, "a tensor's kind")?),
                (8, Value::Bytes(bytes)) => name = text(bytes)?,
                (9, value) => once(&mut raw, value)?,
                (13, Value::Bytes(_)) if entries.len() == ENTRIES_MAX => {
                    return Err(format!(
                        "it is damaged: more than {ENTRIES_MAX} entries say where a tensor lies"
                    ));
                }
                (13, Value::Bytes(entry)) => entries.push(entry),
                // Readers of Protocol Buffers pass over what they do not know here, and the one before holds.
                (14, Value::Number(number @ (0 | 1))) if location.is_none() => {
                    location = Some(number);
                }
                (14, _) => {
                    return Err(
                        "it is damaged: whether a tensor lies in another file is not said once"
                            .to_owned(),
                    );
                }
                (number @ (4 | 5 | 6 | 7 | 10 | 11), value) => {
                    let bytes = match value {
                        Value::Bytes(bytes) | Value::Fixed(bytes) => bytes.len() as u64,
                        // A number by itself.
                        Value::Number(_) => 1,
                    };
                    if number == 7 && listed.len() < NUMBERS_MAX {
                        listed.push(value);
                    }
                    if let Held::Listed(all) = &mut held {
                        // An empty text has no byte of its own.
                        *all += bytes + u64::from(number == 6);
                    }
                }
                _ => {}
            }
        }
        if let Some(raw) = raw {
            held = Held::Raw(raw);
        }
        if kind.known().is_none() {
            return Err(format!(
                "its tensor {:?} is of {kind}, which is not known here; export it with float32",
                shown(&name)
            ));
        }
        let is_external = location == Some(1);
        if !is_external && !entries.is_empty() {
            return Err(format!(
                "it is damaged: the tensor {:?} lies in it and in another file",
                shown(&name)
            ));
        }
        let bytes = declared_bytes(kind, &dims)
            .filter(|bytes| *bytes <= TENSOR_BYTES_MAX as u64)
            .ok_or_else(|| too_large(&name, kind, &dims))?;
        let external = match is_external {
            true => Some(external(&entries, &name, bytes)?),
            false => {
                enough(&name, kind, &dims, bytes, held)?;
                None
            }
        };
        let is_short = kind == Kind::INT64 && bytes <= 8 * NUMBERS_MAX as u64 && external.is_none();
        let numbers = match held {
            Held::Raw(raw) if is_short => Some(eights(raw)),
            Held::Listed(_) if is_short => {
                let mut numbers = Vec::new();
                for value in listed {
                    // What is more than the tensor has is refused by ONNX Runtime.
                    integers(value, NUMBERS_MAX, &mut numbers)?;
                }
                Some(numbers)
            }
            _ => None,
        };
        Ok(Tensor {
            name,
            kind,
            bytes,
            external,
            numbers,
        })
    }
}

/// Numbers of eight bytes, the least first.
fn eights(raw: &[u8]) -> Numbers {
    let all = raw.as_chunks::<8>().0.iter();
    all.map(|eight| i64::from_le_bytes(*eight)).collect()
}

/// Whether the file holds a tensor's numbers.
fn enough(name: &str, kind: Kind, dims: &[i64], bytes: u64, held: Held<'_>) -> Result<(), String> {
    let n = dims.iter().map(|dim| *dim as u64).product::<u64>();
    let (is_enough, there) = match held {
        Held::Raw(raw) => (raw.len() as u64 == bytes, raw.len() as u64),
        // Numbers of few bits share a byte.
        Held::Listed(there) if matches!(kind.known(), Some((..8, _))) => (n <= 4 * there, there),
        Held::Listed(there) => (n <= there, there),
    };
    match is_enough {
        true => Ok(()),
        false => Err(format!(
            "its tensor {:?} of {kind} {dims:?} would have {bytes} bytes, and the file holds {there} of them; export it again",
            shown(name)
        )),
    }
}

/// Where a tensor lies in another file.
fn external(entries: &[&[u8]], name: &str, bytes: u64) -> Result<External, String> {
    let (mut location, mut offset, mut length) = (None, None, None);
    for entry in entries {
        let (mut key, mut value) = (String::new(), String::new());
        for field in Fields::of(entry) {
            match field? {
                (1, Value::Bytes(bytes)) => key = text(bytes)?,
                (2, Value::Bytes(bytes)) => value = text(bytes)?,
                _ => {}
            }
        }
        let found = match &*key {
            "location" => &mut location,
            "offset" => &mut offset,
            "length" => &mut length,
            _ => continue,
        };
        if found.replace(value).is_some() {
            return Err(format!(
                "it is damaged: {key} of the tensor {:?} is there twice",
                shown(name)
            ));
        }
    }
    let number = |text: Option<String>| text.map(|text| text.parse::<u64>()).transpose();
    let strange = |_| {
        format!(
            "it is damaged: where the tensor {:?} lies is no number",
            shown(name)
        )
    };
    let offset = number(offset).map_err(strange)?.unwrap_or(0);
    let length = number(length).map_err(strange)?.unwrap_or(bytes);
    let location = location.ok_or_else(|| {
        format!(
            "it is damaged: the tensor {:?} lies in another file without a name",
            shown(name)
        )
    })?;
    if length != bytes {
        return Err(format!(
            "its tensor {:?} has {bytes} bytes, and {length} of {} are for it; export it again",
            shown(name),
            shown(&location)
        ));
    }
    Ok(External {
        name: name.to_owned(),
        location,
        offset,
        bytes,
    })
}
