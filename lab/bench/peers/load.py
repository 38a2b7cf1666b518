"""Open-loop load on one server: requests at given times, each given up at its deadline.

One JSON object on standard output says what came of them. The same client drives every server; only the call
differs. Latency counts from the time at which a request was due, so a client that lags cannot flatter a server.
"""

import argparse
import asyncio
import collections
import gc
import importlib
import json
import pathlib
import re
import selectors
import struct
import sys
import tempfile
import time
import urllib.request

import aiohttp
import grpc
from grpc_tools import protoc

HERE = pathlib.Path(__file__).resolve().parent
READY_S = 30
N_WARM = 20
# A server counts as idle when its devices did nothing for so long.
QUIET_S = 1.0
DRAIN_LIMIT_S = 60
METRIC = re.compile(r'^spillgate_device_request_time_seconds_total\{.*outcome="(\w+)".*\} (\S+)', re.MULTILINE)


def load_stubs(root, proto):
    """Compiles a .proto into a temporary folder and imports the two modules from there."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{root}", f"--python_out={folder}", f"--grpc_python_out={folder}", proto]
        if protoc.main(arguments):
            raise RuntimeError(f"cannot compile {proto}")
        sys.path.insert(0, folder)
        name = proto.removesuffix(".proto").replace("/", ".")
        return importlib.import_module(name + "_pb2"), importlib.import_module(name + "_pb2_grpc")


class Http:
    """A POST with the number as its body: mosec and Ray Serve."""

    def __init__(self, url):
        self.url = url

    async def open(self):
        # Connections are kept, and as many as there are requests in flight.
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def call(self, number, timeout_s):
        async with asyncio.timeout(timeout_s):
            async with self.session.post(self.url, data=str(number).encode()) as answer:
                body = await answer.read()
                if answer.status != 200:
                    return f"http {answer.status}"
                return "ok" if int(body) == number else "wrong answer"

    async def close(self):
        await self.session.close()


class Grpc:
    """What Spillgate's and Triton's calls share: the deadline is gRPC's, and its end cancels the call."""

    def __init__(self, url):
        self.address = url

    async def call(self, number, timeout_s):
        begun = time.monotonic()
        try:
            return "ok" if await self.ask(number, timeout_s) == number else "wrong answer"
        except grpc.aio.AioRpcError as error:
            # A server's own drop has the same code, and comes earlier.
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() >= begun + timeout_s:
                raise TimeoutError from None
            return error.code().name.lower()

    async def close(self):
        await self.channel.close()


class Spillgate(Grpc):
    async def open(self):
        root = HERE.parents[1] / "proto" / "proto"
        self.pb, stubs = load_stubs(root, "spillgate/v1/spillgate.proto")
        self.channel = grpc.aio.insecure_channel(self.address)
        self.stub = stubs.SpillgateStub(self.channel)

    async def ask(self, number, timeout_s):
        frame = self.pb.Frame(format=self.pb.FRAME_FORMAT_BYTES, data=str(number).encode())
        request = self.pb.InferRequest(pipeline="two_stage", frame=frame)
        response = await self.stub.Infer(request, timeout=timeout_s)
        return int(response.result.outputs["payload"].data)


class Triton(Grpc):
    async def open(self):
        self.pb, stubs = load_stubs(HERE, "open_inference.proto")
        self.channel = grpc.aio.insecure_channel(self.address)
        self.stub = stubs.GRPCInferenceServiceStub(self.channel)

    async def ask(self, number, timeout_s):
        tensor = self.pb.ModelInferRequest.InferInputTensor(name="IN", datatype="INT64", shape=[1, 1])
        request = self.pb.ModelInferRequest(model_name="two_stage", inputs=[tensor],
                                            raw_input_contents=[struct.pack("<q", number)])
        response = await self.stub.ModelInfer(request, timeout=timeout_s)
        return struct.unpack("<q", response.raw_output_contents[0])[0]


PROTOCOLS = {"http": Http, "spillgate": Spillgate, "triton": Triton}


class Runs:
    """Device time of a peer: the lines that its modules wrote, one for each 20 ms."""

    def __init__(self, path):
        self.path = path
        self.begin = path.stat().st_size if path.exists() else 0

    def state(self):
        return self.path.stat().st_size if self.path.exists() else 0

    def wasted(self, good):
        """Part of the device time that went to requests which were not answered in time."""
        with self.path.open() as file:
            file.seek(self.begin)
            numbers = [int(line.split()[1]) for line in file]
        return sum(n not in good for n in numbers) / len(numbers) if numbers else None


