#!/usr/bin/env python3
"""What the KV store is worth to a server, as its clients see it (time to the first token, as the
server counts it: queue and prefill), and what it costs.

  restart  a prompt without a store, then after stops and kills of a server with one
  hits     many prompts in a pool that holds one of them: read from the store, against computed
  writes   new prompts whose every block is stored, against the same without a store; with a
           limit below what they bring, the store writes at its limit all the while
  fill     a long load against a small cap: the directory's size all the while, bytes written

Usage: kv_store_serving.py restart --model M --tokens 6000 [--rounds 5]
       kv_store_serving.py hits --model M --tokens 512,2048 [--rounds 20]
       kv_store_serving.py writes --model M [--limit-mb-s 8] [--rounds 6]
       kv_store_serving.py fill --model M [--cap-mb 128] [--fill-mb 1000]
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from server import Server  # noqa: E402

MB = 1 << 20
STORED = {"ttl_s": 86400}  # blocks of such a request are stored at once


def prompt(seed, tokens):
    draw = random.Random(seed)
    return [draw.randrange(100, 30000) for _ in range(tokens)]


class Answer:
    def __init__(self, server, ids, **more):
        body = {"prompt": ids, "max_tokens": 8, "temperature": 0, "seed": 1, "logprobs": 2,
                "ignore_eos": True, **more}
        status, _, text = server.request("POST", "/v1/completions", body, timeout_s=600)
        assert status == 200, text
        answer = json.loads(text)
        timings = answer["timings"]
        self.first_ms = timings["queue_ms"] + timings["prefill_ms"]
        self.cold = timings["cached_tokens_cold"]
        choice = answer["choices"][0]
        self.bits = choice["text"], choice["logprobs"]


def p95(values):
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


def start(options, directory=None, *flags):
    flags = [*options.flags, *flags, *(["--store-dir", str(directory)] if directory else [])]
    return Server(options.binary, options.model, flags)


def kv_store(server):
    return json.loads(server.request("GET", "/cluster")[2])["kv_store"]


def wait_stored(server, blocks):
    server.wait_until(lambda: server.metric("outrider_kv_store_blocks") >= blocks, "durable blocks",
                      600)


def restart(options, directory):
    tokens = int(options.tokens)
    ids = prompt(1, tokens)
    full = (tokens - 1) // 16
    computed, read, same = [], {"SIGTERM": [], "SIGKILL": []}, True
    for _ in range(options.rounds):
        with start(options) as server:
            reference = Answer(server, ids)
            computed.append(reference.first_ms)
    with start(options, directory) as server:
        for _ in range(2):
            Answer(server, ids)
        wait_stored(server, full)
        server.terminate()
    for _ in range(options.rounds):
        for how in ("SIGTERM", "SIGKILL"):
            with start(options, directory) as server:
                answer = Answer(server, ids)
                read[how].append(answer.first_ms)
                same = same and answer.bits == reference.bits and answer.cold == full * 16
                server.process.send_signal(getattr(signal, how))
                server.process.wait()
    print(f"{tokens} tokens, medians of {options.rounds}: computed {statistics.median(computed):.0f} ms")
    # What a start finds is what the process before left: the second row follows stops, the first kills.
    for how, before in (("SIGTERM", "kill -9"), ("SIGKILL", "a stop")):
        values = read[how][1:] if how == "SIGTERM" and len(read[how]) > 1 else read[how]
        print(f"  after {before}: {statistics.median(values):.0f} ms, "
              f"{statistics.median(computed) / statistics.median(values):.1f}x")
    print(f"  same text, logprobs and all full blocks: {same}")
    return same


def block_mb(options):
    """Of one block of this model."""
    with start(options, None, "--kv-memory-mb", "64") as server:
        return 64 / server.metric("outrider_kv_blocks_total")


def hits(options, directory):
    good = True
    a_block_mb = block_mb(options)
    for tokens in map(int, options.tokens.split(",")):
        prompts = [prompt(100 + i, tokens) for i in range(options.rounds)]
        full = (tokens - 1) // 16
        pool_mb = max(2, round(a_block_mb * (full + 1) * 1.3 + 1))
        flags = ["--kv-memory-mb", str(pool_mb), "--ctx", str((tokens + 16) // 16 * 16 + 16)]
        place = directory / str(tokens)
        with start(options, place, *flags) as server:
            computed = [Answer(server, ids) for ids in prompts]
            for ids in prompts:  # a second use; the first ones' blocks are gone, so it computes
                Answer(server, ids, kv=STORED)
            wait_stored(server, full * len(prompts))
            again = [Answer(server, ids) for ids in prompts]
            loads = kv_store(server)["loads"]
        was_read = [a for a in again if a.cold == full * 16]
        read_enough = 2 * len(was_read) > len(again)  # or the figures are not those of reads
        same = all(a.bits == b.bits for a, b in zip(computed, again))
        ratio = p95([a.first_ms for a in again]) / p95([a.first_ms for a in computed])
        good = good and same and read_enough
        print(f"{tokens} tokens x {len(prompts)}: computed median "
              f"{statistics.median(a.first_ms for a in computed):.0f}, p95 "
              f"{p95([a.first_ms for a in computed]):.0f} ms; with the store median "
              f"{statistics.median(a.first_ms for a in again):.0f}, p95 "
              f"{p95([a.first_ms for a in again]):.0f} ms, {ratio:.2f} of computed "
              f"({len(was_read)} read whole, ends {loads}); same {same}", flush=True)
        if not read_enough:
            print(f"  FAIL: most prompts did not come from the store: {len(was_read)} of {len(again)}")
    return good


def written_bytes(server):
    """What the process gave to the system; sockets and log are little of it."""
    text = pathlib.Path(f"/proc/{server.process.pid}/io").read_text()
    return int(text.split("wchar: ")[1].split()[0])


def wait_written(server):
    """Until the store has nothing left to write: it flushes what is two seconds old."""
    server.wait_until(lambda: server.metric("outrider_kv_store_queued_bytes") == 0, "the queue", 600)
    before = None
    while before != (before := written_bytes(server) >> 16):
        time.sleep(4)


def writes(options, directory):
    """Each timed load has a server of its own, after a first load that lets blocks wait for their
    write (with a limit; the timed part must end like that, too). Without a limit all full blocks of
    all prompts must have been stored."""
    seeds = itertools.count(1000)

    def load(server, count, more):
        prompts = [prompt(next(seeds), 256) for _ in range(count)]
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda ids: Answer(server, ids, max_tokens=32, **more), prompts))
        return time.monotonic() - begin

    def timed(place, more, *flags):
        """Requests and written bytes a second, and whether the store did what is timed: with a limit
        blocks waited all the while, without one it stored them all."""
        def waits():
            return place is not None and server.metric("outrider_kv_store_queued_bytes") > 0

        with start(options, place, *flags) as server:
            load(server, options.prompts // 4, more)
            waited, before = waits(), written_bytes(server)
            seconds = load(server, options.prompts, more)
            rate, waited = (written_bytes(server) - before) / seconds, waited and waits()
            did = waited if limit else place is None or stored_all(server)
            return options.prompts / seconds, rate, did

    def stored_all(server):
        wait_written(server)
        return kv_store(server)["stored_blocks"] >= 16 * (options.prompts + options.prompts // 4)

    limit = options.limit_mb_s
    flags = ["--store-write-mb-s", str(limit)] if limit else []
    ratios, shares, held = [], [], True
    for round_ in range(options.rounds):
        place = directory / str(round_)
        # By turns, so that a drift of the machine favours neither.
        if round_ % 2 == 0:
            without, _, _ = timed(None, {})
            with_, rate, did = timed(place, {"kv": STORED}, *flags)
        else:
            with_, rate, did = timed(place, {"kv": STORED}, *flags)
            without, _, _ = timed(None, {})
        shutil.rmtree(place)
        held = held and did
        ratios.append(with_ / without)
        text = f"{rate / MB:.1f} MiB/s written, "
        if limit:
            shares.append(rate / (limit * MB))
            text += f"{shares[-1]:.2f} of the limit, more waited: {did}"
        else:
            text += f"all blocks: {did}"
        print(f"  without {without:.2f}/s, with a store {with_:.2f}/s ({text}): {ratios[-1]:.3f}",
              flush=True)
    used = f"; {statistics.median(shares):.2f} of {limit} MiB/s used" if limit else ""
    print(f"median {statistics.median(ratios):.3f}, lowest {min(ratios):.3f}{used}")
    if not held:
        print("FAIL: " + ("blocks did not wait all the while" if limit else "not all blocks were stored"))
    return held


class DiskUse(threading.Thread):
    """Bytes that the file system gave to a directory, every few milliseconds."""

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.directory, self.highest, self.samples = directory, 0, 0
        self.over = threading.Event()

    def allocated(self):
        total = 0
        for root, _, files in os.walk(self.directory):
            for name in files:
                try:
                    total += os.lstat(os.path.join(root, name)).st_blocks * 512
                except FileNotFoundError:
                    pass  # files come and go
        return total

    def run(self):
        while not self.over.wait(0.005):
            self.highest = max(self.highest, self.allocated())
            self.samples += 1

    def end(self):
        self.over.set()
        self.join()


def fill(options, directory):
    """Each fourth prompt is one of the last thirty, more than the pool holds: those that the store
    still has are read, and written again when they are about to leave."""
    seeds, draw, lock = itertools.count(), random.Random(1), threading.Lock()
    flags = ["--store-cap-mb", str(options.cap_mb), "--kv-memory-mb", "32", "--ctx", "272"]
    with start(options, directory, *flags) as server:
        use = DiskUse(directory)
        use.start()

        def client():
            while server.metric("outrider_kv_store_stored_bytes_total") < options.fill_mb * MB:
                with lock:
                    seed = next(seeds)
                    if draw.random() < 0.25:
                        seed = draw.randrange(max(0, seed - 30), seed + 1)
                Answer(server, prompt(seed, 256), kv=STORED, max_tokens=1)

        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(client) for _ in range(4)]:
                done.result()
        seconds = time.monotonic() - begin
        wait_written(server)
        state = kv_store(server)
        server.terminate()
        use.end()
    # One flush is cap / 256, from 16 to 256 MiB; the log has 16 MiB (kvstore/README.md).
    buffers = max(16, min(256, options.cap_mb // 256)) + 16
    amplification = state["payload_written_bytes"] / state["stored_bytes"]
    print(f"{state['stored_bytes'] / MB:.0f} MiB stored in {seconds:.0f} s, "
          f"{state['loaded_bytes'] / MB:.0f} MiB read; removed {state['removed']}, not stored "
          f"{state['skipped']}, outage {state['outage']}")
    print(f"disk: highest of {use.samples} samples {use.highest / MB:.1f} MiB, cap {options.cap_mb} + "
          f"write buffers {buffers} MiB")
    print(f"payload family: {amplification:.3f} bytes written a byte stored")
    return use.highest <= (options.cap_mb + buffers) * MB and amplification <= 1.2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["restart", "hits", "writes", "fill"])
    parser.add_argument("--binary", default=ROOT / "build/release/outrider")
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", default="6000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=96, help="writes: of one round")
    parser.add_argument("--limit-mb-s", type=int, default=0, help="writes: --store-write-mb-s")
    parser.add_argument("--cap-mb", type=int, default=128, help="fill: --store-cap-mb")
    parser.add_argument("--fill-mb", type=int, default=1000, help="fill: MiB to store")
    parser.add_argument("--dir", help="where the stores are made")
    parser.add_argument("--flags", nargs="*", default=[], help="for the server, without dashes: ctx=8192")
    options = parser.parse_args()
    options.flags = [part for flag in options.flags for part in ("--" + flag).split("=")]
    with tempfile.TemporaryDirectory(prefix="outrider-kv-store-", dir=options.dir) as directory:
        works = {"restart": restart, "hits": hits, "writes": writes, "fill": fill}[options.what]
        return 0 if works(options, pathlib.Path(directory)) else 1


if __name__ == "__main__":
    sys.exit(main())
