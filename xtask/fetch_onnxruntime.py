#!/usr/bin/env python3
"""Lay out ONNX Runtime for the CPU under third_party/onnxruntime from its PyPI wheel.

The wheel holds the C library beside the Python module; that library and the licences are all that is kept.  No
python import of onnxruntime needed.  Needs: python3 with pip.  About 28 MB are downloaded and 35 MB kept.

Run by `cargo xtask setup`; does nothing when the layout is there already.
"""
import os, pathlib, shutil, subprocess, sys, tempfile, zipfile

VERSION = "1.32.0"
REQS = f"""\
onnxruntime=={VERSION} --hash=sha256:99e1074c4b2197accd5073052a465361be17b89c093b8ffb6e6bd8f986c52df8
"""
LIBRARY = "libonnxruntime.so.1"         # its SONAME, by which the program looks for it
LICENCES = {"LICENSE", "ThirdPartyNotices.txt"}

def main() -> None:
    root = pathlib.Path(__file__).resolve().parent.parent
    dest = pathlib.Path(os.environ.get("ONNXRUNTIME_DEST", root / "third_party/onnxruntime"))
    stamp = dest / "build-version"
    if stamp.exists() and stamp.read_text().strip() == VERSION and (dest / "lib" / LIBRARY).is_file():
        print(f"setup: ONNX Runtime {VERSION} is in place"); return
    dest.parent.mkdir(parents=True, exist_ok=True)
    print("setup: fetching ONNX Runtime (about 28 MB) into third_party/onnxruntime ...", flush=True)
    with tempfile.TemporaryDirectory(dir=dest.parent) as tmp:
        tmp = pathlib.Path(tmp)
        (tmp / "req.txt").write_text(REQS)
        (tmp / "t").mkdir()
        child = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet",
                        "--no-deps", "--only-binary=:all:", "--require-hashes",
                        "--no-cache-dir",
                        # a fixed wheel, whatever python runs this script
                        "--python-version", "3.12", "--implementation", "cp",
                        "--abi", "cp312",
                        "--platform", "manylinux_2_28_x86_64",
                        "-d", str(tmp / "w"), "-r", str(tmp / "req.txt")],
                        env={**os.environ, "TMPDIR": str(tmp / "t")})
        if child.returncode:
            sys.exit(f"setup: pip could not fetch ONNX Runtime (exit code {child.returncode}); what it said is above")
        new = tmp / "onnxruntime"
        (new / "lib").mkdir(parents=True)
        (new / "licenses/onnxruntime").mkdir(parents=True)
        for whl in (tmp / "w").glob("*.whl"):
            with zipfile.ZipFile(whl) as z:
                for n in z.namelist():
                    base = n.rsplit("/", 1)[-1]
                    if n == f"onnxruntime/capi/libonnxruntime.so.{VERSION}":
                        out = new / "lib" / LIBRARY
                    elif n.startswith("onnxruntime/") and base in LICENCES:
                        # whoever passes the library on passes these on too
                        out = new / "licenses/onnxruntime" / base
                    else:
                        continue
                    with z.open(n) as s, open(out, "wb") as d:
                        shutil.copyfileobj(s, d, 1 << 20)
        if not (new / "lib" / LIBRARY).is_file():
            sys.exit(f"not in the wheel: libonnxruntime.so.{VERSION}")
        (new / "build-version").write_text(f"{VERSION}\n")
        shutil.rmtree(dest, ignore_errors=True)
        new.rename(dest)
    print(f"setup: ONNX Runtime {VERSION} is now in place")

main()
