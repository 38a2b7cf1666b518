#!/usr/bin/env python3
"""Streams pictures to a Spillgate server and prints what it found in them.

    python3 client.py --server 127.0.0.1:7700 image.jpg folder/ ...

Without pictures it sends a generated one. The stubs are made at run time from the .proto, so that this file
is all there is to copy. It is the shortest useful client, not a complete one: no retries, no TLS.
"""

import argparse
import importlib
import pathlib
import sys
import tempfile
import threading
import time

import grpc
from grpc_tools import protoc

PROTO_ROOT = pathlib.Path(__file__).resolve().parents[3] / "proto" / "proto"
PROTO = "spillgate/v1/spillgate.proto"
PICTURES = {".jpg", ".jpeg", ".png"}


def load_stubs(root):
    """Compiles the .proto into a temporary folder and imports the two modules from there."""
    folder = tempfile.TemporaryDirectory()
    failed = protoc.main(["protoc", f"-I{root}", f"--python_out={folder.name}",
                          f"--grpc_python_out={folder.name}", PROTO])
    if failed:
        sys.exit(f"error: cannot compile {root / PROTO}")
    sys.path.insert(0, folder.name)
    with folder:
        return (importlib.import_module("spillgate.v1.spillgate_pb2"),
                importlib.import_module("spillgate.v1.spillgate_pb2_grpc"))


def read_pictures(paths):
    """Name and bytes of each file; the files of a folder in the order of their names."""
    for path in map(pathlib.Path, paths):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if file.suffix.lower() in PICTURES:
                yield str(file), file.read_bytes()


def generated_picture(width, height):
    """A gradient, RGB, 8 bits a channel."""
    return bytes(v for y in range(height) for x in range(width)
                 for v in (x * 255 // width, y * 255 // height, 128))


def describe(value):
    """A pipeline's output in a few words."""
    kind = value.WhichOneof("value")
    if kind == "boxes":
        return [f"{b.label} {b.score:.0%} at ({b.x0:.0f},{b.y0:.0f})-({b.x1:.0f},{b.y1:.0f})"
                for b in value.boxes.boxes]
    if kind == "texts":
        return [t.text for t in value.texts.texts]
    if kind == "labels":
        return [l.label for l in value.labels.labels]
    return kind


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", nargs="*", help=".jpg and .png files, and folders of them")
    parser.add_argument("--server", default="127.0.0.1:7700")
    parser.add_argument("--pipeline", default="", help="not needed when the server serves just one")
    parser.add_argument("--fps", type=float, default=25.0, help="frames a second (default 25)")
    parser.add_argument("--proto", type=pathlib.Path, default=PROTO_ROOT, help=argparse.SUPPRESS)
    args = parser.parse_args()

    pb, stubs = load_stubs(args.proto)
    frames = []
    if args.pictures:
        for number, (name, data) in enumerate(read_pictures(args.pictures)):
            frames.append((name, pb.Frame(number=number, data=data)))
        if not frames:
            sys.exit(f"error: no .jpg or .png files in {', '.join(args.pictures)}")
    else:
        data = generated_picture(320, 192)
        frame = pb.Frame(format=pb.FRAME_FORMAT_RGB8, width=320, height=192, data=data)
        frames.append(("generated picture", frame))

    def requests():
        yield pb.StreamRequest(open=pb.StreamOpen(pipeline=args.pipeline, client="python"))
        opened.wait()
        start = time.monotonic()
        for number, (_, frame) in enumerate(frames):
            # On schedule, whether or not answers came.
            time.sleep(max(0.0, start + number / args.fps - time.monotonic()))
            yield pb.StreamRequest(frame=frame)

    opened = threading.Event()
    served = 0
    with grpc.insecure_channel(args.server) as channel:
        try:
            for response in stubs.SpillgateStub(channel).Stream(requests()):
                if response.HasField("opened"):
                    print(f"pipeline {response.opened.pipeline}, slo {response.opened.slo_ms:g}ms")
                    opened.set()
                    continue
                result = response.result
                outcome = pb.Outcome.Name(result.outcome).removeprefix("OUTCOME_").lower()
                print(f"{frames[result.number][0]}: {outcome} in {result.latency_ms:.1f}ms")
                if result.outcome in (pb.OUTCOME_COMPLETED, pb.OUTCOME_LATE):
                    served += 1
                else:
                    print(f"  at {result.module}: {result.reason}: {result.detail}")
                for name in sorted(result.outputs):
                    print(f"  {name}: {describe(result.outputs[name])}")
        except grpc.RpcError as error:
            sys.exit(f"error: {args.server}: {error.code().name}: {error.details()}")
        except KeyboardInterrupt:
            pass
        finally:
            opened.set()
    print(f"{served} of {len(frames)} frames served")
    sys.exit(0 if served else 1)


if __name__ == "__main__":
    main()
