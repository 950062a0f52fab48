#!/usr/bin/env python3
"""Our engine against llama.cpp's llama-bench: same file, same threads, alternating runs, medians.

  bench/compare_llama_cpp.py --llama-bench PATH --model M.gguf [--engine-bench PATH] [--rounds 3]

Prints one row per test with both speeds (tokens/s) and their ratio. llama-bench is built by its
user from its own sources and never by this project.
"""

import argparse
import json
import pathlib
import statistics
import subprocess


def ours(options):
    out = subprocess.run(
        [options.engine_bench, "--model", options.model, "--threads", str(options.threads),
         "--prompt", str(options.prompt), "--gen", str(options.gen), "--batch", "1",
         "--repetitions", "1"],
        check=True, capture_output=True, text=True).stdout
    return {row["test"]: row["tokens_per_s"] for row in map(json.loads, out.splitlines())}


def theirs(options):
    out = subprocess.run(
        [options.llama_bench, "-m", options.model, "-t", str(options.threads), "-p",
         str(options.prompt), "-n", str(options.gen), "-r", "1", "-fa", str(options.flash_attention),
         "-o", "json"],
        check=True, capture_output=True, text=True).stdout
    rows = json.loads(out)
    return {(f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"): row["avg_ts"]
            for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--engine-bench", default=str(root / "build/release/bench/engine_bench"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flash-attention", type=int, default=1)
    options = parser.parse_args()

    pairs = [(ours(options), theirs(options)) for _ in range(options.rounds)]
    print(f"{'test':8} {'outrider':>10} {'llama.cpp':>10} {'ratio':>7}   "
          f"(tokens/s, medians of {options.rounds} alternating runs, {options.threads} threads)")
    for test in pairs[0][0]:
        a = statistics.median(mine[test] for mine, _ in pairs)
        b = statistics.median(peer[test] for _, peer in pairs)
        ratio = statistics.median(mine[test] / peer[test] for mine, peer in pairs)
        print(f"{test:8} {a:10.1f} {b:10.1f} {ratio:6.2f}x")


if __name__ == "__main__":
    main()
