//! Cameras that stall, break, reboot and are slow: a real RTSP server behind a proxy that does so.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{Program, START_LIMIT, free_port, until};

/// Serves a picture with a ball by RTSP (GStreamer).
const CAMERA: &str = include_str!("cameras.py");
/// Whatever a stream is to notice, it notices within this time.
const LIMIT: Duration = Duration::from_secs(60);
/// A password with all that needs no encoding here.
const PASSWORD: &str = "p@/w?#";

fn camera(port: u16, size: (u32, u32), rate: &str, password: Option<&str>) -> Program {
    let [width, height] = [size.0, size.1].map(|side| side.to_string());
    // The system's: GStreamer's bindings are no package of PyPI.
    let mut run = Command::new("/usr/bin/python3");
    run.args(["-c", CAMERA, &port.to_string(), &width, &height, rate]);
    run.args(password.iter().flat_map(|password| ["me", password]));
    let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert_eq!(
        said, "ready\n",
        "Debian: gir1.2-gst-rtsp-server-1.0 python3-gi gstreamer1.0-plugins-base, -good and -bad"
    );
    Program(child)
}

/// What a proxy does with bytes and connections.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Forwards,
    /// Connections stay, and nothing passes.
    Stalls,
    /// Connections are cut.
    Cuts,
}

