//! Reads small files, whatever is at their path: up to a limit, and within bounded time. A pipe without a writer, an
//! endless device or a folder is an error like any other.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Most time until a pipe has given all its content.
pub const PIPE_LIMIT: Duration = Duration::from_secs(5);
/// How often an empty pipe is looked at.
const PIPE_POLL: Duration = Duration::from_millis(5);

/// Why a file could not be read. It names no path, since the caller knows it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A folder.
    #[error("it is a folder; name a file in it")]
    Folder,
    /// The file is longer than the limit.
    #[error("it has more than the {limit} bytes that are read")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A pipe that gives nothing, or never ends.
    #[error("it is a pipe and had not ended after {} s; write all of it and close it, or name a file", PIPE_LIMIT.as_secs())]
    Endless,
    /// Bytes that are not UTF-8.
    #[error("it is no text: no UTF-8 at byte {at}")]
    NoText {
        /// Position, from 0.
        at: usize,
    },
}

/// Opens a file without waiting for the other side of a pipe.
///
/// # Errors
/// When it cannot be opened or is a folder.
pub fn open(path: &Path) -> Result<File, FileError> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_dir() {
        return Err(FileError::Folder);
    }
    Ok(file)
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// When it cannot be read, is longer, or is a pipe that does not end.
pub fn read(path: &Path, limit: usize) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    read_into(path, limit, &mut bytes)?;
    Ok(bytes)
}

/// The same into memory that is there, in place of what it held.
///
/// # Errors
/// As [`read`].
pub fn read_into(path: &Path, limit: usize, bytes: &mut Vec<u8>) -> Result<(), FileError> {
    let mut file = open(path)?;
    let found = file.metadata()?;
    let is_pipe = !found.is_file();
    // A FIFO without a writer looks like one at its end.
    let is_fifo = found.file_type().is_fifo();
    let give_up = Instant::now() + PIPE_LIMIT;
    bytes.clear();
    let length = usize::try_from(found.len()).unwrap_or(usize::MAX);
    // One more shows the end without growing.
    bytes.reserve(length.min(limit).saturating_add(1));
    loop {
        let left = (limit - bytes.len()).saturating_add(1);
        let n = match file.by_ref().take(left as u64).read_to_end(bytes) {
            Ok(0) if is_fifo && bytes.is_empty() => None,
            Ok(n) => Some(n),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => return Err(error.into()),
        };
        if bytes.len() > limit {
            return Err(FileError::TooLong { limit });
        }
        match n {
            Some(_) => return Ok(()),
            None => std::thread::sleep(PIPE_POLL),
        }
        if is_pipe && Instant::now() > give_up {
            return Err(FileError::Endless);
        }
    }
}

/// Reads a text of at most `limit` bytes.
///
/// # Errors
/// As [`read`], and when it is no UTF-8.
pub fn read_text(path: &Path, limit: usize) -> Result<String, FileError> {
    let bytes = read(path, limit)?;
    String::from_utf8(bytes).map_err(|error| FileError::NoText {
        at: error.utf8_error().valid_up_to(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn devices_without_end_and_long_files_stop_at_the_limit() {
        let error = read(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert!(
            matches!(error, FileError::TooLong { limit } if limit == 1 << 20),
            "{error}"
        );
        assert_eq!(read(Path::new("/dev/null"), 1).unwrap(), b"");
        let path = std::env::temp_dir().join(format!("spillgate-long-{}", std::process::id()));
        std::fs::write(&path, "12345").unwrap();
        let (fits, long) = (read(&path, 5), read_text(&path, 4));
        std::fs::write(&path, b"ab\xff").unwrap();
        let binary = read_text(&path, 5);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(fits.unwrap(), b"12345");
        assert!(matches!(long, Err(FileError::TooLong { limit: 4 })));
        assert!(matches!(binary, Err(FileError::NoText { at: 2 })));
    }

    #[test]
    fn a_folder_is_an_error() {
        let error = read(&std::env::temp_dir(), 10).unwrap_err();
        assert!(matches!(error, FileError::Folder), "{error}");
    }

    // Over five seconds: a pipe is given up after 5 s.
    #[test]
    fn a_pipe_is_read_to_its_end_and_one_that_nobody_writes_is_an_error() {
        let path = std::env::temp_dir().join(format!("spillgate-fifo-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let writer = {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
                for part in ["name: ", "p\n"] {
                    pipe.write_all(part.as_bytes()).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                }
            })
        };
        let text = read_text(&path, 100);
        writer.join().unwrap();
        let start = Instant::now();
        let silent = read(&path, 100);
        let took = start.elapsed();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.unwrap(), "name: p\n");
        assert!(matches!(silent, Err(FileError::Endless)));
        assert!(took < 2 * PIPE_LIMIT, "{took:?}");
    }
}
