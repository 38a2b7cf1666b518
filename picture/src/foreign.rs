//! Names of what is sent in place of a picture that can be read.

/// The name of a file's kind, with an article; `None` where its first bytes tell nothing.
pub(crate) fn name(data: &[u8]) -> Option<&'static str> {
    let at = |from: usize, bytes: &[u8]| data.get(from..).is_some_and(|d| d.starts_with(bytes));
    let starts = |bytes: &[u8]| at(0, bytes);
    if at(4, b"ftyp") {
        return Some(match data.get(8..12)? {
            b"avif" | b"avis" => "an AVIF picture",
            b"heic" | b"heix" | b"hevc" | b"hevx" | b"heim" | b"heis" | b"mif1" | b"msf1" => {
                "a HEIC picture"
            }
            _ => "a video file (MP4), of which `spillgate stream` sends the frames",
        });
    }
    let known: [(&[u8], &str); 20] = [
        (b"GIF87a", "a GIF"),
        (b"GIF89a", "a GIF"),
        (b"BM", "a BMP"),
        (b"II*\0", "a TIFF"),
        (b"MM\0*", "a TIFF"),
        (b"\0\0\x01\0", "an icon (ICO)"),
        (b"8BPS", "a Photoshop file"),
        (b"\0\0\0\x0cjP  ", "a JPEG 2000 picture"),
        (b"\xff\x4f\xff\x51", "a JPEG 2000 picture"),
        (b"\0\0\0\x0cJXL ", "a JPEG XL picture"),
        (b"\xff\x0a", "a JPEG XL picture"),
        (b"P5", "a PGM picture"),
        (b"P6", "a PPM picture"),
        (b"qoif", "a QOI picture"),
        (b"%PDF", "a PDF"),
        (
            b"\x1a\x45\xdf\xa3",
            "a video file (Matroska or WebM), of which `spillgate stream` sends the frames",
        ),
        (
            b"\0\0\0\x01",
            "a piece of an H.264 or H.265 stream, of which `spillgate stream` sends the frames",
        ),
        (
            b"\0\0\x01",
            "a piece of an H.264 or H.265 stream, of which `spillgate stream` sends the frames",
        ),
        (b"\x1f\x8b", "packed with gzip"),
        (b"PK\x03\x04", "a ZIP archive"),
    ];
    if let Some((_, name)) = known.into_iter().find(|(bytes, _)| starts(bytes)) {
        return Some(name);
    }
    if starts(b"RIFF") && at(8, b"AVI ") {
        return Some("a video file (AVI), of which `spillgate stream` sends the frames");
    }
    // An error page of a server that was asked for a picture, or a description of one.
    let text = data.trim_ascii_start();
    let tag = |name: &[u8]| {
        text.get(..name.len())
            .is_some_and(|t| t.eq_ignore_ascii_case(name))
    };
    if tag(b"<!doctype html") || tag(b"<html") {
        return Some("an HTML page");
    }
    if tag(b"<svg") || tag(b"<?xml") {
        return Some("an XML text");
    }
    if tag(b"{\"") || tag(b"data:image") {
        return Some("a text");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named() {
        for (data, expected) in [
            (&b"\0\0\0\x1cftypavif\0\0\0\0"[..], Some("an AVIF picture")),
            (b"\0\0\0\x18ftypheic\0\0\0\0", Some("a HEIC picture")),
            (b"GIF89a\x01\0", Some("a GIF")),
            (b"BM6\x03\0\0", Some("a BMP")),
            (b"II*\0\x08\0", Some("a TIFF")),
            (b"\r\n  <!DOCTYPE HTML PUBLIC>", Some("an HTML page")),
            (b"<html><body>401", Some("an HTML page")),
            (b"hello", None),
            (b"", None),
            (b"\0\0\0\x1cftyp", None),
        ] {
            assert_eq!(name(data), expected);
        }
    }
}
