#!/usr/bin/env python3
"""Streams pictures to a Spillgate server and prints what it found in them.

    python3 client.py --server 127.0.0.1:7700 image.jpg folder/ ...

Without pictures it sends a generated one. The server says itself what its messages look like (gRPC reflection),
so this file is all there is to copy. It needs: pip install grpcio grpcio-reflection
It is the shortest useful client, not a complete one: no retries.
"""

import argparse
import pathlib
import sys
import threading
import time
import types

try:
    import grpc
    from google.protobuf import descriptor_pool, message_factory
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
except ImportError as error:
    sys.exit(f"error: {error}; install what it needs: pip install grpcio grpcio-reflection")

SERVICE = "spillgate.v1.Spillgate"
PICTURES = {".jpg", ".jpeg", ".png"}


def load_api(channel):
    """The messages of the API and the call `Stream`, as the server describes them."""
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    file = pool.FindServiceByName(SERVICE).file
    api = types.SimpleNamespace()
    for name, message in file.message_types_by_name.items():
        setattr(api, name, message_factory.GetMessageClass(message))
    for name, enum in file.enum_types_by_name.items():
        setattr(api, name, enum)
        for value in enum.values:
            setattr(api, value.name, value.number)
    api.stream = channel.stream_stream(
        f"/{SERVICE}/Stream",
        request_serializer=api.StreamRequest.SerializeToString,
        response_deserializer=api.StreamResponse.FromString)
    return api


def open_channel(args):
    """Plain, or TLS where --ca says whom to trust; with the token, if there is one, in every call."""
    token = args.token_file.read_text().strip() if args.token_file else None
    if not args.ca:
        channel = grpc.insecure_channel(args.server)
        if not token:
            return channel
        return grpc.intercept_channel(channel, Bearer(token))
    credentials = grpc.ssl_channel_credentials(args.ca.read_bytes())
    if token:
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.access_token_call_credentials(token))
    return grpc.secure_channel(args.server, credentials)


class Bearer(grpc.StreamStreamClientInterceptor):
    """Adds a token to calls over a plain channel; gRPC's own credentials want TLS."""

    def __init__(self, token):
        self.header = ("authorization", f"Bearer {token}")

    def intercept_stream_stream(self, continuation, details, requests):
        metadata = [*(details.metadata or ()), self.header]
        return continuation(details._replace(metadata=metadata), requests)


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
    parser.add_argument("--ca", type=pathlib.Path, help="speak TLS, and trust whom this file signs (PEM)")
    parser.add_argument("--token-file", type=pathlib.Path, help="send the token in this file")
    args = parser.parse_args()
    with open_channel(args) as channel:
        served, frames = run(channel, args)
    print(f"{served} of {frames} frames served")
    sys.exit(0 if served else 1)


def run(channel, args):
    """Streams; how many frames were served, and how many there were."""
    try:
        pb = load_api(channel)
    except grpc.RpcError as error:
        sys.exit(f"error: {args.server}: {error.code().name}: {error.details()}")
    except KeyError:
        sys.exit(f"error: {args.server} is no Spillgate server, or does not let this client see it (--token-file)")
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
    try:
        for response in pb.stream(requests()):
            if response.HasField("opened"):
                print(f"pipeline {response.opened.pipeline}, slo {response.opened.slo_ms:g}ms")
                opened.set()
                continue
            result = response.result
            outcome = pb.Outcome.values_by_number[result.outcome].name.removeprefix("OUTCOME_").lower()
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
    return served, len(frames)


if __name__ == "__main__":
    main()