struct Proxy {
    port: u16,
    way: Arc<Mutex<Way>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            port: listener.local_addr().unwrap().port(),
            way: Arc::new(Mutex::new(Way::Forwards)),
            open: Arc::default(),
        };
        let (way, open) = (proxy.way.clone(), proxy.open.clone());
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let Ok(to) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                open.lock()
                    .unwrap()
                    .extend([from.try_clone().unwrap(), to.try_clone().unwrap()]);
                for (from, to) in [
                    (from.try_clone().unwrap(), to.try_clone().unwrap()),
                    (to, from),
                ] {
                    let way = way.clone();
                    thread::spawn(move || pass(from, to, &way));
                }
            }
        });
        proxy
    }

    fn set(&self, way: Way) {
        *self.way.lock().unwrap() = way;
        if way == Way::Cuts {
            for stream in self.open.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, way: &Mutex<Way>) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        while *way.lock().unwrap() == Way::Stalls {
            thread::sleep(Duration::from_millis(20));
        }
        if *way.lock().unwrap() == Way::Cuts || to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// A server of one small model.
struct Served {
    folder: PathBuf,
    address: String,
    _program: Program,
}

impl Served {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("spillgate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let model = super::root()
            .join("apps/modules/models/light.pt")
            .canonicalize()
            .unwrap();
        let module = format!(
            "{{ op: classifier, model: {}, inputs: {{ image: $source.frame }} }}",
            model.display()
        );
        let pipeline = format!(
            "name: light\nslo: 5s\nmodules:\n  light: {module}\noutputs: {{ light: $light.labels }}\n"
        );
        fs::write(folder.join("light.yaml"), pipeline).unwrap();
        let port_file = folder.join("port");
        let program = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .arg("serve")
            .arg(folder.join("light.yaml"))
            .args([
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--port-file",
            ])
            .arg(&port_file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let program = Program(program);
        let address = until("the server is up", START_LIMIT, || {
            fs::read_to_string(&port_file).ok()
        });
        Served {
            folder,
            address: address.trim().to_owned(),
            _program: program,
        }
    }

    fn watch(&self, args: &[&str]) -> Watch {
        let mut run = Command::new(env!("CARGO_BIN_EXE_spillgate"));
        run.arg("stream")
            .args(args)
            .args(["--results", "-", "--server", &self.address]);
        let mut child = run
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (results, said) = (
            Arc::<Mutex<Vec<Value>>>::default(),
            Arc::<Mutex<String>>::default(),
        );
        let lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let into = results.clone();
        thread::spawn(move || {
            lines.for_each(|line| {
                into.lock()
                    .unwrap()
                    .push(serde_json::from_str(&line).unwrap())
            })
        });
        let lines = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let into = said.clone();
        thread::spawn(move || lines.for_each(|line| *into.lock().unwrap() += &format!("{line}\n")));
        Watch {
            program: Program(child),
            results,
            said,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A stream that runs.
struct Watch {
    program: Program,
    results: Arc<Mutex<Vec<Value>>>,
    said: Arc<Mutex<String>>,
}

impl Watch {
    fn says(&self, what: &str) {
        until(what, LIMIT, || {
            self.said.lock().unwrap().contains(what).then_some(())
        });
    }

    /// Waits for so many more completed frames of this width.
    fn completes(&self, frames: usize, width: u32) {
        let before = self.results.lock().unwrap().len();
        until(&format!("{frames} frames of width {width}"), LIMIT, || {
            let results = self.results.lock().unwrap();
            let is = |r: &&Value| r["outcome"] == "completed" && r["width"] == width;
            (results[before..].iter().filter(is).count() >= frames).then_some(())
        });
    }

    /// Ends it; what it wrote and said.
    fn end(mut self) -> (Vec<Value>, String) {
        self.program.terminate();
        self.program.0.wait().unwrap();
        // The threads read what is left in the pipes.
        until("it ends in a summary", LIMIT, || {
            self.said.lock().unwrap().contains("failed  ").then_some(())
        });
        let said = self.said.lock().unwrap().clone();
        (self.results.lock().unwrap().clone(), said)
    }
}

/// Arguments of all processes of the machine.
fn command_lines() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .collect()
}

#[test]
fn a_camera_that_stalls_breaks_and_reboots_is_reached_again_and_its_password_is_nowhere() {
    let served = Served::start("camera");
    let port = free_port();
    let first = camera(port, (320, 240), "25/1", Some(PASSWORD));
    let proxy = Proxy::start(port);
    let list = served.folder.join("cameras.txt");
    let address = format!("rtsp://me:{PASSWORD}@127.0.0.1:{}/cam", proxy.port);
    fs::write(&list, format!("# the gate\n{address}\n")).unwrap();
    let list = list.to_string_lossy();
    let watch = served.watch(&[
        "--source-file",
        &list,
        "--name",
        "gate",
        "--reconnect",
        "--silent",
        "6s",
    ]);
    watch.completes(20, 320);
    let port_text = format!("127.0.0.1:{}", proxy.port);
    let lines = command_lines();
    assert!(
        lines
            .iter()
            .any(|line| line.contains("ffmpeg") && line.contains("pipe:0")),
        "{lines:?}"
    );
    // The camera is a program of this test.
    let leaks = |line: &&String| {
        !line.contains("GstRtspServer") && (line.contains(PASSWORD) || line.contains(&port_text))
    };
    assert_eq!(lines.iter().find(leaks), None);

    proxy.set(Way::Stalls);
    watch.says("no frame came for 6 s");
    proxy.set(Way::Forwards);
    watch.completes(5, 320);

    proxy.set(Way::Cuts);
    drop(first);
    thread::sleep(Duration::from_secs(1));
    let _second = camera(port, (640, 360), "10/1", Some(PASSWORD));
    proxy.set(Way::Forwards);
    watch.completes(5, 640);

    let (results, said) = watch.end();
    assert!(said.contains("rtsp://me:***@127.0.0.1"), "{said}");
    assert!(!said.contains(PASSWORD) && !said.contains("p%40"), "{said}");
    assert!(said.contains("was lost and came back 2 times"), "{said}");
    let is_whole =
        |r: &Value| r["name"] == "gate" && r["media_ms"].is_number() && r["wall_time"].is_string();
    assert!(
        results
            .iter()
            .filter(|r| r["outcome"] == "completed")
            .all(is_whole)
    );
}

#[test]
fn a_camera_that_is_off_at_the_start_is_waited_for_and_a_slow_one_gives_each_frame_once() {
    let served = Served::start("slow-camera");
    let port = free_port();
    let address = format!("rtsp://127.0.0.1:{port}/cam");
    let once = served.watch(&[&address]);
    once.says("error: ");
    assert!(
        once.said
            .lock()
            .unwrap()
            .contains("--reconnect waits for it to come back")
    );
    let watch = served.watch(&[&address, "--reconnect", "--silent", "20s"]);
    watch.says("trying to reach it again");
    let _camera = camera(port, (320, 240), "1/1", None);
    watch.completes(5, 320);
    let (results, _) = watch.end();
    let numbers = results.iter().map(|r| r["source_frame"].as_u64().unwrap());
    let numbers: Vec<u64> = numbers.collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let times: Vec<f64> = results
        .iter()
        .map(|r| r["media_ms"].as_f64().unwrap())
        .collect();
    // A frame a second, and never one twice.
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] > 900.0),
        "{times:?}"
    );
}

#[test]
fn of_a_live_source_with_a_rate_the_newest_frames_are_sent_and_the_others_counted() {
    let served = Served::start("fast-camera");
    let port = free_port();
    let _camera = camera(port, (320, 240), "25/1", None);
    let watch = served.watch(&[&format!("rtsp://127.0.0.1:{port}/cam"), "--fps", "1"]);
    watch.completes(4, 320);
    let (results, said) = watch.end();
    let numbers: Vec<u64> = results
        .iter()
        .map(|r| r["source_frame"].as_u64().unwrap())
        .collect();
    // About 25 a second come.
    assert!(
        numbers.windows(2).all(|pair| pair[1] >= pair[0] + 15),
        "{numbers:?}"
    );
    assert!(
        said.contains("frames of live sources were not sent, since newer ones had come"),
        "{said}"
    );
}

#[test]
fn several_sources_have_names_and_times_of_their_own() {
    let served = Served::start("several");
    let make = |name: &str, rate: u32| {
        let path = served.folder.join(name);
        let picture = format!("testsrc2=size=160x120:rate={rate}:duration=1");
        let mut run = Command::new("ffmpeg");
        run.args([
            "-v", "error", "-f", "lavfi", "-i", &picture, "-c:v", "libx264",
        ]);
        assert!(run.arg(&path).status().unwrap().success());
        path.to_string_lossy().into_owned()
    };
    let (slow, fast) = (make("slow.mp4", 5), make("fast.mp4", 20));
    let watch = served.watch(&[&slow, &fast, "--name", "gate", "--name", "yard"]);
    until("all results", LIMIT, || {
        (watch.results.lock().unwrap().len() == 25).then_some(())
    });
    let results = watch.results.lock().unwrap().clone();
    for (name, n, gap) in [("gate", 5, 200.0), ("yard", 20, 50.0)] {
        let mut own: Vec<&Value> = results.iter().filter(|r| r["name"] == name).collect();
        own.sort_by_key(|r| r["frame"].as_u64());
        assert_eq!(own.len(), n, "{name}");
        for (at, result) in own.iter().enumerate() {
            let due = result["due_ms"].as_f64().unwrap() - own[0]["due_ms"].as_f64().unwrap();
            assert_eq!(
                result["media_ms"].as_f64().unwrap(),
                gap * at as f64,
                "{name}"
            );
            assert!(
                due >= gap * at as f64 - 0.001,
                "{name}: frame {at} is due after {due} ms"
            );
        }
    }
}

/// A reader that goes is an error, though the frames were served.
#[test]
fn a_dead_reader_of_results_is_an_error() {
    let served = Served::start("dead-reader");
    let mut run = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    run.args([
        "stream",
        "scene:",
        "--frames",
        "50",
        "--results",
        "-",
        "--server",
        &served.address,
    ]);
    let mut child = run
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut pipe = BufReader::new(child.stdout.take().unwrap());
    pipe.read_line(&mut line).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the results"), "{said}");
}

#[test]
fn a_folder_of_the_path_without_ffmpeg_says_what_to_install() {
    let empty = std::env::temp_dir();
    let video = empty.join(format!("spillgate-no-ffmpeg-{}.mp4", std::process::id()));
    fs::write(&video, "").unwrap();
    let run = |path: &Path| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_spillgate"));
        run.arg("stream")
            .arg(&video)
            .args(["--server", "127.0.0.1:1"])
            .env("PATH", path);
        String::from_utf8_lossy(&run.output().unwrap().stderr).into_owned()
    };
    let said = run(Path::new("/nonexistent"));
    assert!(said.contains("pip install imageio-ffmpeg"), "{said}");
    // PyPI's, by the python of the tools; `sh` is needed, too.
    let python = super::env("SPILLGATE_PYTHON");
    let path = format!("{}:/nonexistent", python.parent().unwrap().display());
    let tools = std::env::temp_dir().join(format!("spillgate-sh-{}", std::process::id()));
    fs::create_dir_all(&tools).unwrap();
    let _ = std::os::unix::fs::symlink("/bin/sh", tools.join("sh"));
    let said = run(Path::new(&format!("{path}:{}", tools.display())));
    assert!(said.contains("it has no index (moov atom)"), "{said}");
    let _ = (fs::remove_dir_all(&tools), fs::remove_file(&video));
}
