#!/usr/bin/env python3
"""What the KV store is worth to a server, as its clients see it (time to the first token, as the
server counts it: queue and prefill).

  restart  a prompt without a store, then after stops and kills of a server with one
  hits     many prompts in a pool that holds one of them: read from the store, against computed
  writes   a load whose every block is stored, against the same load without a store

Usage: kv_store_serving.py restart --model M --tokens 6000 [--rounds 5]
       kv_store_serving.py hits --model M --tokens 512,2048 [--rounds 20]
       kv_store_serving.py writes --model M [--rounds 3]
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from server import Server  # noqa: E402


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


def wait_stored(server, blocks):
    server.wait_until(lambda: server.metric("outrider_kv_store_blocks") >= blocks, "durable blocks")


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


def hits(options, directory):
    same = True
    for tokens in map(int, options.tokens.split(",")):
        prompts = [prompt(100 + i, tokens) for i in range(options.rounds)]
        full = (tokens - 1) // 16
        pool_mb = max(2, round(options.block_mb * (full + 1) * 1.3 + 1))
        flags = ["--kv-memory-mb", str(pool_mb), "--ctx", str((tokens + 16) // 16 * 16 + 16)]
        place = directory / str(tokens)
        with start(options, place, *flags) as server:
            computed = [Answer(server, ids) for ids in prompts]
            for ids in prompts:  # a second use; the first ones' blocks are gone, so it computes
                Answer(server, ids, kv={"ttl_s": 86400})
            wait_stored(server, full * len(prompts))
            again = [Answer(server, ids) for ids in prompts]
            loads = json.loads(server.request("GET", "/cluster")[2])["kv_store"]["loads"]
        was_read = [a for a in again if a.cold > 0]
        same = same and all(a.bits == b.bits for a, b in zip(computed, again))
        print(f"{tokens} tokens x {len(prompts)}: computed median "
              f"{statistics.median(a.first_ms for a in computed):.0f}, p95 "
              f"{p95([a.first_ms for a in computed]):.0f} ms; with the store median "
              f"{statistics.median(a.first_ms for a in again):.0f}, p95 "
              f"{p95([a.first_ms for a in again]):.0f} ms ({len(was_read)} read, ends {loads}); same {same}")
    return same


def writes(options, directory):
    def load(server, round_, **more):
        prompts = [prompt(1000 * round_ + i, 256) for i in range(48)]
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda ids: Answer(server, ids, max_tokens=32, **more), prompts))
        return len(prompts) / (time.monotonic() - begin)

    ratios = []
    with start(options) as plain, start(options, directory) as storing:
        for round_ in range(options.rounds):
            without = load(plain, round_)
            before = storing.metric("outrider_kv_store_stored_bytes_total")
            begin = time.monotonic()
            with_ = load(storing, round_, kv={"ttl_s": 86400})
            seconds = time.monotonic() - begin
            written = storing.metric("outrider_kv_store_stored_bytes_total") - before
            ratios.append(with_ / without)
            print(f"  without {without:.2f}/s, all blocks stored {with_:.2f}/s "
                  f"({written / seconds / 1e6:.0f} MB/s): {with_ / without:.3f}")
    print(f"median {statistics.median(ratios):.3f}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["restart", "hits", "writes"])
    parser.add_argument("--binary", default=ROOT / "build/release/outrider")
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", default="6000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block-mb", type=float, default=0.36, help="of one block (SmolLM2: 0.36)")
    parser.add_argument("--flags", nargs="*", default=[], help="for the server, without dashes: ctx=8192")
    options = parser.parse_args()
    options.flags = [part for flag in options.flags for part in ("--" + flag).split("=")]
    with tempfile.TemporaryDirectory(prefix="outrider-kv-store-") as directory:
        works = {"restart": restart, "hits": hits, "writes": writes}[options.what]
        return 0 if works(options, pathlib.Path(directory)) else 1


if __name__ == "__main__":
    sys.exit(main())
