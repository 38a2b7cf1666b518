#!/usr/bin/env python3
"""Streams pictures to a Spillgate server and prints what it found in them.

    python3 client.py --server 127.0.0.1:7700 image.jpg folder/ ...

Without pictures it sends a generated one. The server says itself what its messages look like (gRPC reflection),
so this file is all there is to copy. It needs: pip install grpcio grpcio-reflection
It is the shortest useful client, not a complete one. With several servers (--server a:7700,b:7700) it goes to another one
when one shuts down, and loses no frame. With --adapt (and Pillow: pip install pillow) it tells the
server about its link and sends pictures in the size that the server asks for, or smaller when the link does not bear that.
"""

import argparse
import collections
import io
import json
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

try:
    from PIL import Image, ImageOps
except ImportError:
    Image = None

SERVICE = "spillgate.v1.Spillgate"
PICTURES = {".jpg", ".jpeg", ".png", ".webp"}
# gRPC's own part: streams take turns among the servers, and one that a server did not take is opened at the next.
SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [{
        "name": [{"service": SERVICE}],
        "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
                        "retryableStatusCodes": ["UNAVAILABLE"]}}]}
# A stream that ends so often in a row without an answer is given up.
MOVES_MAX = 8
# Seconds between two reports about the link.
REPORT_EVERY = 0.25
# Frames that wait for their acknowledgement.
OUT_MAX = 64
# The rule by which `spillgate stream` chooses sizes: bits grow with this power of pixels,
POWER = 5 / 6
# a frame changes what is known of them by this part,
WEIGHT = 0.2
# what waits on the link beyond a frame is to be gone within this time (seconds),
DRAIN = 0.1
# a larger size must have fitted for this time (seconds),
HOLD = 0.5
# and the next smaller side is at most this part of a side, a multiple of the second number, and at least the third.
STEP, UNIT, SIDE_MIN = 0.85, 32, 64


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
    options = [("grpc.service_config", json.dumps(SERVICE_CONFIG))]
    # All addresses of a name, or those of a list, take turns.
    server = f"ipv4:{args.server}" if "," in args.server else args.server
    if not args.ca:
        channel = grpc.insecure_channel(server, options)
        if not token:
            return channel
        return grpc.intercept_channel(channel, Bearer(token))
    credentials = grpc.ssl_channel_credentials(args.ca.read_bytes())
    if token:
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.access_token_call_credentials(token))
    return grpc.secure_channel(server, credentials, options)


class Bearer(grpc.StreamStreamClientInterceptor):
    """Adds a token to calls over a plain channel; gRPC's own credentials want TLS."""

    def __init__(self, token):
        self.header = ("authorization", f"Bearer {token}")

    def intercept_stream_stream(self, continuation, details, requests):
        metadata = [*(details.metadata or ()), self.header]
        return continuation(details._replace(metadata=metadata), requests)


