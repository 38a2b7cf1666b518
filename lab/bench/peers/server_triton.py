"""Triton: an ensemble of two Python models, on the server that the wheel of nvidia-pytriton brings."""

import argparse
import os
import pathlib
import shutil
import sys
import sysconfig

import pytriton

MODEL = """
backend: "python"
max_batch_size: 1
input [ { name: "IN" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT64 dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 1
input [ { name: "IN" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT64 dims: [ 1 ] } ]
ensemble_scheduling { step [
  { model_name: "a" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "MID" } },
  { model_name: "b" model_version: -1 input_map { key: "IN" value: "MID" } output_map { key: "OUT" value: "OUT" } }
] }
"""
# Only a model with a dynamic batcher has a queue that can be bounded.
QUEUE = """
dynamic_batching {{ default_queue_policy {{
  timeout_action: REJECT default_timeout_microseconds: {timeout_us} allow_timeout_override: true max_queue_size: {size}
}} }}
"""


def write_model(folder, config, code=None):
    version = folder / "1"
    version.mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)
    if code:
        shutil.copy(code, version / "model.py")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="emptied, and used for the models")
    parser.add_argument("--queue-timeout-us", type=int)
    parser.add_argument("--queue-size", type=int, default=0)
    args = parser.parse_args()

    here = pathlib.Path(__file__).resolve().parent
    package = pathlib.Path(pytriton.__file__).parent
    libraries = package.parent / "nvidia_pytriton.libs"
    shutil.rmtree(args.folder, ignore_errors=True)
    repository = args.folder / "models"
    queue = ""
    if args.queue_timeout_us:
        queue = QUEUE.format(timeout_us=args.queue_timeout_us, size=args.queue_size)
    for name in ("a", "b"):
        write_model(repository / name, MODEL + queue, here / "triton_model.py")
    write_model(repository / "two_stage", ENSEMBLE)

    # The Python backend looks for the stub of this Python beside itself.
    backends = args.folder / "backends"
    shutil.copytree(package / "tritonserver" / "backends", backends)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    stub = package / "tritonserver" / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.is_file():
        sys.exit(f"error: the wheel has no Python backend for Python {version}")
    shutil.copy(stub, backends / "python")

    # The stub embeds a Python that ignores the environment; the first file that it reads tells it what is where.
    utilities = backends / "python" / "triton_python_backend_utils.py"
    paths = [str(here), str(package.parent)]
    utilities.write_text(f"import sys\nsys.dont_write_bytecode = True\nsys.path[:0] = {paths!r}\n" + utilities.read_text())

    environment = dict(os.environ)
    environment["LD_LIBRARY_PATH"] = f"{libraries}:{sysconfig.get_config_var('LIBDIR')}"
    server = package / "tritonserver" / "bin" / "tritonserver"
    os.execve(server, [str(server), f"--model-repository={repository}", f"--backend-directory={backends}",
                       "--grpc-address=127.0.0.1", f"--grpc-port={args.port}", "--allow-http=false",
                       "--allow-metrics=false"], environment)


if __name__ == "__main__":
    main()
