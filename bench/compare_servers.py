#!/usr/bin/env python3
"""Compares `outrider serve` with other OpenAI servers under `outrider load`, one server at a time.

    bench/compare_servers.py --model models/smollm2-135m.gguf --llama-server PATH
    bench/compare_servers.py --model models/smollm2-135m.gguf \\
        --peer "name=vllm,url=http://127.0.0.1:8300,start=PATH/serve.sh"

Rounds alternate: each starts a server, waits until it is healthy, throws one load away, measures
all numbers of streams, and stops it. Figures are medians over the rounds; ratios are ours to theirs
for requests/s, theirs to ours for times, so that more than 1 is better. Ids are random: no server
finds a prompt in a cache.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

FIELDS = ["requests_per_s", "ttft_ms.p50", "itl_ms.p50"]
START_S = 600  # vLLM compiles at its first start
STOP_S = 60
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Server:
    def __init__(self, name, url, start):
        self.name, self.url, self.start = name, url, start

    def __enter__(self):
        if self._is_healthy():
            sys.exit(f"{self.name}: another server answers at {self.url} already")
        self.log = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(
                shlex.split(self.start), stdout=self.log, stderr=subprocess.STDOUT
            )
        except OSError as error:
            sys.exit(f"{self.name}: {self.start}: {error.strerror}")
        patience = time.monotonic() + START_S
        while not self._is_healthy():
            if self.process.poll() is not None:
                self._fail(f"ended with {self.process.returncode}")
            if time.monotonic() > patience:
                self.process.kill()
                self._fail(f"is not healthy after {START_S} s")
            time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _fail(self, what):
        self.log.seek(0)
        tail = self.log.read()[-2000:].decode(errors="replace")
        sys.exit(f"{self.name} {what}: {self.start}\n{tail}")

    def _is_healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=2) as reply:
                return reply.status == 200
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


def figure(load, field):
    for key in field.split("."):
        load = load[key]
    return load


def run_load(options, server, streams, requests, seed):
    command = [options.outrider, "load", "--url", server.url, "--json", "--seed", str(seed)]
    command += ["--vocab", str(options.vocab), "--isl", str(options.isl), "--osl", str(options.osl)]
    command += ["--concurrency", str(streams), "--requests", str(requests)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout:
        sys.exit(f"{server.name}: {' '.join(command)}\n{done.stderr[-2000:]}")
    load = json.loads(done.stdout)
    if load["errors"]:
        failed = load["requests"] - load["completed"]
        print(f"{server.name}, {streams} streams: {failed} of {load['requests']} requests failed:"
              f" {load['errors']}; figures are those of the others", file=sys.stderr)
    return load


def measure(options, server, round_number, results):
    with server:
        run_load(options, server, max(options.concurrency), max(options.concurrency), 1)
        for streams in options.concurrency:
            requests = max(options.requests, 2 * streams)
            # Prompts of its own, or a prefix cache would have those of the load before.
            seed = 1000 * (1 + round_number) + streams
            load = run_load(options, server, streams, requests, seed)
            for field in FIELDS:
                results.setdefault((server.name, streams, field), []).append(figure(load, field))


def flash_attention(options):
    """llama-server's switch, which takes a value since late in 2025."""
    text = subprocess.run([options.llama_server, "--help"], capture_output=True, text=True).stdout
    return "-fa on" if "on|off|auto" in text else "-fa"


def peer_of(text):
    """name=…,url=…,start=COMMAND; the command may have commas."""
    found = re.fullmatch(r"name=([^,]+),url=([^,]+),start=(.+)", text)
    if not found:
        raise argparse.ArgumentTypeError("not name=…,url=…,start=COMMAND")
    return Server(*found.groups())


def servers_of(options):
    threads = options.threads
    yield Server(
        "outrider",
        "http://127.0.0.1:9701",
        f"{options.outrider} serve --model {options.model} --threads {threads} --rpc off"
        f" --http 127.0.0.1:9701 --ctx {options.ctx}",
    )
    if options.llama_server:
        streams = max(options.concurrency)
        room = streams * (options.isl + options.osl + 64)
        yield Server(
            "llama-server",
            "http://127.0.0.1:9702",
            f"{options.llama_server} -m {options.model} -t {threads} {flash_attention(options)}"
            f" -np {streams} -c {room} --port 9702",
        )
    yield from options.peer


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def numbers(text):
        return [int(part) for part in text.split(",")]

    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--outrider", default=str(ROOT / "build/release/outrider"))
    parser.add_argument("--llama-server", help="path of the program")
    parser.add_argument("--peer", action="append", default=[], type=peer_of,
                        help="name=…,url=…,start=COMMAND")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--vocab", type=int, default=16384)
    parser.add_argument("--isl", type=int, default=128)
    parser.add_argument("--osl", type=int, default=64)
    parser.add_argument("--concurrency", type=numbers, default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=16, help="of a load; at least 2 a stream")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    for name in filter(None, [options.model, options.llama_server]):
        if not pathlib.Path(name).is_file():
            parser.error(f"there is no file {name}")
    if os.getloadavg()[0] > 0.7:
        print("warning: the machine is busy; these figures say little", file=sys.stderr)

    print(f"{options.model}, {options.threads} threads, {options.isl} tokens in, {options.osl} out,"
          f" medians of {options.rounds} rounds of {options.requests} requests or 2 a stream\n")
    servers = list(servers_of(options))
    results = {}
    for round_number in range(options.rounds):
        for server in servers:
            measure(options, server, round_number, results)
    for streams in options.concurrency:
        for field in FIELDS:
            own = statistics.median(results["outrider", streams, field])
            print(f"{streams:3} streams  {field:15} outrider {own:9.2f}", end="")
            for server in servers[1:]:
                peer = statistics.median(results[server.name, streams, field])
                ratio = own / peer if field == "requests_per_s" else peer / own
                print(f"   {server.name} {peer:9.2f}  {ratio:5.2f}x", end="")
            print()


if __name__ == "__main__":
    main()
