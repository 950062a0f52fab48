#!/usr/bin/env python3
"""How long `outrider serve` takes from exec until it serves, and how much memory it then has.

  bench/server_start.py --model models/smollm2-135m.gguf [--rounds 5] [--ctx 2048] [--evict]

Each round starts three servers, one after the other: without a weights cache, with an empty one
(written by this start) and with the one just written. The pool holds one sequence of --ctx tokens;
a prompt fills it at the end of the last round, which shows what the work itself needs. Exit code 1:
after loading more memory was resident than 1.25 x model file + KV pool.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MB = 1 << 20
BOUND = 1.25  # x model file + KV pool: resident memory after loading
PATIENCE_S = 300


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Started:
    """A server, started now: `seconds` from exec to the first answer of any kind, to /health and to
    /ready. Use as a context manager."""

    def __init__(self, options, *flags):
        self.port = free_port()
        self.log = tempfile.TemporaryFile()
        command = [options.outrider, "serve", "--model", options.model, "--rpc", "off", "--http",
                   f"127.0.0.1:{self.port}", "--ctx", str(options.ctx), *flags]
        if options.threads:
            command += ["--threads", str(options.threads)]
        self.seconds = {}
        self.begin = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def _wait(self):
        while len(self.seconds) < 3:
            for path in ("/health", "/ready"):
                try:
                    status = self.request("GET", path)[0]
                except (OSError, http.client.HTTPException):
                    continue
                now = time.monotonic() - self.begin
                self.seconds.setdefault("answers", now)
                if status == 200:
                    self.seconds.setdefault(path, now)
            if self.process.poll() is not None or time.monotonic() > self.begin + PATIENCE_S:
                self.log.seek(0)
                sys.exit(f"the server did not start:\n{self.log.read().decode(errors='replace')}")
            time.sleep(0.002)

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            sent = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, json.dumps(body) if body else None, sent)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def resident(self, name="VmRSS"):
        """Bytes; VmHWM: the most so far."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(name + r":\s+(\d+) kB", status)[1]) << 10

    def pool_blocks(self):
        """As its log says; blocks have 16 tokens."""
        self.log.seek(0)
        return int(re.search(rb"KV pool: (\d+) blocks of 16 tokens", self.log.read())[1])

    def fill(self, tokens):
        draw = random.Random(1)
        body = {"prompt": [draw.randrange(100, 30000) for _ in range(tokens)], "max_tokens": 1}
        status, text = self.request("POST", "/v1/completions", body)
        if status != 200:
            sys.exit(f"a prompt of {tokens} tokens: HTTP {status} {text}")


def evict(options, cache):
    """Takes the files out of the system's page cache, as after a boot."""
    os.sync()
    for path in [pathlib.Path(options.model), *filter(pathlib.Path.is_file, cache.rglob("*"))]:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def one_round(options, pool_mb, figures, last):
    with tempfile.TemporaryDirectory(prefix="outrider-weights-") as directory:
        cache = ["--weights-cache", directory]
        for case, flags in (("none", []), ("written", cache), ("read", cache)):
            if options.evict:
                evict(options, pathlib.Path(directory))
            with Started(options, "--kv-memory-mb", str(pool_mb), *flags) as server:
                row = {**server.seconds, "loaded": server.resident(), "peak": server.resident("VmHWM")}
                if last:
                    server.fill(options.ctx - 2)
                    row["full"] = server.resident()
            print(f"{case}: ready after {row['/ready']:.2f} s", file=sys.stderr, flush=True)
            for name, value in row.items():
                figures.setdefault((case, name), []).append(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="path of a GGUF file")
    parser.add_argument("--outrider", default=str(ROOT / "build/release/outrider"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ctx", type=int, default=2048, help="tokens of the pool [2048]")
    parser.add_argument("--threads", type=int, default=0, help="[as the server chooses]")
    parser.add_argument("--evict", action="store_true", help="read the files from the disk each time")
    options = parser.parse_args()
    if options.rounds < 1 or options.ctx < 64:
        parser.error("--rounds: at least 1; --ctx: at least 64")
    for path in (options.model, options.outrider):
        if not pathlib.Path(path).is_file():
            parser.error(f"there is no file {path}")
    load = os.getloadavg()[0]

    with Started(options, "--kv-memory-mb", "256") as server:  # also warms the page cache
        block = 256 * MB / server.pool_blocks()
    pool_mb = int((options.ctx // 16 + 2) * block / MB) + 1
    figures = {}
    for number in range(options.rounds):
        one_round(options, pool_mb, figures, number == options.rounds - 1)

    file_bytes = os.path.getsize(options.model)
    bound = BOUND * file_bytes + pool_mb * MB
    print(f"{options.model}, medians (least..most) of {options.rounds} rounds"
          f"{', files not in memory' if options.evict else ''}")
    print(f"memory after loading against {BOUND} x file ({file_bytes / 1e6:.0f} MB) + KV pool for "
          f"{options.ctx} tokens ({pool_mb * MB / 1e6:.0f} MB) = {bound / 1e6:.0f} MB")
    print(f"{'WARNING: the machine was busy, ' if load > 0.7 else ''}load before the first start: "
          f"{load:.1f}\n")
    print(f"{'weights cache':14} {'first answer, s':>20} {'/health, s':>20} {'/ready, s':>20} "
          f"{'MB loaded':>10} {'of bound':>9} {'most before':>12} {'pool full':>10}")
    worst = 0
    for case in ("none", "written", "read"):
        cells = [f"{case:14}"]
        for name in ("answers", "/health", "/ready"):
            values = figures[case, name]
            cells.append(f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"
                         .rjust(20))
        loaded, peak, full = (max(figures[case, name]) for name in ("loaded", "peak", "full"))
        worst = max(worst, loaded / bound)
        print(*cells, f"{loaded / 1e6:10.0f} {loaded / bound:9.2f} {peak / 1e6:12.0f} {full / 1e6:10.0f}")
    if worst > 1:
        print("more was resident after loading than the bound")
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
