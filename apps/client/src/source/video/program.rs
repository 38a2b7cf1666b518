//! The ffmpeg program: where it is, and how it is run.
//!
//! It reads what strangers made, so it gets little: only the kinds of files that are videos, no way from a file to other files or addresses, no
//! file to write, bounded memory, an environment without secrets, and no longer a life than the thread that started it.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};

use super::super::address::Address;

/// What to install where there is none.
const INSTALL: &str = "it is not installed (apt install ffmpeg; brew install ffmpeg; or pip install imageio-ffmpeg). Folders of \
                       pictures, MJPEG by a pipe and scene: need nothing";
/// The oldest version that is told not to fit sizes that change into the first one.
const OLDEST: (u32, u32) = (4, 4);
/// The version that renamed the option by which frames are passed as they are.
const FPS_MODE: (u32, u32) = (5, 1);
/// Prints the path of the program that PyPI's imageio-ffmpeg brings.
const IMAGEIO: &str = "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())";
/// Address space of the program, in KiB: 8K video of 10 bits on 16 threads takes half of it.
const MEMORY_KIB: u64 = 6 << 20;
/// Its allocator reserves 128 MiB of address space for each arena.
const ARENAS: &str = "2";
/// Files that are videos, by ffmpeg's names. What refers to other files (playlists, `concat`) or is no video is not among them.
const FORMATS: &str = "3dostr,apng,asf,av1,avi,avs2,avs3,dirac,dv,dvd,flv,gif,gxf,h261,h263,h264,hevc,ingenient,ipu,ivf,kux,live_flv,\
                       m4v,matroska,matroska\\,webm,mjpeg,mjpeg_2000,mov\\,mp4\\,m4a\\,3gp\\,3g2\\,mj2,mp4,mpeg,mpegts,mpegtsraw,mpegvideo,\
                       mpjpeg,mxf,nsv,nut,obu,ogg,rm,roq,smjpeg,swf,vc1,vc1test,vob,vvc,webm_dash_manifest,wtv,xmv,yuv4mpegpipe";
/// What a network address may use.
const NETWORK: &str =
    "pipe,http,https,httpproxy,tls,tcp,udp,udplite,rtp,srtp,rtsp,rtmp,rtmps,rtmpt,rtmpe,srt,crypto";
/// Variables that the program may need: its libraries, a proxy, certificates.
const KEPT: [&str; 10] = [
    "PATH",
    "HOME",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
/// Sets limits and becomes the program. `setpriv` (util-linux) ends it with us and keeps it from gaining rights; elsewhere it ends when
/// it next writes.
const CONFINED: &str = r#"
ulimit -c 0; ulimit -f 0; ulimit -v "$1" 2>/dev/null; shift
if command -v setpriv >/dev/null 2>&1; then exec setpriv --pdeathsig KILL --no-new-privs -- "$@"; fi
exec "$@"
"#;

/// An ffmpeg that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    path: PathBuf,
    /// 5.1 renamed the option that passes frames as they are; later ones only know the new name.
    has_fps_mode: bool,
}

