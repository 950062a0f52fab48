#!/usr/bin/env python3
"""What drafting gains: the prompts of bench/speculation_prompts.json on servers that differ in their
drafting only, in turns, with the answers compared.

    bench/speculation.py --model MODEL.gguf [--draft DRAFT.gguf] [--spec auto,ngram]
        [--concurrency 1,8,32] [--rounds 3] [--llama-server PATH --llama-draft-max 0,2,4,8]

All servers run at once and only one is asked at a time. A class's speed is its completion tokens
over the time that its prompts took, so many at a time; a ratio is to the same round with spec off,
and the median over the rounds is shown with the least and the most. "off" among --spec is a second
server without drafts: its ratios are what the machine's noise makes of equals. No answer is drafted from an
earlier one: each request has a salt of its own. Prompts are computed before the time begins, unless
--prefill. Acceptance is by place in the draft, over the whole run. llama.cpp's server takes turns with
the same prompts and draft model, once for each length of its drafts (0: no draft model); its ratios are
to our server with spec off, too, and its answers are its own. Its slots keep their last prompt only, so
compare with --prefill, where all pay for prompts. Exit code 1: an answer of ours differed.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import arguments

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_S = 120


class Server:
    ready = "/ready"

    def __init__(self, args, spec, port):
        self.spec, self.port = spec, port
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command(args), stdout=subprocess.DEVNULL, stderr=self.log)

    def command(self, args):
        return ([args.binary, "serve", "--model", args.model, "--rpc", "off", "--spec", self.spec,
                 "--http", f"127.0.0.1:{self.port}", "--ctx", "4096", "--threads", str(args.threads)]
                + (["--draft", args.draft] if args.draft and self.spec in ("auto", "draft") else [])
                + [f"--{flag}" for flag in args.flags])

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body and json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()

    def wait_ready(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.ask("GET", self.ready)[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.log.seek(0)
        said = self.log.read().splitlines()[-8:]
        sys.exit("\n".join([f"spec {self.spec}: the server did not start:", *said]))

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def answer(self, prompt, args, seed, salt, tokens):
        status, raw = self.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": prompt["user"]}], "cache_salt": salt,
            "max_tokens": tokens, "temperature": args.temperature, "seed": seed})
        if status != 200:
            sys.exit(f"spec {self.spec}: {status} {raw[:300]!r}")
        body = json.loads(raw)
        return body["choices"][0]["message"]["content"], body["usage"]["completion_tokens"]

    def hints(self):
        """What became of hints since the start, by outcome."""
        return json.loads(self.ask("GET", "/cluster")[1])["drafts"]["hints"]

    def accepted_by_place(self):
        text = self.ask("GET", "/metrics")[1].decode()
        total = re.search(r"^vllm:spec_decode_num_drafts_total\{.*\} (\S+)", text, re.M)
        places = dict(re.findall(r"^vllm:spec_decode_num_accepted_tokens_per_pos_total\{.*position="
                                 r"\"(\d+)\".*\} (\S+)", text, re.M))
        drafts = float(total.group(1)) if total else 0
        return drafts, [float(places[str(i)]) / drafts for i in range(len(places)) if drafts]


class LlamaServer(Server):
    """llama.cpp's; its spec is "llama.cpp", and behind a blank the longest draft."""

    ready = "/health"

    def command(self, args):
        streams = max(map(int, args.concurrency.split(",")))
        drafts = self.spec.split()[1:]
        return ([args.llama_server, "-m", args.model, "--port", str(self.port), "-t", str(args.threads),
                 "-tb", str(args.threads), "-np", str(streams), "-c", str(4096 * min(streams, 8))]
                + (["-md", args.draft, "--draft-max", drafts[0],
                    "--draft-min", "0", "-cd", "4096"] if drafts else []))


def asked_of(prompts, concurrency, seed):
    """Prompts with their salts, few of them several times. Where many stream at once all begin and end
    together."""
    return [(prompts[i % len(prompts)], f"{concurrency}-{seed}-{i}")
            for i in range(max(len(prompts), concurrency))]


