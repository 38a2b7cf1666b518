"""Ray Serve: an entry that calls two deployments in a row, as its guide on composition shows it."""

import argparse
import asyncio
import concurrent.futures
import os
import signal
import tempfile
import threading

# No reports to anyone; and workers as urgent as everything else here, where Ray would make them nicer.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_worker_niceness"] = "0"

import ray
from ray import serve

import stage


class Module:
    """One thread is the device: requests wait for it, and one that is cancelled meanwhile leaves."""

    def __init__(self, name):
        self.name = name
        self.device = concurrent.futures.ThreadPoolExecutor(max_workers=1)

    async def __call__(self, number):
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.device, stage.occupy, self.name, number)
        return number


class Entry:
    def __init__(self, a, b):
        self.a = a
        self.b = b

    async def __call__(self, request):
        number = int(await request.body())
        return str(await self.b.remote(self.a.remote(number)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--entry-ongoing", type=int)
    parser.add_argument("--entry-queued", type=int)
    parser.add_argument("--module-ongoing", type=int)
    parser.add_argument("--module-queued", type=int)
    args = parser.parse_args()

    def options(ongoing, queued):
        given = {"max_ongoing_requests": ongoing, "max_queued_requests": queued}
        # All three live on two cores, whatever Ray thinks that they need.
        return {"ray_actor_options": {"num_cpus": 0}} | {k: v for k, v in given.items() if v is not None}

    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        ray.init(include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        serve.start(http_options={"host": "127.0.0.1", "port": args.port})
        module = serve.deployment(**options(args.module_ongoing, args.module_queued))(Module)
        entry = serve.deployment(**options(args.entry_ongoing, args.entry_queued))(Entry)
        a = module.options(name="a").bind("a")
        b = module.options(name="b").bind("b")
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        serve.run(entry.bind(a, b))
        stop.wait()
        ray.shutdown()


if __name__ == "__main__":
    main()