impl Program {
    /// The one on the path, or the one that PyPI's imageio-ffmpeg brings.
    ///
    /// # Errors
    /// Where there is none: the message says what to install.
    pub(super) fn find() -> Result<&'static Self> {
        static FOUND: OnceLock<Program> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(found);
        }
        let found = look_for()?;
        Ok(FOUND.get_or_init(|| found))
    }

    /// Starts reading an address, or a file.
    pub(super) fn start(&self, input: &Input) -> Result<Child> {
        let mut command = Command::new("sh");
        command
            .args(["-c", CONFINED, "sh"])
            .arg(MEMORY_KIB.to_string());
        command.arg(&self.path).args(self.arguments(input));
        command
            .env_clear()
            .env("LC_ALL", "C")
            .env("MALLOC_ARENA_MAX", ARENAS);
        command.envs(
            KEPT.iter()
                .filter_map(|name| Some((*name, std::env::var_os(name)?))),
        );
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start ffmpeg")?;
        if let Some(mut script) = child.stdin.take()
            && let Some(text) = input.script()
        {
            // A few hundred bytes: the pipe takes them at once. Where the program is gone, its words say why.
            let _ = script.write_all(text.as_bytes());
        }
        Ok(child)
    }

    fn arguments(&self, input: &Input) -> Vec<OsString> {
        let mut all = Vec::new();
        let mut add = |args: &[&str]| all.extend(args.iter().map(OsString::from));
        add(&[
            "-nostdin",
            "-hide_banner",
            "-nostats",
            "-loglevel",
            "repeat+level+info",
        ]);
        // Times as the source has them: who jumps is told (`timeline.rs`).
        add(&["-copyts"]);
        if input.is_live() {
            // Threads that decode a frame each hold as many frames back.
            add(&[
                "-fflags",
                "nobuffer",
                "-flags",
                "low_delay",
                "-thread_type",
                "slice",
            ]);
        }
        match input {
            Input::File(path) => {
                add(&[
                    "-protocol_whitelist",
                    "file",
                    "-format_whitelist",
                    FORMATS,
                    "-i",
                ]);
                // Without its protocol a name such as `concat:a` would be an address.
                let mut name = OsString::from("file:");
                name.push(path);
                all.push(name);
            }
            Input::Camera(device) => {
                add(&["-f", "v4l2", "-i"]);
                all.push(device.into());
            }
            Input::Address(address) => {
                add(&["-protocol_whitelist", NETWORK]);
                let options = match address.has_secret() {
                    // The list is looked at like the address in it.
                    true if address.is_live() => QUICK.to_vec(),
                    true => Vec::new(),
                    false => options(address),
                };
                for (name, value) in options {
                    add(&[&format!("-{name}"), value]);
                }
                match address.has_secret() {
                    // Whoever lists processes sees their arguments: the address comes by standard input (`script`).
                    true => add(&["-f", "concat", "-safe", "0", "-i", "pipe:0"]),
                    false => add(&["-i", &address.real()]),
                }
            }
        }
        let mut add = |args: &[&str]| all.extend(args.iter().map(OsString::from));
        // The best video stream that is no cover picture.
        add(&[
            "-map",
            "0:V:0",
            "-an",
            "-sn",
            "-dn",
            "-map_metadata",
            "-1",
            "-map_chapters",
            "-1",
        ]);
        // Each frame once, in its own size.
        add(&[
            if self.has_fps_mode {
                "-fps_mode"
            } else {
                "-vsync"
            },
            "passthrough",
            "-noautoscale",
        ]);
        add(&[
            "-vf",
            "showinfo=checksum=0,format=rgb24",
            "-c:v",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
        ]);
        add(&["-flush_packets", "1", "-f", "nut", "pipe:1"]);
        all
    }
}

/// What ffmpeg is to read.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::source) enum Input {
    File(PathBuf),
    /// A device, as `/dev/video0`.
    Camera(String),
    Address(Address),
}

impl Input {
    /// Whether a frame that is not taken is worthless: it comes at its own pace.
    pub(in crate::source) fn is_live(&self) -> bool {
        match self {
            Input::File(_) => false,
            Input::Camera(_) => true,
            Input::Address(address) => address.is_live(),
        }
    }

    /// For people: without its secret.
    pub(in crate::source) fn shown(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Camera(device) => device.clone(),
            Input::Address(address) => address.shown(),
        }
    }

    /// What goes to its standard input: an address with a secret, as a list of one.
    fn script(&self) -> Option<String> {
        let Input::Address(address) = self else {
            return None;
        };
        if !address.has_secret() {
            return None;
        }
        // A quoted text of ffmpeg has no escapes: quotes are written outside of it.
        let quoted = address.real().replace('\'', r"'\''");
        let mut script = format!("ffconcat version 1.0\nfile '{quoted}'\n");
        for (name, value) in options(address) {
            script.push_str(&format!("option {name} {value}\n"));
        }
        Some(script)
    }
}

/// A camera is looked at for a second, in place of five, before its first frame comes; and no frames to guess its rate.
const QUICK: [(&str, &str); 2] = [("analyzeduration", "1000000"), ("fpsprobesize", "0")];

/// Options of the protocol, and of looking at what it gives.
fn options(address: &Address) -> Vec<(&'static str, &'static str)> {
    let mut options = Vec::new();
    if address.is_live() {
        options.extend(QUICK);
    }
    if ["rtsp", "rtsps"].contains(&address.scheme()) {
        // Over UDP pieces of pictures are lost without a word; and sound would only be waited for.
        options.extend([("rtsp_transport", "tcp"), ("allowed_media_types", "video")]);
    }
    options
}

