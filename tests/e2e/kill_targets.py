#!/usr/bin/env python3
"""Kills target nodes under streams of every kind; each client must read what it would have read.

Usage: kill_targets.py --binary build/release/outrider [--model M.gguf] [--kills 20] [--seed 1]
                       [--nodes 2] [--streams 8] [--tokens 64]
                       [--how kill,stop,term,cut,deaf,mute,draft,gateway] [--gateways N]
                       [--draft D.gguf] [--store] [--namespaces] [--minutes M]

One server with a target of its own (--gateways: so many servers without one; the first is asked), and
nodes that are its twins (--store: with stores, which outlive them). Requests
of every kind (greedy, sampled, penalties, stop strings, logprobs, several choices, prompt logprobs,
streamed and whole) run so many at a time; after a random number of tokens a node is killed (SIGKILL),
stopped for four seconds (SIGSTOP, then SIGCONT), asked to leave (SIGTERM), or cut off for as long:
both ways, or it hears nothing (deaf), or nothing is heard of it (mute); another takes the place of
one that is gone. With --draft a node drafts for all targets, and may be killed, too, and so may the
other gateway, the first by which drafts are leased. With --namespaces each node has a network namespace of its own, and
what is cut off loses its packets (needs root; exit code 77 where there are none). Each answer is
compared with that of a server without nodes, logprobs to the bit. A stall is the longest time in which
a stream that was under way at a fault got nothing. With --minutes faults go on for so long, one target
more has joined to which nothing happens, and what it and the server hold (memory, descriptors, threads)
is told for the first and the last third. Exit code 1: an answer differed, a request failed, so few moved
that faults struck nobody, or something grew.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time

import network
from node import Node, Ways, cluster_port
from server import ROOT, Server, process_holds

TINY = ROOT / "tests/support/models/tiny-llama.gguf"
# Of all: what a fingerprint covers has to be the same everywhere.
ENGINE = ["--threads", "1", "--kv-memory-mb", "128", "--ctx", "512"]
WORDS = ("the model rides ahead of its target and a draft that is lost costs nothing but time "
         "so write about rivers tests numbers letters birds and the sea").split()
STOP_S = 4  # longer than the silence that a router allows
EXIT_SKIPPED = 77
EXIT_HUNG = 3
GROWTH_MINUTES = 5  # a shorter run says nothing of growth
PLACED = re.compile(r"session [0-9a-f]+\.(\d+): worker")
CUTS = {"cut": (), "deaf": ("to node",), "mute": ("to server",)}
KINDS = ("greedy", "sampled", "filtered", "penalties", "stop", "logprobs", "choices",
         "prompt_logprobs", "chat")


def make_request(draw, kind, tokens):
    """Path and body. The seed is always given: what is repeated must repeat."""
    text = " ".join(draw.choice(WORDS) for _ in range(draw.randrange(4, 40)))
    body = {"prompt": text, "max_tokens": draw.randrange(tokens // 2, tokens + 1),
            "temperature": 0.8, "seed": draw.getrandbits(32), "stream": draw.random() < 0.75,
            "ignore_eos": True}
    if kind in ("greedy", "logprobs"):
        body["temperature"] = 0
    if kind == "filtered":
        body.update(top_p=0.9, top_k=40, min_p=0.02)
    if kind == "penalties":
        body.update(presence_penalty=0.6, frequency_penalty=0.4, repetition_penalty=1.1)
    if kind == "stop":
        body.update(stop=[draw.choice("etaoin") + draw.choice("rst "), "qq"], ignore_eos=False)
    if kind == "choices":
        body["n"] = 3
    if kind == "prompt_logprobs":
        body.update(prompt_logprobs=2, stream=False)
    if kind == "chat":
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        body.update(logprobs=True, top_logprobs=2)
        return "/v1/chat/completions", body
    body["logprobs"] = 2
    return "/v1/completions", body


class Stream:
    """One request: what came, when, and how it ended."""

    def __init__(self, port, path, body):
        self.port, self.path, self.body = port, path, body
        self.arrivals = []
        self.begun = self.ended = None

    def run(self, heard):
        self.begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", self.path, json.dumps(self.body),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                return f"{response.status} {response.read().decode()[:300]}"
            if not self.body["stream"]:
                return self.summary([json.loads(response.read())], heard)
            return self.summary(self.events(response, heard), None)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            self.ended = time.monotonic()
            connection.close()

    def events(self, response, heard):
        for line in response:
            if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                self.arrivals.append(time.monotonic())
                heard(1)
                yield json.loads(line[6:])

    @staticmethod
    def summary(bodies, heard):
        """By choice: text, what is said of its tokens, and its end; all floats as they were sent."""
        choices = {}
        for body in bodies:
            if "error" in body:
                return json.dumps(body["error"])
            for choice in body["choices"]:
                mine = choices.setdefault(choice["index"], {"text": "", "tokens": [], "end": None,
                                                            "prompt": None})
                said = choice.get("delta") or choice.get("message") or {}
                mine["text"] += choice.get("text") or said.get("content") or ""
                logprobs = choice.get("logprobs") or {}
                if "content" in logprobs:
                    mine["tokens"] += logprobs["content"] or []
                elif logprobs:
                    mine["tokens"] += list(zip(logprobs["tokens"], logprobs["token_logprobs"],
                                               logprobs["top_logprobs"]))
                mine["end"] = choice.get("finish_reason") or mine["end"]
                mine["prompt"] = choice.get("prompt_logprobs") or mine["prompt"]
        if heard:
            heard(sum(len(choice["tokens"]) for choice in choices.values()))
        return json.loads(json.dumps(choices, sort_keys=True))

    def stall(self, fault):
        """Seconds around the fault without anything; none where it was not under way."""
        if not self.body["stream"] or not self.begun < fault < self.ended:
            return None
        times = [self.begun, *self.arrivals, self.ended]
        after = next(i for i, at in enumerate(times) if at > fault)
        return times[after] - max(times[after - 1], fault)


class Cluster:
    """Servers and the nodes that joined them."""

    def __init__(self, args, stack):
        self.args, self.timers = args, []
        self.net = stack.enter_context(network.Network()) if args.namespaces else None
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-kill-")))
        secret = directory / "secret"
        secret.write_text("known to all of this cluster\n")
        secret.chmod(0o600)
        self.secret = ["--cluster-secret-file", str(secret)]
        self.targets_joined = args.nodes + (1 if args.minutes else 0)  # the last: a witness, never struck
        self.stores = [directory / str(at) for at in range(self.targets_joined)]
        self.other = self.new_server(0) if args.gateways > 1 else None
        other_port = [cluster_port(self.other)] if self.other else []
        self.server = self.new_server(0)
        ports = [*other_port, cluster_port(self.server)]  # the first leases drafts
        self.places = [self.net.host(ports) if self.net else Ways(ports) for _ in range(self.targets_joined + 1)]
        self.nodes = [self.new_node(at) for at in range(self.targets_joined)]
        self.draft = self.new_draft() if args.draft else None
        self.server.wait_ready()
        self.wait_members()

    def new_server(self, port):
        own = ["--roles", "gateway"] if self.args.gateways else [*ENGINE, *self.args.drafting]
        host = self.net.address if self.net else "127.0.0.1"
        return Server(self.args.binary, self.args.model,
                      [*own, *self.secret, "--cluster", f"{host}:{port}", "--log-level", "debug"], wait=False)

    def new_node(self, at):
        flags = ["--roles", "target", *ENGINE, *self.secret, *self.args.drafting]
        flags += ["--store-dir", str(self.stores[at])] if self.args.store else []
        return Node(self.args.binary, self.args.model, self.places[at].join, flags, self.places[at].prefix)

    def new_draft(self):
        place = self.places[-1]
        flags = ["--threads", "1", "--kv-memory-mb", "64", *self.secret]
        return Node(self.args.binary, self.args.draft, place.join, flags, place.prefix)

    def count(self, role):
        members = json.loads(self.server.request("GET", "/cluster")[2])["members"]
        return sum(member["role"] == role for member in members)

    def wait_members(self):
        targets = self.targets_joined + (0 if self.args.gateways else 1)
        self.server.wait_until(lambda: self.count("target") == targets, "all targets")
        if self.draft:
            self.server.wait_until(lambda: self.count("draft") == 1, "the draft")

    def fault(self, how, at):
        """What it does; when it is over the node, or another, is a member again."""
        node = self.nodes[at]
        if how in CUTS:
            self.places[at].cut(*CUTS[how])
            return self.later(self.places[at].heal)
        if how == "gateway":
            port = cluster_port(self.other)
            self.other.end()
            self.other = self.new_server(port)
            return
        if how == "draft":
            self.draft.end()
            self.draft = self.new_draft()
            return
        if how == "stop":
            node.send(signal.SIGSTOP)
            return self.later(node.send, signal.SIGCONT)
        node.send(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        if node.exit_code() == EXIT_HUNG:
            raise AssertionError(f"a node's stop hung:\n{node.log()[-4000:]}")
        node.end()
        self.nodes[at] = self.new_node(at)

    def later(self, action, *arguments):
        self.timers = [timer for timer in self.timers if timer.is_alive()]  # they hold nodes
        self.timers.append(threading.Timer(STOP_S, action, arguments))
        self.timers[-1].start()

    def held(self):
        """By process that nothing happens to: MiB, descriptors, threads."""
        held = {"the server": process_holds(self.server.process.pid)}
        if self.args.minutes:
            held["a target that was never struck"] = process_holds(self.nodes[-1].process.pid)
        return held

    def close(self):
        for timer in self.timers:
            timer.join()
        for node in [*self.nodes, *filter(None, [self.draft])]:
            node.end()
        for place in self.places:
            place.close()
        if self.other:
            self.other.end()
        return self.server.terminate()


def texts_drafted_for(server):
    members = json.loads(server.request("GET", "/cluster")[2])["members"]
    return sum(member["load"]["draft_runs"] for member in members if member["role"] == "draft")


class Meter:
    """Tokens that all clients heard of."""

    def __init__(self):
        self.count = 0
        self.changed = threading.Condition()

    def heard(self, tokens):
        with self.changed:
            self.count += tokens
            self.changed.notify_all()

    def wait_for(self, count, timeout_s):
        with self.changed:
            return self.changed.wait_for(lambda: self.count >= count, timeout_s)


def ask_all(port, requests, streams, meter):
    """Streams and their answers in the order of the requests."""
    made = [Stream(port, path, body) for path, body in requests]
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        answers = list(pool.map(lambda stream: stream.run(meter.heard), made))
    return made, answers


def growth(name, held):
    """Prints what a process held in the first third and in the last; whether that is more."""
    third = max(1, len(held) // 3)
    first, last = ([statistics.median(column) for column in zip(*part)]
                   for part in (held[:third], held[-third:]))
    print(f"  {name} held {first[0]:.1f} MiB, {first[1]:.0f} descriptors and {first[2]:.0f} threads in the "
          f"first third, {last[0]:.1f} MiB, {last[1]:.0f} and {last[2]:.0f} in the last")
    return last[0] > 1.1 * first[0] + 8 or last[1] > first[1] + 8 or last[2] > first[2] + 2


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def play(args, stack):
    draw = random.Random(args.seed)
    requests = [make_request(draw, KINDS[i % len(KINDS)], args.tokens) for i in range(8 * len(KINDS))]
    with Server(args.binary, args.model, ENGINE) as undisturbed:
        _, expected = ask_all(undisturbed.http_port, requests, args.streams, Meter())
    if any(isinstance(answer, str) for answer in expected):
        sys.exit(f"kill_targets: an undisturbed request failed: "
                 f"{next(a for a in expected if isinstance(a, str))}")
    cluster = Cluster(args, stack)
    faults, stalls = {how: 0 for how in args.how}, {how: [] for how in args.how}
    asked = differed = failed = moved = read = 0
    held = []
    end = time.monotonic() + 60 * args.minutes
    while sum(faults.values()) < args.kills or time.monotonic() < end:
        order = draw.sample(range(len(requests)), 4 * args.streams)
        how, at = draw.choice(args.how), draw.randrange(args.nodes)
        meter = Meter()
        after = draw.randrange(1, args.streams * args.tokens)
        when = []

        def strike():
            meter.wait_for(after, 30)
            when.append(time.monotonic())
            cluster.fault(how, at)
        with concurrent.futures.ThreadPoolExecutor(1) as striker:
            struck = striker.submit(strike)
            made, answers = ask_all(cluster.server.http_port, [requests[i] for i in order],
                                    args.streams, meter)
        struck.result()
        faults[how] += 1
        asked += len(order)
        log = cluster.server.log()
        moves = sum(int(generation) > 1 for generation in PLACED.findall(log, read))
        moved, read = moved + moves, len(log)
        waits = [stall for stall in (stream.stall(when[0]) for stream in made) if stall is not None]
        stalls[how] += sorted(waits)[len(waits) - min(moves, len(waits)):]  # others were not struck
        for i, stream, answer in zip(order, made, answers):
            if isinstance(answer, str):
                failed += 1
                print(f"seed {args.seed}, {how}: failed: {answer} {json.dumps(stream.body)[:200]}")
            elif answer != expected[i]:
                differed += 1
                print(f"seed {args.seed}, {how}: differs: {json.dumps(stream.body)[:300]}")
        cluster.wait_members()
        held.append(cluster.held())
    cluster.server.wait_idle()
    cluster.server.wait_until(lambda: not texts_drafted_for(cluster.server), "drafts to forget the texts of the dead")
    code = cluster.close()
    print(f"{sum(faults.values())} faults ({', '.join(f'{n} {how}' for how, n in faults.items())}), "
          f"{asked} requests: {failed} failed, {differed} differed; {moved} times one was placed again")
    for how, seconds in stalls.items():
        if seconds:
            print(f"  stalls by {how}, of {len(seconds)} streams that moved: median "
                  f"{statistics.median(seconds):.2f} s, p99 {percentile(seconds, 0.99):.2f} s, "
                  f"most {max(seconds):.2f} s")
    grown = [name for name in held[0] if growth(name, [each[name] for each in held])]
    wrong = [f"the server ended with code {code}"] if code != 0 else []
    struck = sum(count for how, count in faults.items() if how not in ("gateway", "draft"))
    if moved < struck / 2:
        wrong.append("so few moves that most faults struck nobody")
    if args.minutes >= GROWTH_MINUTES:
        wrong += [f"{name} grows" for name in grown]
    for what in wrong:
        print(f"kill_targets: {what}")
    return 1 if failed or differed or wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--model", default=TINY, type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=0, help="at least so long")
    parser.add_argument("--gateways", type=int, default=0, choices=(0, 1, 2),
                        help="servers without a target: all targets are nodes")
    parser.add_argument("--store", action="store_true", help="nodes keep blocks on disk")
    parser.add_argument("--namespaces", action="store_true", help="a host for each node")
    parser.add_argument("--draft", type=pathlib.Path, help="a draft model that joins, too")
    parser.add_argument("--how", default="kill", help="faults, by commas, at random")
    args = parser.parse_args()
    args.how = args.how.split(",")
    args.drafting = ["--spec", "draft", "--spec-k", "4"] if args.draft else []
    if "draft" in args.how and not args.draft:
        parser.error("--how draft: there is none without --draft")
    if "gateway" in args.how and args.gateways < 2:
        parser.error("--how gateway: needs --gateways 2")
    if why := args.namespaces and network.missing():
        print(f"kill_targets: skipped: {why}")
        return EXIT_SKIPPED
    args.binary = args.binary.resolve()
    args.model = args.model.resolve()
    args.draft = args.draft and args.draft.resolve()
    print(f"kill_targets: seed {args.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        return play(args, stack)


if __name__ == "__main__":
    sys.exit(main())
