#!/usr/bin/env python3
"""Compares `outrider serve` with other OpenAI servers under `outrider load`, one server at a time.

    bench/compare_servers.py --model models/smollm2-135m.gguf --llama-server PATH
    bench/compare_servers.py --model models/smollm2-135m.gguf \\
        --peer "name=vllm,url=http://127.0.0.1:8300,start=PATH/serve.sh"

Rounds alternate: each starts a server, waits until it is healthy, throws one load away, measures
all numbers of streams, and stops it. Figures are medians over the rounds, with the least and the
most; ratios are ours to theirs for requests/s, theirs to ours for times, so that more than 1 is
better. There is none where a server did other work than was asked: fewer tokens, a shorter prompt,
failed requests. Ids are random: no server finds a prompt in a cache.
"""

import argparse
import http.client
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
import urllib.request

FIELDS = ["requests_per_s", "ttft_ms.p50", "itl_ms.p50"]
START_S = 600  # vLLM compiles at its first start
STOP_S = 60
ROOT = pathlib.Path(__file__).resolve().parent.parent


def say(text):
    """Progress: the table is on stdout."""
    print(text, file=sys.stderr, flush=True)


class Server:
    """A process group of its own, so that what a script started ends with it."""

    def __init__(self, name, url, start, version=""):
        self.name, self.url, self.start, self.version = name, url, start, version

    def __enter__(self):
        if self._is_healthy():
            sys.exit(f"{self.name}: another server answers at {self.url} already")
        self.log = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(shlex.split(self.start), stdout=self.log,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            sys.exit(f"{self.name}: {self.start}: {error.strerror}")
        try:
            self._wait_healthy()
            self.version = self.version or self._told_version()
        except BaseException:  # also a signal: nobody calls __exit__ then
            self._stop()
            raise
        return self

    def __exit__(self, *_):
        self._stop()

    def _wait_healthy(self):
        patience = time.monotonic() + START_S
        while not self._is_healthy():
            if self.process.poll() is not None:
                self._fail(f"ended with {self.process.returncode}")
            if time.monotonic() > patience:
                self._fail(f"is not healthy after {START_S} s")
            time.sleep(0.5)

    def _stop(self):
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        self._signal(signal.SIGKILL)  # and what the leader of the group left
        self.process.wait()

    def _signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def _fail(self, what):
        self.log.seek(0)
        tail = self.log.read()[-2000:].decode(errors="replace")
        sys.exit(f"{self.name} {what}: {self.start}\n{tail}")

    def _get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=2) as reply:
            return reply.status, reply.read()

    def _is_healthy(self):
        try:
            return self._get("/health")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def _told_version(self):
        """Of a server with /version, as ours and vLLM have."""
        try:
            return str(json.loads(self._get("/version")[1])["version"])
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return "of unknown version"


def figure(load, field):
    for key in field.split("."):
        load = load[key] if load is not None else None
    return load


def run_load(options, server, streams, requests, seed):
    command = [options.outrider, "load", "--url", server.url, "--json", "--seed", str(seed)]
    command += ["--vocab", str(options.vocab), "--isl", str(options.isl), "--osl", str(options.osl)]
    command += ["--concurrency", str(streams), "--requests", str(requests)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout:
        sys.exit(f"{server.name}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def faults(load):
    """What makes this load's figures those of other work than was asked for."""
    out = []
    if load["errors"]:
        failed = load["requests"] - load["completed"]
        out.append(f"{failed} of {load['requests']} requests failed {load['errors']}")
    if load["mismatch"]:
        out.append(load["mismatch"])
    return out


def measure(options, server, round_number, results, notes):
    say(f"round {round_number + 1} of {options.rounds}: starting {server.name}")
    with server:
        run_load(options, server, max(options.concurrency), max(options.concurrency), 1)
        for streams in options.concurrency:
            requests = max(options.requests, 2 * streams)
            # Prompts of its own, or a prefix cache would have those of the load before.
            seed = 1000 * (1 + round_number) + streams
            load = run_load(options, server, streams, requests, seed)
            say(f"  {streams} streams: {load['requests_per_s']:.2f} requests/s")
            for fault in faults(load):
                say(f"  {server.name}, {streams} streams: {fault}")
                notes.setdefault((server.name, streams), []).append(fault)
            for field in FIELDS:
                value = figure(load, field)
                if value is not None:
                    results.setdefault((server.name, streams, field), []).append(value)


def ratio_of(field, own, peer):
    above, below = (own, peer) if field == "requests_per_s" else (peer, own)
    return f"{above / below:5.2f}x" if below else f"{'-':>6}"


def print_table(options, servers, results, notes):
    def cell(server, streams, field):
        values = results.get((server.name, streams, field), [])
        if not values:
            return None, f"{server.name} {'-':>9} {'':>19}"
        median = statistics.median(values)
        return median, f"{server.name} {median:9.2f} {f'({min(values):.2f}..{max(values):.2f})':>19}"

    for streams in options.concurrency:
        for field in FIELDS:
            own, text = cell(servers[0], streams, field)
            print(f"{streams:3} streams  {field:15} {text}", end="")
            for server in servers[1:]:
                peer, text = cell(server, streams, field)
                sound = not any((one.name, streams) in notes for one in (servers[0], server))
                ratio = ratio_of(field, own, peer) if sound else "none *"
                print(f"   {text}  {ratio}", end="")
            print()
    for (name, streams), told in notes.items():
        print(f"* {name}, {streams} streams: {'; '.join(dict.fromkeys(told))}")


def printed(*command):
    """Both outputs: llama-server tells its version on stderr."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    return done.stdout + done.stderr


def llama_version(path):
    found = re.search(r"^version: (.+)$", printed(path, "--version"), re.MULTILINE)
    return found[1] if found else "of unknown version"


def flash_attention(options):
    """llama-server's switch, which takes a value since late in 2025."""
    return "-fa on" if "on|off|auto" in printed(options.llama_server, "--help") else "-fa"


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
            llama_version(options.llama_server),
        )
    yield from options.peer


def end(number, _):
    """SystemExit, so that servers are stopped; a second signal must not stop their stopping."""
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


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
    if min(options.concurrency) < 1:
        parser.error("--concurrency: at least 1")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    load = os.getloadavg()[0]
    busy = f"WARNING: the machine was busy (load {load:.1f}); these figures say little"
    if load > 0.7:
        say(busy)

    servers = list(servers_of(options))
    results, notes = {}, {}
    for round_number in range(options.rounds):
        for server in servers:
            measure(options, server, round_number, results, notes)
    print(f"{options.model}, {options.threads} threads, {options.isl} tokens in, {options.osl} out,"
          f" medians (least..most) of {options.rounds} rounds of {options.requests} requests or 2 a"
          " stream")
    print("; ".join(f"{server.name} {server.version}" for server in servers))
    print(busy if load > 0.7 else f"load before the first test: {load:.1f}", end="\n\n")
    print_table(options, servers, results, notes)


if __name__ == "__main__":
    main()
