//! EXIF, of which one number matters here. A parser of all of it would read a hundred fields for it.

use crate::upright::Orientation;

/// The tag of the orientation, and the kind of a number of 16 bits.
const ORIENTATION: u16 = 0x0112;
const SHORT: u16 = 3;
/// Before EXIF in a JPEG; some encoders write it elsewhere, too.
pub(crate) const PREFIX: &[u8] = b"Exif\0\0";

/// How the picture lies, as EXIF data say. Upright, where they say nothing that can be understood.
pub(crate) fn orientation(data: &[u8]) -> Orientation {
    let tiff = data.strip_prefix(PREFIX).unwrap_or(data);
    Orientation::of(number(tiff).unwrap_or(1))
}

/// The orientation in the first directory of a TIFF.
fn number(tiff: &[u8]) -> Option<u32> {
    let is_little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let two = tiff.get(at..)?.first_chunk()?;
        Some(match is_little {
            true => u16::from_le_bytes(*two),
            false => u16::from_be_bytes(*two),
        })
    };
    let long = |at: usize| {
        let four = tiff.get(at..)?.first_chunk()?;
        Some(match is_little {
            true => u32::from_le_bytes(*four),
            false => u32::from_be_bytes(*four),
        })
    };
    let directory = usize::try_from(long(4)?).ok()?;
    let entries = usize::from(short(directory)?);
    let entry = |n: usize| directory.checked_add(2 + 12 * n);
    let found = (0..entries)
        .map_while(entry)
        .find(|at| short(*at) == Some(ORIENTATION))?;
    match short(found + 2)? {
        SHORT => Some(u32::from(short(found + 8)?)),
        // Some encoders write 32 bits.
        _ => long(found + 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiff(little: bool, tag: u16, kind: u16, value: u16) -> Vec<u8> {
        let two = |n: u16| {
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let four = |n: u32| {
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let mut out = if little {
            b"II*\0".to_vec()
        } else {
            b"MM\0*".to_vec()
        };
        out.extend(four(8));
        out.extend(two(2));
        for (tag, value) in [(0x010f, 7), (tag, value)] {
            out.extend(two(tag));
            out.extend(two(kind));
            out.extend(four(1));
            match kind {
                SHORT => out.extend([two(value), [0, 0]].concat()),
                _ => out.extend(four(u32::from(value))),
            }
        }
        out
    }

    #[test]
    fn the_orientation_is_read_in_both_byte_orders() {
        for little in [true, false] {
            for kind in [SHORT, 4] {
                for value in 1..=8 {
                    let data = tiff(little, ORIENTATION, kind, value);
                    assert_eq!(u16::from(orientation(&data).number()), value);
                    let prefixed = [PREFIX, &data].concat();
                    assert_eq!(u16::from(orientation(&prefixed).number()), value);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_understood_is_upright() {
        let whole = tiff(true, ORIENTATION, SHORT, 6);
        for keep in 0..whole.len() - 2 {
            assert_eq!(orientation(&whole[..keep]), Orientation::UPRIGHT, "{keep}");
        }
        for value in [0, 9, 65_535] {
            let data = tiff(true, ORIENTATION, SHORT, value);
            assert_eq!(orientation(&data), Orientation::UPRIGHT);
        }
        assert_eq!(
            orientation(&tiff(true, 0x0113, SHORT, 6)),
            Orientation::UPRIGHT
        );
        let mut far = whole;
        far[4..8].fill(0xff);
        assert_eq!(orientation(&far), Orientation::UPRIGHT);
    }
}