def run_class(server, asked, concurrency, args, seed):
    """Tokens/s and the answers in the order of what was asked."""
    clock = server.cpu_s if args.cpu else time.monotonic
    start = clock()
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        answers = list(pool.map(lambda a: server.answer(a[0], args, seed, a[1], args.tokens), asked))
    elapsed = clock() - start
    return sum(tokens for _, tokens in answers) / elapsed, [text for text, _ in answers]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=arguments.Help)
    parser.add_argument("--model", required=True, type=arguments.existing, help="GGUF file")
    parser.add_argument("--draft", type=arguments.existing,
                        help="draft model of the servers with spec auto or draft")
    parser.add_argument("--binary", type=arguments.existing, default=ROOT / "build/release/outrider",
                        help="outrider")
    parser.add_argument("--spec", default="auto", help="values of --spec to compare with off")
    parser.add_argument("--concurrency", type=arguments.counts, default="1,8,32",
                        help="streams at once, by commas")
    parser.add_argument("--rounds", type=arguments.count, default=3, help="in turns, medians of them")
    parser.add_argument("--tokens", type=arguments.count, default=192, help="of an answer")
    parser.add_argument("--threads", type=arguments.count, default=2, help="of a server")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy")
    parser.add_argument("--classes", type=arguments.classes, help="only these, by commas")
    parser.add_argument("--prefill", action="store_true", help="the time is of prompts as well")
    parser.add_argument("--cpu", action="store_true",
                        help="by the servers' CPU time: for machines that do other things")
    parser.add_argument("--llama-server", type=arguments.existing,
                        help="path of llama.cpp's llama-server, to compare with")
    parser.add_argument("--llama-draft-max", default="0,4", help="lengths of its drafts")
    parser.add_argument("--port", type=arguments.count, default=9750, help="of the first server")
    parser.add_argument("--flags", nargs="*", default=[], help="of all servers, without dashes")
    args = parser.parse_args()
    classes = list(dict.fromkeys(prompt["class"] for prompt in arguments.PROMPTS))
    if args.classes:
        classes = [name for name in classes if name in args.classes.split(",")]
    specs = ["off"] + args.spec.split(",")
    peers = [f"llama.cpp {n}".removesuffix(" 0") for n in args.llama_draft_max.split(",")]
    specs += peers if args.llama_server else []
    servers = []
    differed = 0
    try:
        for i, spec in enumerate(specs):  # In turn: each measures what steps cost.
            servers.append((LlamaServer if spec in peers else Server)(args, spec, args.port + i))
            servers[-1].wait_ready()
        print("| class | streams | off tokens/s | " + " | ".join(specs[1:]) + " |")
        print("|---" * (2 + len(specs)) + "|")
        for concurrency in map(int, args.concurrency.split(",")):
            for name in classes:
                of_class = [prompt for prompt in arguments.PROMPTS if prompt["class"] == name]
                speeds = {server: [] for server in servers}
                for seed in range(args.rounds):
                    plain = None
                    asked = asked_of(of_class, concurrency, seed)
                    # All prompts first: what is compared runs in turns of seconds, as machines change.
                    for server in servers if not args.prefill else []:
                        for prompt, salt in asked:
                            server.answer(prompt, args, seed, salt, 1)
                    for server in servers if seed % 2 == 0 else servers[::-1]:
                        speed, answers = run_class(server, asked, concurrency, args, seed)
                        speeds[server].append(speed)
                        if server.spec in peers:
                            continue
                        plain = plain or answers
                        differed += sum(a != b for a, b in zip(plain, answers))
                cells = []
                for server in servers[1:]:
                    ratios = [a / b for a, b in zip(speeds[server], speeds[servers[0]])]
                    cells.append(f"{statistics.median(ratios):.2f}x "
                                 f"({min(ratios):.2f}..{max(ratios):.2f})")
                print(f"| {name} | {concurrency} | {statistics.median(speeds[servers[0]]):.1f} | "
                      + " | ".join(cells) + " |", flush=True)
        for server in servers[1:]:
            if server.spec in peers or server.spec == "off":
                continue
            drafts, places = server.accepted_by_place()
            print(f"spec {server.spec}: {drafts:.0f} drafts, accepted by place "
                  + " ".join(f"{share:.2f}" for share in places)
                  + f"; hints {server.hints()}")
    finally:
        for server in servers:
            server.process.terminate()
        for server in servers:
            server.process.wait()
    print(f"{differed} answers differ from spec off")
    return 1 if differed else 0


if __name__ == "__main__":
    sys.exit(main())