class Link:
    """The link to the server: bandwidth by acknowledgements, and the difference of the clocks. Two threads use it."""

    def __init__(self, fps):
        self.sizes = Sizes(fps)
        self.told = 0
        self.out = collections.OrderedDict()  # frame -> (bits, when it was sent)
        self.paths = collections.deque(maxlen=3)  # bits and seconds of the last frames
        self.exchanges = collections.deque(maxlen=32)  # round trip, how far the server's clock is ahead
        self.came = 0.0
        self.lock = threading.Lock()

    def path(self, bits, sent, came):
        """A frame behind another one begins when that one has come."""
        began = max(sent + min(self.exchanges)[0] / 2, self.came)
        return bits, max(came - began, 0.0)

    def bandwidth(self, now):
        """Bits a second over the last frames, as it is times that add up. 0: not known yet."""
        known = mean(self.paths)
        if known and self.out:
            # A frame that is still out counts once it is slower than the others.
            bits, sent = next(iter(self.out.values()))
            waiting = self.path(bits, sent, now - min(self.exchanges)[0] / 2)
            if waiting[0] < known * waiting[1]:
                return mean([*self.paths, waiting][-3:])
        return known

    def waiting(self, now):
        """Bits that the link has yet to carry."""
        bits_out = sum(bits for bits, _ in self.out.values())
        bandwidth = self.bandwidth(now)
        if not bandwidth or not self.out:
            return bits_out
        round_trip, (first, sent) = min(self.exchanges)[0], next(iter(self.out.values()))
        carried = bandwidth * (now - max(sent, self.came - round_trip / 2))
        return max(bits_out - min(carried, first + bandwidth * round_trip), 0.0)

    def report(self, pb):
        with self.lock:
            clock = time.monotonic_ns()
            round_trip = min(self.exchanges, default=(0.0, 0))[0]
            return pb.LinkReport(clock_ns=clock, bandwidth=self.bandwidth(clock / 1e9), round_trip_ms=round_trip * 1e3)

    def hear(self, response):
        """Takes in what the server says beside results; whether it was that."""
        now = time.monotonic_ns()
        with self.lock:
            if response.HasField("clock"):
                clock = response.clock
                round_trip = (now - clock.client_ns) - (clock.written_ns - clock.came_ns)
                ahead = ((clock.came_ns - clock.client_ns) + (clock.written_ns - now)) // 2
                self.exchanges.append((max(round_trip, 0) / 1e9, ahead))
            elif response.HasField("received"):
                bits, sent = self.out.pop(response.received.number, (0, 0.0))
                if bits and self.exchanges:
                    # It came when the server's clock says so, whatever the acknowledgement met on its way.
                    came = (response.received.clock_ns - min(self.exchanges)[1]) / 1e9
                    came = min(max(came, sent), now / 1e9)
                    self.paths.append(self.path(bits, sent, came))
                    self.came = came
            elif response.HasField("asked"):
                self.told = response.asked.side
            else:
                return False
        return True

    def side(self, width, height):
        """The longer side of the next picture: as told, or what the link bears."""
        with self.lock:
            now = time.monotonic()
            return self.sizes.choose(now, (width, height), self.told, self.bandwidth(now), self.waiting(now))

    def frame(self, pb, frame):
        """The frame as it is to be sent now."""
        began = time.monotonic()
        sent = pb.Frame()
        sent.CopyFrom(frame)
        if frame.format == pb.FRAME_FORMAT_RGB8:
            picture = Image.frombytes("RGB", (frame.width, frame.height), frame.data)
        else:
            # As it is seen: what is made of it says nothing of how it is to be turned.
            picture = ImageOps.exif_transpose(Image.open(io.BytesIO(frame.data))).convert("RGB")
        side, (width, height) = self.side(*picture.size), picture.size
        if side < max(width, height):
            scale = side / max(width, height)
            small = picture.resize((max(round(width * scale), 1), max(round(height * scale), 1)))
            data = io.BytesIO()
            small.save(data, "JPEG", quality=90)
            sent = pb.Frame(number=frame.number, data=data.getvalue(), source_width=width, source_height=height)
            width, height = small.size
        with self.lock:
            self.sizes.made(width * height, len(sent.data) * 8)
            now = time.monotonic_ns()
            if self.exchanges:
                sent.sent_at_ns = max(now + min(self.exchanges)[1], 0)
            self.out[frame.number] = (len(sent.data) * 8, now / 1e9)
            while len(self.out) > OUT_MAX:
                self.out.popitem(last=False)
        return sent, time.monotonic() - began