class Metrics:
    """Device time of Spillgate, by what became of the requests, from its own metrics."""

    def __init__(self, url):
        self.url = url
        self.begin = self.state()

    def state(self):
        with urllib.request.urlopen(self.url) as answer:
            text = answer.read().decode()
        times = collections.Counter()
        for outcome, seconds in METRIC.findall(text):
            times[outcome] += float(seconds)
        return times

    def wasted(self, _good):
        spent = {k: v - self.begin[k] for k, v in self.state().items()}
        total = sum(spent.values())
        return (total - spent.get("completed", 0.0)) / total if total else None


async def warm_up(client):
    """Until the server answers, and then a few times more; these requests have numbers below zero."""
    give_up = time.monotonic() + READY_S
    answered = 0
    while answered < N_WARM:
        try:
            said = await client.call(-1 - answered, 5)
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            said = repr(error)
        if said == "ok":
            answered += 1
        elif time.monotonic() > give_up:
            raise RuntimeError(f"no answer within {READY_S} s; it says: {said}")
        else:
            await asyncio.sleep(0.1)
    # The device time of the last one is accounted by then, and what a start leaves to do is done.
    await asyncio.sleep(1)


async def drive(client, arrivals, deadline_s):
    """Sends all, and waits for the last: what became of each, latencies of the good ones, and lags."""
    outcomes = {}
    latencies = []
    lags = []

    async def one(number, due):
        # The deadline is the client's: it counts from when the request was due.
        left = due + deadline_s - time.monotonic()
        if left <= 0:
            outcomes[number] = "never sent"
            return
        try:
            said = await client.call(number, left)
        except TimeoutError:
            said = "given up"
        except (OSError, aiohttp.ClientError) as error:
            said = type(error).__name__
        latency = time.monotonic() - due
        if said == "ok" and latency > deadline_s:
            said = "late"
        outcomes[number] = said
        if said == "ok":
            latencies.append(latency)

    begin = time.monotonic() + 0.05
    tasks = []
    for number, arrival in enumerate(arrivals):
        due = begin + arrival
        if (ahead := due - time.monotonic()) > 0:
            await asyncio.sleep(ahead)
        lags.append(time.monotonic() - due)
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    return outcomes, latencies, lags


def drain(device):
    """Seconds from now until the devices rest."""
    begun = time.monotonic()
    state, changed = device.state(), begun
    while (now := time.monotonic()) < changed + QUIET_S:
        if now > begun + DRAIN_LIMIT_S:
            return DRAIN_LIMIT_S
        time.sleep(0.05)
        if (new := device.state()) != state:
            state, changed = new, time.monotonic()
    return changed - begun


def percentile(values, part):
    values = sorted(values)
    return values[min(int(part * len(values)), len(values) - 1)] if values else None


async def measure(args):
    client = PROTOCOLS[args.protocol](args.url)
    await client.open()
    await warm_up(client)
    device = Metrics(args.metrics) if args.metrics else Runs(args.runs)
    arrivals = [float(line) for line in args.arrivals.read_text().split()]
    # A collection in the middle would look like a slow server.
    gc.collect()
    gc.freeze()
    gc.disable()
    outcomes, latencies, lags = await drive(client, arrivals, args.deadline_ms / 1000)
    drained = drain(device)
    good = {number for number, said in outcomes.items() if said == "ok"}
    await client.close()
    return {
        "offered": len(arrivals),
        "good": len(good),
        "outcomes": collections.Counter(outcomes.values()),
        "p50_ms": 1000 * percentile(latencies, 0.5) if good else None,
        "p99_ms": 1000 * percentile(latencies, 0.99) if good else None,
        "lag_p99_ms": 1000 * percentile(lags, 0.99),
        "wasted": device.wasted(good),
        "drain_s": drained,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--protocol", choices=PROTOCOLS, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--arrivals", type=pathlib.Path, required=True, help="one time a line, seconds")
    parser.add_argument("--deadline-ms", type=float, required=True)
    spent = parser.add_mutually_exclusive_group(required=True)
    spent.add_argument("--runs", type=pathlib.Path, help="where the modules write what they run")
    spent.add_argument("--metrics", help="URL of Spillgate's metrics")
    args = parser.parse_args()
    try:
        # The usual selector wakes to the millisecond, this one to the microsecond.
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
            result = runner.run(measure(args))
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
