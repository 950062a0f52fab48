#!/usr/bin/env python3
"""Kills a server that writes its KV store at random points; nothing that it kept may then be wrong.

Usage: crash_store.py --binary build/release/outrider [--kills 40] [--seed 1] [--dir DIR]

Each life of the server opens what the one before left, answers again what that one answered last,
then takes new and old prompts from several clients until SIGKILL: at a random byte that it writes,
after a random number of answers, or while it still opens. Every answer must have the tokens and
logprobs of a server without a store. Exit code 1 at any difference, failed open or damaged record,
and if no block ever came from the store.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import wide_model
from server import Server

CLIENTS = 4
KILLS_A_DIRECTORY = 10
INSPECT_EVERY = 5
BYTES_MAX = 48 << 20  # that a life writes before its kill: three flushes of the store
ANSWERS_MAX = 60
LIFE_S_MAX = 60  # a kill whose point does not come by then comes then
# 96 blocks hold three of the four prompts that run at once, and little of what was asked before.
FLAGS = [*wide_model.FLAGS, "--kv-memory-mb", "6", "--log-level", "warn"]
CAPS_MB = 512, 64  # by turns: where everything stays, and where most of it makes room soon
DAMAGE = "corrupt", "wrong_tokens", "other_namespace", "io_error"  # of loads: none may end so


def make_prompts(seed):
    """Some begin alike, some like none."""
    draw = random.Random(seed)
    shared = [wide_model.tokens(draw, draw.randrange(60, 220)) for _ in range(4)]
    return [draw.choice([[], *shared]) + wide_model.tokens(draw, draw.randrange(40, 240))
            for _ in range(24)]


class Life:
    """One process of the server, from its start to its kill."""

    def __init__(self, world, directory, draw):
        self.world, self.directory, self.draw = world, directory, draw
        self.killed = threading.Event()
        self.answers = 0
        self.server = Server(world.binary, world.model,
                             [*FLAGS, "--store-dir", str(directory.path),
                              "--store-cap-mb", str(directory.cap_mb)], wait=False)

    def written(self):
        """Bytes that it gave to the system, sockets included."""
        try:
            text = pathlib.Path(f"/proc/{self.server.process.pid}/io").read_text()
        except OSError:  # it died, which wait_for notices
            return 0
        return int(text.split("wchar: ")[1].split()[0])

    def ask(self, number, salt, **kv):
        """One request. Nobody blames a killed server for a broken connection."""
        try:
            answer, timings = wide_model.complete(
                self.server, self.world.prompts[number], seed=number, cache_salt=salt, kv=kv)
        except (OSError, http.client.HTTPException):
            if self.killed.is_set():
                return
            raise
        with self.world.lock:
            self.answers += 1
            self.world.count(answers=1, cold_tokens=timings["cached_tokens_cold"],
                             cold_answers=timings["cached_tokens_cold"] > 0)
            self.directory.asked[number, salt] = True
            self.directory.asked.move_to_end((number, salt))
            if answer != self.world.recorded[number]:
                self.world.fail(f"wrong: prompt {number}, salt {salt}: {answer} and not "
                                f"{self.world.recorded[number]}; {timings}", "wrong")

    def replay(self, pool):
        """Some of what was answered last, and before that: more of it was flushed in time."""
        pairs = list(self.directory.asked)[::-1]
        again = [pair for part, most in ((pairs[:10], 4), (pairs[10:60], 12))
                 for pair in self.draw.sample(part, min(most, len(part)))]
        self.draw.shuffle(again)
        list(pool.map(lambda pair: self.ask(*pair, stop_rule="wait_complete"), again))
        state = wide_model.store_state(self.server)
        damage = {end: count for end, count in state["loads"].items() if end in DAMAGE}
        if state["outage"] != "none" or state["quarantined"] or state["salvaged"] or damage:
            self.world.fail(f"opened badly: {state}", "failed_opens")
        self.world.count(opens=1, unclean=state["unclean_starts"],
                         **{f"load {end}": count for end, count in state["loads"].items()})

    def client(self, seed):
        """Asks until the kill. A new salt makes all blocks of its prompt new ones."""
        draw = random.Random(seed)
        while not self.killed.is_set():
            with self.world.lock:
                old = list(self.directory.asked)[-20:]
            if old and draw.random() < 0.4:
                self.ask(*draw.choice(old))
            else:
                kv = draw.choice([{}, {"ttl_s": 3600}, {"ttl_s": 3600}, {"pin": True}])
                self.ask(draw.randrange(len(self.world.prompts)), f"{draw.getrandbits(48)}", **kv)

    def wait_for(self, reached):
        """Looks until it is reached. True if the server is alive then."""
        end = time.monotonic() + LIFE_S_MAX
        while not reached() and time.monotonic() < end:
            if self.server.process.poll() is not None:
                return False
            time.sleep(0.0005)  # between two looks at another process
        return self.server.process.poll() is None

    def kill(self):
        self.killed.set()
        alive = self.server.process.poll() is None
        self.server.process.send_signal(signal.SIGKILL)
        self.server.process.wait()
        if not alive:
            self.world.fail("the server ended by itself:\n" + self.server.log()[-2000:], "died")

    def run(self):
        kind = self.draw.choice(["at_byte"] * 5 + ["at_answer"] * 3 + ["at_opening"] * 2)
        self.world.count(**{kind: 1})
        # Nothing is waited for with it: it is part of the moment that the seed draws for the kill.
        pause_s = self.draw.choice([0, self.draw.uniform(0, 0.005), self.draw.uniform(0, 0.1)])
        if kind == "at_opening":
            target = self.draw.randrange(2 << 20)
            deadline = time.monotonic() + self.draw.uniform(0, 1)
            self.wait_for(lambda: self.written() >= target or time.monotonic() > deadline)
            time.sleep(pause_s)
            return self.kill()
        self.server.wait_ready()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            try:
                self.replay(pool)
                before, answered = self.written(), self.answers
                clients = [pool.submit(self.client, self.draw.random()) for _ in range(CLIENTS)]
                if kind == "at_byte":
                    target = before + self.draw.randrange(BYTES_MAX)
                    self.wait_for(lambda: self.written() >= target)
                else:
                    target = answered + self.draw.randrange(ANSWERS_MAX)
                    self.wait_for(lambda: self.answers >= target)
                time.sleep(pause_s)
            finally:
                self.kill()
            for client in clients:
                client.result()

    def run_to_the_end(self):
        """A life without a kill: everything is found, and the directory is closed in order."""
        self.server.wait_ready()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            self.replay(pool)
        if code := self.server.terminate():
            self.world.fail(f"exit code {code}:\n{self.server.log()[-2000:]}", "died")


class Directory:
    def __init__(self, path, cap_mb):
        self.path, self.cap_mb = path, cap_mb
        self.asked = collections.OrderedDict()  # (prompt, salt), the last answered one last


class World:
    """What all lives share: the prompts, the right answers, the counts."""

    def __init__(self, options, temporary):
        self.binary, self.seed = pathlib.Path(options.binary).resolve(), options.seed
        self.model = wide_model.write_model(temporary)
        self.temporary = temporary
        self.lock = threading.RLock()
        self.totals = collections.Counter()
        self.kill_number = 0
        self.prompts = make_prompts(options.seed)
        with Server(self.binary, self.model, FLAGS) as plain:
            self.recorded = [wide_model.complete(plain, ids, seed=number)[0]
                             for number, ids in enumerate(self.prompts)]

    def count(self, **counts):
        with self.lock:
            self.totals.update(counts)

    def fail(self, why, kind):
        self.count(**{kind: 1})
        print(f"FAILED at seed {self.seed}, kill {self.kill_number}: {why}", flush=True)

    def inspect(self, directory):
        """Every record, by the tool. A kill may come before there is a database."""
        if not (directory.path / "db" / "CURRENT").exists():
            return
        found = subprocess.run([str(self.binary), "inspect", "kv", str(directory.path), "--verify",
                                "--json"], capture_output=True, text=True)
        records = json.loads(found.stdout)["verified"]["good"] if found.returncode == 0 else 0
        self.count(inspections=1, records=records)
        if found.returncode != 0:
            self.fail(f"inspect: {found.stdout}{found.stderr}", "damaged")
        if (directory.path / "quarantine").exists():
            self.fail("a directory was moved aside", "failed_opens")

    def live(self, run):
        try:
            run()
        except (AssertionError, RuntimeError, OSError, http.client.HTTPException) as error:
            self.fail(f"{error!r}", "died")

    def run(self, kills):
        directory = None
        for self.kill_number in range(kills):
            draw = random.Random(f"{self.seed}/{self.kill_number}")
            if self.kill_number % KILLS_A_DIRECTORY == 0:
                directory = Directory(self.temporary / f"kv-{self.kill_number}",
                                      CAPS_MB[self.kill_number // KILLS_A_DIRECTORY % len(CAPS_MB)])
            self.live(Life(self, directory, draw).run)
            last = (self.kill_number + 1) % KILLS_A_DIRECTORY == 0 or self.kill_number + 1 == kills
            if last or (self.kill_number + 1) % INSPECT_EVERY == 0:
                self.inspect(directory)
            if last:
                self.live(Life(self, directory, draw).run_to_the_end)
                self.inspect(directory)
                if not self.failures():
                    shutil.rmtree(directory.path)
            if self.kill_number % 100 == 99:
                self.report()

    def failures(self):
        return sum(self.totals[kind] for kind in ("wrong", "failed_opens", "damaged", "died"))

    def report(self):
        t = self.totals
        loads = {kind[5:]: count for kind, count in sorted(t.items()) if kind.startswith("load ")}
        print(f"{self.kill_number + 1} kills: {t['at_byte']} at a byte, {t['at_answer']} after answers, "
              f"{t['at_opening']} while opening\n"
              f"  {t['opens']} opens looked at, {t['unclean']} after a kill; {t['failed_opens']} failed\n"
              f"  {t['answers']} answers, {t['cold_answers']} of them with {t['cold_tokens']} tokens from "
              f"the store; {t['wrong']} wrong\n"
              f"  loads of the answers that were asked again, by their ends: {loads}\n"
              f"  {t['inspections']} inspections, {t['records']} good records; {t['damaged']} with "
              f"damage; {t['died']} servers ended by themselves", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", help="where the stores are made; what fails stays there")
    options = parser.parse_args()
    print(f"crash_store: seed {options.seed}", flush=True)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix="outrider-crash-", dir=options.dir))
    world = World(options, temporary)
    begin = time.monotonic()
    world.run(options.kills)
    world.report()
    print(f"  {(time.monotonic() - begin) / options.kills:.2f} s a kill")
    if world.totals["cold_tokens"] == 0:
        print("nothing ever came from the store: nothing was tested")
    if world.failures() or world.totals["cold_tokens"] == 0:
        print(f"what is left: {temporary}")
        return 1
    shutil.rmtree(temporary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