class Sizes:
    """Chooses the longer side of pictures. A smaller one is taken at once, a larger one once the link has borne it for a while."""

    def __init__(self, fps):
        self.fps = fps
        self.density = 0.0  # bits over that power of pixels
        self.borne = None
        self.more_since = None

    def made(self, pixels, bits):
        """A picture of so many pixels has so many bits."""
        newest = bits / pixels ** POWER
        self.density += (WEIGHT if self.density else 1.0) * (newest - self.density)

    def choose(self, now, source, told, bandwidth, waiting):
        top = min(told or max(source), max(source))
        present = min(self.borne or top, top)

        def fits(side):
            bits = self.density * (source[0] * source[1] * (side / max(source)) ** 2) ** POWER
            return not bandwidth or bits * self.fps + max(waiting - bits, 0.0) / DRAIN <= bandwidth

        sides = [top]
        while (smaller := int(sides[-1] * STEP) // UNIT * UNIT) >= SIDE_MIN:
            sides.append(smaller)
        largest = next(filter(fits, sides), sides[-1])
        since, self.more_since = self.more_since, None
        if not fits(present):
            present = min(largest, present)
        elif largest > present:
            self.more_since = now if since is None else since
            if now - self.more_since >= HOLD:
                present, self.more_since = largest, None
        self.borne = present if present < top else None
        return present


class Unanswered:
    """Frames without an answer, in order. When a stream ends, those that it sent are sent again on the next one."""

    def __init__(self, frames):
        self.left = collections.deque(frames)
        self.out = {}  # number -> frame
        self.lock = threading.Lock()

    def next(self, stream):
        """The next frame for this stream; none when there is no more, or the stream has ended."""
        with self.lock:
            if stream.is_set() or not self.left:
                return None
            frame = self.left.popleft()
            self.out[frame.number] = frame
            return frame

    def answered(self, number):
        with self.lock:
            return self.out.pop(number, None) is not None

    def again(self, stream):
        """The stream has ended."""
        with self.lock:
            stream.set()
            self.left.extendleft(self.out[number] for number in sorted(self.out, reverse=True))
            self.out.clear()
            return bool(self.left)


def mean(paths):
    """Bits over seconds."""
    bits, seconds = (sum(of) for of in zip(*paths)) if paths else (0.0, 0.0)
    return bits / max(seconds, bits * 1e-11) if bits else 0.0


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


def numbered(pb, frame, number):
    """A copy of the frame with this number."""
    copy = pb.Frame()
    copy.CopyFrom(frame)
    copy.number = number
    return copy


def describe(value):
    """A pipeline's output in a few words."""
    kind = value.WhichOneof("value")
    if kind == "boxes":
        return [f"{b.label} {b.score:.0%} at ({b.x0:.0f},{b.y0:.0f})-({b.x1:.0f},{b.y1:.0f})"
                for b in value.boxes.boxes]
    if kind == "texts":
        return [left_out(t) or t.text for t in value.texts.texts]
    if kind == "labels":
        return [left_out(l) or l.label for l in value.labels.labels]
    if kind == "masks":
        return [f"{len(m.polygons)} outlines of {sum(len(p.points) for p in m.polygons) // 2} points"
                for m in value.masks.masks]
    if kind == "keypoints":
        return [[f"({x:.0f},{y:.0f}) {score:.0%}" for x, y, score in zip(k.points[::2], k.points[1::2], k.scores)]
                for k in value.keypoints.keypoints]
    if kind == "embeddings":
        return [left_out(e) or f"{len(e.values)} numbers" for e in value.embeddings.embeddings]
    if kind == "tensor" and getattr(value.tensor, "left_out", None):
        return f"tensor, rows not looked at: {list(value.tensor.left_out)}"
    return kind


def left_out(item):
    """Why its box was not looked at; empty where it was, or the server is older."""
    field = item.DESCRIPTOR.fields_by_name.get("left_out")
    why = field.enum_type.values_by_number.get(item.left_out) if field else None
    if not why or why.number == 0:
        return ""
    return "not looked at: " + why.name.removeprefix("LEFT_OUT_").lower().replace("_", " ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", nargs="*", help=".jpg and .png files, and folders of them")
    parser.add_argument("--server", default="127.0.0.1:7700", help="or several: 10.0.0.1:7700,10.0.0.2:7700")
    parser.add_argument("--repeat", type=int, default=1, help="send the pictures so often (default 1)")
    parser.add_argument("--pipeline", default="", help="not needed when the server serves just one")
    parser.add_argument("--fps", type=float, default=25.0, help="frames a second (default 25)")
    parser.add_argument("--adapt", action="store_true",
                        help="send pictures in the size that the server asks for and the link bears")
    parser.add_argument("--ca", type=pathlib.Path, help="speak TLS, and trust whom this file signs (PEM)")
    parser.add_argument("--token-file", type=pathlib.Path, help="send the token in this file")
    args = parser.parse_args()
    if args.adapt and not Image:
        sys.exit("error: --adapt makes pictures smaller: pip install pillow")
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

    frames = [(name, numbered(pb, frame, i)) for i, (name, frame) in enumerate(frames * args.repeat)]
    link = Link(args.fps) if args.adapt else None
    unanswered = Unanswered(frame for _, frame in frames)
    start = time.monotonic()
    slo_ms, served, moves = 0.0, 0, 0

    def requests(stream, opened):
        open_ = pb.StreamOpen(pipeline=args.pipeline, client="python")
        if link:
            if "adapts" not in pb.StreamOpen.DESCRIPTOR.fields_by_name:
                print("the server takes no part in --adapt: it is older", file=sys.stderr)
            else:
                open_.adapts = True
        yield pb.StreamRequest(open=open_)
        opened.wait()
        report_at = time.monotonic()
        while frame := unanswered.next(stream):
            # On schedule, whether or not answers came.
            due = start + frame.number / args.fps
            while link and report_at < due:
                time.sleep(max(0.0, report_at - time.monotonic()))
                report_at += REPORT_EVERY
                yield pb.StreamRequest(report=link.report(pb))
            time.sleep(max(0.0, due - time.monotonic()))
            if link:
                frame, took = link.frame(pb, frame)
                # The time that this took is gone.
                frame.timeout_ms = max(slo_ms - took * 1e3, 1.0)
            yield pb.StreamRequest(frame=frame)

    while True:
        stream, opened = threading.Event(), threading.Event()
        try:
            for response in pb.stream(requests(stream, opened)):
                if response.HasField("opened"):
                    print(f"pipeline {response.opened.pipeline}, slo {response.opened.slo_ms:g}ms")
                    slo_ms = response.opened.slo_ms
                    if link:
                        # Clocks and frames that are out are those of one stream.
                        link = Link(args.fps) if getattr(response.opened, "adapts", False) else None
                    opened.set()
                    continue
                if link and link.hear(response):
                    continue
                result = response.result
                # A server that shuts down could not finish it in time.
                if result.code == grpc.StatusCode.UNAVAILABLE.value[0] and result.reason == "draining":
                    continue
                moves = 0
                if not unanswered.answered(result.number):
                    continue
                outcome = pb.Outcome.values_by_number[result.outcome].name.removeprefix("OUTCOME_").lower()
                print(f"{frames[result.number][0]}: {outcome} in {result.latency_ms:.1f}ms")
                if result.outcome in (pb.OUTCOME_COMPLETED, pb.OUTCOME_LATE):
                    served += 1
                else:
                    print(f"  at {result.module}: {result.reason}: {result.detail}")
                for name in sorted(result.outputs):
                    print(f"  {name}: {describe(result.outputs[name])}")
            break
        except grpc.RpcError as error:
            moves += 1
            # The server shuts down, or the connection is old: what it did not answer goes to the next one.
            if error.code() != grpc.StatusCode.UNAVAILABLE or moves > MOVES_MAX:
                sys.exit(f"error: {args.server}: {error.code().name}: {error.details()}")
            if not unanswered.again(stream):
                break
            print(f"{error.details()}; going on at another server")
        except KeyboardInterrupt:
            break
        finally:
            stream.set()
            opened.set()
    if link:
        print(f"link: {mean(link.paths) / 1e6:.1f} Mbit/s, frames asked for: {link.told or 'as they are'}")
    return served, len(frames)


if __name__ == "__main__":
    main()
