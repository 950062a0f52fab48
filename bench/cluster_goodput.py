#!/usr/bin/env python3
"""What the loss of a target costs while it lasts: tokens per second of a gateway and its targets.

    bench/cluster_goodput.py --model MODEL.gguf [--healthy 1] [--rounds 3] [--seconds 10] [--streams 8]
        [--how kill,stop]

A gateway without a target of its own, and targets of one thread each in processes of their own.
Streams in a closed loop; each token that comes is counted when it comes. A round: N targets
(`--healthy`; with one, half of the streams are struck, which is the worst case); N + 1; then one of
them is killed (SIGKILL, with another started in its place) or stopped (SIGSTOP, as long as the
window, then SIGCONT), and the window lasts from the fault on; then N + 1 again. Ratios are of one
round, medians are shown with the least and the most. For `stop` also
how long the silent target is still listed, and how soon it is back. Exit code 1: a request failed.
"""

import argparse
import http.client
import itertools
import json
import pathlib
import signal
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

from node import Node, cluster_port  # noqa: E402
from server import Server  # noqa: E402

FLAGS = ["--roles", "target", "--threads", "1", "--kv-memory-mb", "512", "--spec", "off"]


class Load:
    """Streams that never end, and when their tokens came."""

    def __init__(self, port, streams, tokens):
        self.port, self.tokens = port, tokens
        self.arrivals, self.failed, self.stop = [], [], threading.Event()
        self.numbers = itertools.count()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(streams)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.stop.is_set():
            body = {"prompt": f"{next(self.numbers)} rivers run to the sea and", "stream": True,
                    "max_tokens": self.tokens, "ignore_eos": True, "temperature": 0.8, "seed": 1}
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            try:
                connection.request("POST", "/v1/completions", json.dumps(body),
                                   {"Content-Type": "application/json"})
                response = connection.getresponse()
                if response.status != 200:
                    self.failed.append(response.read().decode()[:200])
                    continue
                for line in response:
                    if line.startswith(b"data: {"):
                        self.arrivals.append(time.monotonic())
                        if b'"error"' in line:
                            self.failed.append(line.decode()[:200])
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
            finally:
                connection.close()

    def speed(self, begin, end):
        return sum(begin <= at < end for at in list(self.arrivals)) / (end - begin)

    def window(self, seconds):
        begin = time.monotonic()
        time.sleep(seconds)  # the time is what is measured over
        return self.speed(begin, time.monotonic())

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


class Cluster:
    def __init__(self, args):
        self.args = args
        self.server = Server(args.binary, args.model, ["--roles", "gateway", "--cluster", "127.0.0.1:0"],
                             wait=False)
        self.port = cluster_port(self.server)
        self.nodes = [self.node() for _ in range(args.healthy)]
        self.server.wait_ready()
        self.wait(args.healthy)

    def node(self):
        return Node(self.args.binary, self.args.model, self.port, FLAGS)

    def targets(self):
        return len(json.loads(self.server.request("GET", "/cluster")[2])["members"])

    def wait(self, count):
        self.server.wait_until(lambda: self.targets() == count, f"{count} targets", 120)
        return time.monotonic()

    def add(self):
        self.nodes.append(self.node())
        self.wait(len(self.nodes))

    def remove(self):
        self.nodes.pop().send(signal.SIGTERM)
        self.wait(len(self.nodes))


def play(cluster, load, how, args):
    """One round: tokens/s of N, of N + 1, from the fault on, and of N + 1 again; seconds out and back."""
    healthy = load.window(args.seconds)
    cluster.add()
    load.window(2)  # what waited is spread
    before = load.window(args.seconds)
    begun = time.monotonic()
    out = back = None
    if how == "kill":
        cluster.nodes[-1].end()
        cluster.nodes[-1] = cluster.node()
        time.sleep(max(0, begun + args.seconds - time.monotonic()))
    else:
        cluster.nodes[-1].send(signal.SIGSTOP)
        out = cluster.wait(args.healthy) - begun
        time.sleep(max(0, begun + args.seconds - time.monotonic()))
        cluster.nodes[-1].send(signal.SIGCONT)
    during = load.speed(begun, time.monotonic())
    ended = time.monotonic()
    back = cluster.wait(args.healthy + 1) - ended
    load.window(2)
    after = load.window(args.seconds)
    cluster.remove()
    return during / healthy, after / before, out, back


def shown(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--binary", default=str(ROOT / "build/release/outrider"))
    parser.add_argument("--healthy", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--how", default="kill,stop")
    args = parser.parse_args()
    cluster = Cluster(args)
    load = Load(cluster.server.http_port, args.streams, args.tokens)
    print("| fault | from it on / N | after / N + 1 before | out after, s | back after, s |")
    print("|---|---|---|---|---|")
    for how in args.how.split(","):
        rounds = [play(cluster, load, how, args) for _ in range(args.rounds)]
        during, after, out, back = zip(*rounds)
        gone = "" if how == "kill" else shown(out)
        print(f"| {how} | {shown(during)} | {shown(after)} | {gone} | {shown(back)} |", flush=True)
    load.end()
    for node in cluster.nodes:
        node.end()
    cluster.server.terminate()
    print(f"{next(load.numbers)} requests, {len(load.failed)} failed {load.failed[:3]}")
    return 1 if load.failed else 0


if __name__ == "__main__":
    sys.exit(main())
