#!/usr/bin/env python3
"""What becomes of a server when its draft, in another process, dies, hangs or is far away.

    bench/draft_faults.py --model MODEL.gguf --draft DRAFT.gguf [--streams 1] [--seconds 10] [--loss 5]

One server (`serve --cluster`) and one node (`outrider node`, behind a proxy of ours that can delay)
answer the prompts of bench/speculation_prompts.json in a closed loop. In each state windows with
drafts wanted and windows with "speculation": "off" take turns; a ratio is of the tokens per second
in a pair of neighbours, and the median of the pairs is shown with the least and the most. Each answer
is compared with what the server says alone. --loss: percent of packets to and from the node's port
dropped by nftables (needs root). Hints are used again when the answer has a token that the draft model
drafted. How much of the time target and draft compute is the CPU time of the busiest thread of each
process while answers whose prompts are computed already are decoded: both do at once for at least the
sum less 100 %. Exit code 1: a request failed or an answer differed.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

import arguments  # noqa: E402
from server import Server  # noqa: E402


class Proxy:
    """TCP to a port, each byte `delay_s` late, either way. Runs on a thread of its own."""

    def __init__(self, target):
        self.target, self.delay_s = target, 0.0
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        started.wait()

    def _run(self, started):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._join, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    async def _join(self, reader, writer):
        there = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer),
                             return_exceptions=True)

    async def _pump(self, reader, writer):
        waiting = asyncio.Queue()

        async def write():
            with contextlib.suppress(OSError):  # the other end is gone
                while (item := await waiting.get()) is not None:
                    due, data = item
                    await asyncio.sleep(max(0, due - time.monotonic()))
                    writer.write(data)
                    await writer.drain()
            writer.close()
        writing = asyncio.ensure_future(write())
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                waiting.put_nowait((time.monotonic() + self.delay_s, data))
        waiting.put_nowait(None)
        await writing


class Node:
    def __init__(self, args, port):
        self.command = [args.binary, "node", "--model", args.draft, "--join", f"127.0.0.1:{port}",
                        "--threads", str(args.draft_threads)]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Client:
    """The prompts, in a closed loop, for so long."""

    def __init__(self, server, args):
        self.server, self.args = server, args
        self.known, self.failed, self.differed, self.asked = {}, 0, 0, 0
        self.salt = itertools.count()

    def ask(self, prompt, speculation):
        return self.complete(prompt, speculation, str(next(self.salt)), self.args.tokens)

    def complete(self, prompt, speculation, salt, tokens):
        status, _, text = self.server.request("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": prompt["user"]}], "temperature": 0,
            "cache_salt": salt, "max_tokens": tokens, "speculation": speculation}, timeout_s=600)
        self.asked += 1
        if status != 200:
            self.failed += 1
            return 0
        answer = json.loads(text)
        content = answer["choices"][0]["message"]["content"]
        self.differed += self.known.setdefault((prompt["name"], tokens), content) != content
        return answer["usage"]["completion_tokens"]

    def window(self, speculation):
        """Tokens per second; whole answers only, so that nothing is cut."""
        prompts = itertools.cycle(self.prompts)
        end = time.monotonic() + self.args.seconds
        lock, spent, tokens = threading.Lock(), [], []

        def work():
            while time.monotonic() < end:
                with lock:
                    prompt = next(prompts)
                begun = time.monotonic()
                count = self.ask(prompt, speculation)
                with lock:
                    tokens.append(count)
                    spent.append(time.monotonic() - begun)
        threads = [threading.Thread(target=work) for _ in range(self.args.streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(tokens) / (sum(spent) / self.args.streams)

    @property
    def prompts(self):
        return [p for p in arguments.PROMPTS if p["class"] in self.args.classes.split(",")]

    def ratio(self, state, pairs):
        ratios = []
        for pair in range(pairs):
            order = ("auto", "off") if pair % 2 == 0 else ("off", "auto")
            speed = {speculation: self.window(speculation) for speculation in order}
            ratios.append(speed["auto"] / speed["off"])
        print(f"| {state} | {statistics.median(ratios):.3f} | {min(ratios):.3f} to {max(ratios):.3f} |",
              flush=True)


def cpu_s(process):
    """By thread."""
    spent = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        spent[task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def tell_overlap(client, server, node):
    processes, busy, elapsed = (server.process, node.process), [{}, {}], 0
    for prompt in client.prompts:
        salt = str(next(client.salt))
        client.complete(prompt, "auto", salt, 1)
        before, begun = [cpu_s(p) for p in processes], time.monotonic()
        client.complete(prompt, "auto", salt, client.args.tokens)
        elapsed += time.monotonic() - begun
        for of, process, was in zip(busy, processes, before):
            for thread, spent in cpu_s(process).items():
                of[thread] = of.get(thread, 0) + spent - was.get(thread, 0)
    target, draft = (100 * max(of.values()) / elapsed for of in busy)
    print(f"target computes {target:.0f} % of the time, draft {draft:.0f} %: "
          f"both at once {max(0, target + draft - 100):.0f} % or more")


def used(server):
    return server.metric("outrider_accepted_draft_tokens_total", source="draft_model")


def seconds_until_used(client, server, begun):
    """From `begun` until a hint was used; requests go on meanwhile."""
    before = used(server)
    stop = threading.Event()

    def load():
        for prompt in itertools.cycle(client.prompts):
            if stop.is_set():
                return
            client.ask(prompt, "auto")
    thread = threading.Thread(target=load)
    thread.start()
    while used(server) == before and time.monotonic() - begun < 60:
        time.sleep(0.02)
    took = time.monotonic() - begun
    stop.set()
    thread.join()
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=arguments.Help)
    parser.add_argument("--model", required=True, type=arguments.existing, help="GGUF file of the target")
    parser.add_argument("--draft", required=True, type=arguments.existing, help="of the draft")
    parser.add_argument("--binary", type=arguments.existing, default=str(ROOT / "build/release/outrider"),
                        help="outrider")
    parser.add_argument("--streams", type=arguments.count, default=1, help="requests at once")
    parser.add_argument("--seconds", type=float, default=10, help="of a window, at least")
    parser.add_argument("--pairs", type=arguments.count, default=3,
                        help="windows with drafts and without, in turns, for each state")
    parser.add_argument("--tokens", type=arguments.count, default=64, help="of an answer")
    parser.add_argument("--threads", type=arguments.count, default=1, help="of the target")
    parser.add_argument("--draft-threads", type=arguments.count, default=1, help="of the draft")
    parser.add_argument("--classes", type=arguments.classes, default="code,edit",
                        help="of the prompts, by commas")
    parser.add_argument("--loss", type=int, default=0, help="percent of packets; needs root and nft")
    parser.add_argument("--flags", nargs="*", default=[], help="of the server, without dashes")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # leaves no rule behind
    flags = ["--cluster", "127.0.0.1:0", "--spec", "draft", "--ctx", "4096",
             "--threads", str(args.threads)] + [f"--{flag}" for flag in args.flags]
    with Server(args.binary, args.model, flags) as server:
        proxy = Proxy(int(re.search(r"nodes join at 127\.0\.0\.1:(\d+)", server.log())[1]))
        client = Client(server, args)
        for prompt in client.prompts:
            client.ask(prompt, "off")
        node = Node(args, proxy.port)
        try:
            took = seconds_until_used(client, server, time.monotonic())
            print(f"first hints used {took:.1f} s after the node's start, its model's loading included")
            print("| state | with drafts / without | spread |\n|---|---|---|")
            client.ratio("a node", args.pairs)
            tell_overlap(client, server, node)
            node.kill()
            client.ratio("killed", args.pairs)
            node.start()
            took = seconds_until_used(client, server, time.monotonic())
            print(f"hints used again {took:.1f} s after its start, its model's loading included")
            for _ in range(args.pairs):
                node.process.send_signal(signal.SIGSTOP)
                stopped = time.monotonic()
                client.ratio("stopped", 1)
                time.sleep(max(0, 10 - (time.monotonic() - stopped)))
                node.process.send_signal(signal.SIGCONT)
                took = seconds_until_used(client, server, time.monotonic())
                print(f"hints used again {took:.1f} s after SIGCONT")
            proxy.delay_s = 0.2
            client.ratio("200 ms away", args.pairs)
            proxy.delay_s = 0
            if args.loss > 0:
                with Loss(proxy.port, args.loss):
                    client.ratio(f"{args.loss} % loss", args.pairs)
                took = seconds_until_used(client, server, time.monotonic())
                print(f"hints used again {took:.1f} s after the loss")
        finally:
            node.kill()
        print(f"{client.asked} requests, {client.failed} failed, {client.differed} answers differ")
        return 1 if client.failed or client.differed else 0


class Loss:
    """Drops packets of a local port, either way, while it lasts."""

    def __init__(self, port, percent):
        rule = "numgen random mod 100 < {} drop"
        with tempfile.NamedTemporaryFile("w", suffix=".nft", delete=False) as file:
            file.write("table inet outrider_loss {\nchain input {\ntype filter hook input priority 0;\n"
                       f"tcp dport {port} {rule.format(percent)}\n"
                       f"tcp sport {port} {rule.format(percent)}\n}}\n}}\n")
        self.file = file.name

    def __enter__(self):
        subprocess.run(["nft", "-f", self.file], check=True)

    def __exit__(self, *unused):
        subprocess.run(["nft", "delete", "table", "inet", "outrider_loss"], check=True)
        pathlib.Path(self.file).unlink()


if __name__ == "__main__":
    sys.exit(main())