fn look_for() -> Result<Program> {
    let on_path = PathBuf::from("ffmpeg");
    if let Some(has_fps_mode) = asked(&on_path)? {
        return Ok(Program {
            path: on_path,
            has_fps_mode,
        });
    }
    let python = Command::new("python3")
        .args(["-c", IMAGEIO])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let output = python.ok().filter(|output| output.status.success());
    let path = output.and_then(|output| String::from_utf8(output.stdout).ok());
    let Some(path) = path.map(|path| PathBuf::from(path.trim())) else {
        bail!("it needs the ffmpeg program: {INSTALL}");
    };
    match asked(&path)? {
        Some(has_fps_mode) => Ok(Program { path, has_fps_mode }),
        None => bail!(
            "it needs the ffmpeg program: imageio-ffmpeg names {}, which is not there",
            path.display()
        ),
    }
}

/// Whether the program at this path has `-fps_mode`; `None` where there is no program.
fn asked(path: &PathBuf) -> Result<Option<bool>> {
    let output = match Command::new(path)
        .arg("-version")
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(anyhow!("cannot start {}: {error}", path.display())),
    };
    let version = version(&String::from_utf8_lossy(&output.stdout));
    if let Some((major, minor)) = version.filter(|version| *version < OLDEST) {
        let (least, of) = OLDEST;
        bail!(
            "{} is ffmpeg {major}.{minor}: {least}.{of} or later is needed",
            path.display()
        );
    }
    // Builds between releases have no number.
    Ok(Some(version.is_none_or(|version| version >= FPS_MODE)))
}

/// Of `ffmpeg version 4.4.2-0ubuntu0 Copyright ...`, where it has a number.
fn version(text: &str) -> Option<(u32, u32)> {
    let number = text.split_whitespace().nth(2)?.trim_start_matches('n');
    let mut pieces = number
        .split(['.', '-'])
        .map_while(|piece| piece.parse::<u32>().ok());
    Some((pieces.next()?, pieces.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(input: &Input) -> String {
        let program = Program {
            path: "ffmpeg".into(),
            has_fps_mode: true,
        };
        let all = program.arguments(input);
        all.iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn versions_are_read_where_builds_have_one() {
        for (text, number) in [
            (
                "ffmpeg version 4.4.2-0ubuntu0.22.04.1 Copyright (c)",
                Some((4, 4)),
            ),
            (
                "ffmpeg version 4.2.2-static https://johnvansickle.com/ffmpeg/",
                Some((4, 2)),
            ),
            ("ffmpeg version 5.1.9-0+deb12u1 Copyright", Some((5, 1))),
            ("ffmpeg version 7 Copyright", Some((7, 0))),
            (
                "ffmpeg version n9.0.2-17-g2a571b6068 Copyright",
                Some((9, 0)),
            ),
            ("ffmpeg version N-113007-g8d24a28d06 Copyright", None),
            ("", None),
        ] {
            assert_eq!(version(text), number, "{text}");
        }
    }

    #[test]
    fn a_secret_comes_by_standard_input_and_never_as_an_argument() {
        let address = Address::parse("rtsp://me:it's@10.0.0.1/a").unwrap();
        let input = Input::Address(address);
        let all = arguments(&input);
        assert!(
            all.contains("-f concat -safe 0 -i pipe:0") && !all.contains("10.0.0.1"),
            "{all}"
        );
        assert_eq!(
            input.script().unwrap(),
            "ffconcat version 1.0\nfile 'rtsp://me:it%27s@10.0.0.1/a'\noption analyzeduration 1000000\noption fpsprobesize 0\noption rtsp_transport tcp\noption allowed_media_types video\n"
        );
        let open = Input::Address(Address::parse("rtsp://10.0.0.1/a").unwrap());
        assert!(
            arguments(&open)
                .contains("-analyzeduration 1000000 -fpsprobesize 0 -rtsp_transport tcp -allowed_media_types video -i rtsp://10.0.0.1/a")
        );
        assert_eq!(open.script(), None);
    }

    #[test]
    fn a_file_is_a_file_whatever_its_name() {
        let all = arguments(&Input::File("concat:a|b.mp4".into()));
        assert!(
            all.contains("-protocol_whitelist file ") && all.contains("-i file:concat:a|b.mp4"),
            "{all}"
        );
    }
}
