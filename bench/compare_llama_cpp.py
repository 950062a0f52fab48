#!/usr/bin/env python3
"""Our engine against llama.cpp's: same file, same threads, alternating runs, medians.

  bench/compare_llama_cpp.py --llama-bench PATH [--llama-batched-bench PATH] --model M.gguf
      [--depth 0,1024] [--batch 1,8,32] [--flash-attention 0,1] [--rounds 3]

For each test each program runs once a round, one after the other; the ratio is the median of the
rounds' ratios to the peer's better setting. Beside each median stand the least and the most of its
rounds. llama-bench decodes one stream; what it cannot do (several streams, or a depth where it is
too old for one) llama-batched-bench does. Both are built by their user from their own sources and
never by this project.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys

Test = collections.namedtuple("Test", "name prompt gen batch depth")


def tests_of(options):
    def name(base, batch, depth):
        return base + (f"x{batch}" if batch > 1 else "") + (f"@{depth}" if depth else "")

    out = [Test(name(f"pp{options.prompt}", 1, d), options.prompt, 0, 1, d)
           for d in options.depth if options.prompt]
    return out + [Test(name(f"tg{options.gen}", b, d), 0, options.gen, b, d)
                  for b in options.batch for d in options.depth if options.gen]


def output(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise SystemExit(f"{command[0]}: {error.strerror}")
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def json_of(command, text=None):
    """What a program printed as JSON: all of it, or `text` of it."""
    text = output(command) if text is None else text
    try:
        return json.loads(text)
    except ValueError:
        raise SystemExit(f"{command[0]} printed no JSON; is it the right program? "
                         f"{' '.join(command)} printed {text[:200]!r}")


def say(text):
    """Progress: the table is on stdout."""
    print(text, file=sys.stderr, flush=True)


def load_words():
    """Ratios hold on a machine that does nothing else: programs differ in how they stand company."""
    load = os.getloadavg()[0]
    if load <= 0.7:
        return f"load before the first test: {load:.1f}"
    say(f"warning: the machine is busy (load {load:.1f}); these figures say little")
    return f"WARNING: the machine was busy (load {load:.1f}); these figures say little"


def ours(options, test):
    """The row of `outrider bench --json`."""
    row, = json_of(
        [options.outrider, "bench", "--model", options.model, "--threads", str(options.threads),
         "--prompt", str(test.prompt), "--gen", str(test.gen), "--batch", str(test.batch),
         "--depth", str(test.depth), "--repetitions", "1", "--json"])
    if row["test"] != test.name:
        raise SystemExit(f"asked for {test.name}, measured {row['test']}")
    return row


class Peer:
    def __init__(self, options):
        self.options = options
        self.bench_knows_depth = "--n-depth" in output([options.llama_bench, "--help"])
        self.batched_switch = False
        if options.llama_batched_bench:
            text = output([options.llama_batched_bench, "--help"])
            self.batched_switch = "[on|off|auto]" in text

    def version(self):
        """As its own results name it; the smallest test, before the table."""
        row = self._bench_row(Test("", 1, 0, 1, 0), 0)
        return f"llama.cpp build {row.get('build_number', '?')} ({row.get('build_commit', '?')})"

    def cannot(self, test):
        """Why there is no figure of the peer; empty: there is one."""
        if self._by_bench(test) or (test.gen and self.options.llama_batched_bench):
            return ""
        if test.batch == 1 and test.prompt:
            return "this llama-bench knows no depth (-d)"
        what = "several streams need" if test.batch > 1 else "without -d in llama-bench a depth needs"
        return what + " --llama-batched-bench PATH"

    def speed(self, test, flash):
        """Tokens per second."""
        return self._bench(test, flash) if self._by_bench(test) else self._batched(test, flash)

    def _by_bench(self, test):
        return test.batch == 1 and (test.depth == 0 or self.bench_knows_depth)

    def _bench(self, test, flash):
        return self._bench_row(test, flash)["avg_ts"]

    def _bench_row(self, test, flash):
        depth = ["-d", str(test.depth)] if test.depth else []
        return json_of(
            [self.options.llama_bench, "-m", self.options.model, "-t", str(self.options.threads),
             "-p", str(test.prompt), "-n", str(test.gen), "-r", "1", "-fa", str(flash), "-o",
             "json", *depth])[0]

    def _batched(self, test, flash):
        prompt = max(1, test.depth)  # it needs one token to start from
        switch = ["-fa", "on" if flash else "off"] if self.batched_switch else ["-fa"] * flash
        command = [self.options.llama_batched_bench, "-m", self.options.model, "-t",
                   str(self.options.threads), "-npp", str(prompt), "-ntg", str(test.gen), "-npl",
                   str(test.batch), "-c", str(test.batch * (prompt + test.gen)),
                   "--output-format", "jsonl", *switch]
        lines = [line for line in output(command).splitlines() if line.startswith("{")]
        return json_of(command, lines[0] if lines else "")["speed_tg"]


def spread(values, digits):
    return f"{min(values):.{digits}f}..{max(values):.{digits}f}"


def compare(options, peer, test):
    """Prints the test's row."""
    why_not = peer.cannot(test)
    settings = [] if why_not else options.flash_attention
    mine, theirs = [], {flash: [] for flash in settings}
    for number in range(options.rounds):
        mine.append(ours(options, test))
        words = [f"outrider {mine[-1]['tokens_per_s']:.1f}"]
        for flash in settings:
            theirs[flash].append(peer.speed(test, flash))
            words.append(f"llama.cpp (fa {flash}) {theirs[flash][-1]:.1f}")
        say(f"{test.name}, round {number + 1} of {options.rounds}: {', '.join(words)} tokens/s")

    def median(field):
        return statistics.median(row[field] for row in mine if field in row)

    speeds = [row["tokens_per_s"] for row in mine]
    best = max(settings, key=lambda flash: statistics.median(theirs[flash]), default=None)
    line = f"{test.name:18} {statistics.median(speeds):10.1f} {spread(speeds, 1):>17} "
    line += f"{median('ms_per_step'):9.2f} "
    line += f"{median('share_of_plain_read'):9.0%} " if test.gen else f"{'-':>9} "
    line += f"{median('share_of_int16_dot'):9.0%} "
    if best is None:
        print(f"{line}no llama.cpp: {why_not}", flush=True)
        return
    ratios = [speed / other for speed, other in zip(speeds, theirs[best])]
    print(f"{line}{statistics.median(theirs[best]):10.1f} {spread(theirs[best], 1):>17} {best:3} "
          f"{statistics.median(ratios):7.2f}x {spread(ratios, 2):>13}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent

    def numbers(text):
        return [int(part) for part in text.split(",")]

    parser.add_argument("--llama-bench", required=True, help="path of the program")
    parser.add_argument("--llama-batched-bench", help="path of the program: for several streams")
    parser.add_argument("--outrider", default=str(root / "build/release/outrider"))
    parser.add_argument("--model", required=True, help="path of a GGUF file")
    parser.add_argument("--threads", type=int, default=2, help="[2]")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of prefill; 0: none [512]")
    parser.add_argument("--gen", type=int, default=64, help="tokens of decode; 0: none [64]")
    parser.add_argument("--depth", type=numbers, default=[0], help="tokens before, by commas [0]")
    parser.add_argument("--batch", type=numbers, default=[1], help="streams, by commas [1]")
    parser.add_argument("--rounds", type=int, default=3, help="[3]")
    parser.add_argument("--flash-attention", type=numbers, default=[0, 1],
                        help="the peer's settings to try, of 0 and 1 [0,1]")
    options = parser.parse_args()
    if min(options.batch) < 1 or min(options.depth) < 0:
        parser.error("--batch: at least 1; --depth: at least 0")
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    if not options.flash_attention or set(options.flash_attention) - {0, 1}:
        parser.error("--flash-attention: 0, 1 or 0,1")
    if not pathlib.Path(options.model).is_file():
        parser.error(f"--model: there is no file {options.model}")
    tests = tests_of(options)
    if not tests:
        parser.error("--prompt 0 and --gen 0 leave no test")

    load = load_words()
    peer = Peer(options)
    versions = f"{output([options.outrider, '--version']).strip()}; {peer.version()}"
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    cpu = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in cpuinfo)}
    print(cpu.get("model name", "unknown CPU"))
    print(" ".join(flag for flag in cpu.get("flags", "").split() if flag[:3] in ("avx", "amx")))
    print(f"{versions}\n{load}")
    print(f"{options.model}, {options.threads} threads, medians of {options.rounds} alternating "
          "rounds and their least..most, tokens/s; fa: the peer's better setting of flash attention\n")
    print(f"{'test':18} {'outrider':>10} {'least..most':>17} {'ms/step':>9} {'of a read':>9} "
          f"{'of int16':>9} {'llama.cpp':>10} {'least..most':>17} {'fa':>3} {'ratio':>8} "
          f"{'least..most':>13}", flush=True)
    for test in tests:
        compare(options, peer, test)


if __name__ == "__main__":
    main()
