"""KV blocks that outlive the process: each test runs servers of its own over one directory.

Needs a model whose prompts are slower to compute than to read: the demo model.
"""

import json
import pathlib
import random
import signal
import subprocess
import tempfile
import unittest

from server import Server

binary = model = None  # set by run_e2e

BLOCK = 16
PROMPT_TOKENS = 1000
FULL_BLOCKS = (PROMPT_TOKENS - 1) // BLOCK  # the last token is always computed


def prompt(seed):
    draw = random.Random(seed)
    return [draw.randrange(100, 30000) for _ in range(PROMPT_TOKENS)]


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


class Store(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="outrider-e2e-store-")
        self.addCleanup(self.temporary.cleanup)
        self.directory = pathlib.Path(self.temporary.name) / "kv"

    def serve(self, *flags):
        return Server(binary, model, ["--ctx", "2048", "--store-dir", str(self.directory), *flags])

    def ask(self, server, ids, key=None, **more):
        body = {"prompt": ids, "max_tokens": 8, "temperature": 1, "seed": 7, "logprobs": 3, **more}
        status, _, text = server.request("POST", "/v1/completions", body, bearer(key))
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        choice = answer["choices"][0]
        return (choice["text"], choice["logprobs"]), answer["timings"]

    def store(self, server, ids, **more):
        """Asks twice (a second use is worth a write) and waits until the blocks are durable."""
        answer, _ = self.ask(server, ids, **more)
        again, timings = self.ask(server, ids, **more)
        self.assertEqual(again, answer)
        self.assertEqual(timings["cached_tokens_device"], FULL_BLOCKS * BLOCK)
        server.wait_until(lambda: server.metric("outrider_kv_store_blocks") >= FULL_BLOCKS,
                          "durable blocks")
        return answer

    def check_hit(self, server, ids, answer, **more):
        again, timings = self.ask(server, ids, **more)
        self.assertEqual(again, answer, "text and logprobs of a run without the store")
        self.assertEqual(timings["cached_tokens_cold"], FULL_BLOCKS * BLOCK)
        self.assertEqual(timings["cached_tokens_device"], 0)

    def check_miss(self, server, ids, answer, **more):
        again, timings = self.ask(server, ids, **more)
        self.assertEqual(again, answer)
        self.assertEqual(timings["cached_tokens_cold"], 0)

    def test_blocks_survive_a_stop_and_a_kill(self):
        ids = prompt(1)
        with Server(binary, model, ["--ctx", "2048"]) as plain:
            answer, timings = self.ask(plain, ids)
            self.assertEqual(timings["cached_tokens_cold"], 0)
        with self.serve() as server:
            self.assertEqual(self.store(server, ids), answer)
            self.assertEqual(server.terminate(), 0)
        with self.serve() as server:
            self.check_hit(server, ids, answer)
            self.assertEqual(self.ask(server, ids)[1]["cached_tokens_device"],
                             FULL_BLOCKS * BLOCK, "it is in the pool now")
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        with self.serve() as server:
            self.check_hit(server, ids, answer)
            store = json.loads(server.request("GET", "/cluster")[2])["kv_store"]
            self.assertEqual(store["unclean_starts"], 1)
            self.assertEqual(store["outage"], "none")
            self.assertEqual(server.terminate(), 0)
        found = subprocess.run([str(binary), "inspect", "kv", str(self.directory), "--verify",
                                "--json"], capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stderr)

    def test_other_salts_secrets_and_kinds_find_nothing(self):
        ids = prompt(2)
        with self.serve() as server:
            answer = self.store(server, ids, cache_salt="a")
            server.terminate()
        secret = pathlib.Path(self.temporary.name) / "secret"
        secret.write_text("sixteen bytes at least")
        with self.serve() as server:
            self.check_miss(server, ids, answer)
            self.check_miss(server, ids, answer, cache_salt="b")
            self.check_hit(server, ids, answer, cache_salt="a")
            server.terminate()
        with self.serve("--cluster-secret-file", str(secret)) as server:
            self.check_miss(server, ids, answer, cache_salt="a")
            server.terminate()
        with self.serve("--kv-kind", "fp32") as server:
            self.assertEqual(self.ask(server, ids, cache_salt="a")[1]["cached_tokens_cold"], 0)
            server.terminate()

    def test_damaged_files_cost_time_and_nothing_else(self):
        ids = prompt(3)
        with self.serve() as server:
            answer = self.store(server, ids)
            server.terminate()
        files = sorted((self.directory / "db").glob("*.sst"), key=lambda file: file.stat().st_size)
        largest = bytearray(files[-1].read_bytes())
        draw = random.Random(4)
        for _ in range(20):
            largest[draw.randrange(len(largest))] ^= 1 << draw.randrange(8)
        files[-1].write_bytes(largest)
        with self.serve() as server:
            again, timings = self.ask(server, ids)
            self.assertEqual(again, answer)
            self.assertLess(timings["cached_tokens_cold"], FULL_BLOCKS * BLOCK)
            lost = (server.metric("outrider_kv_store_loads_total", end="corrupt") +
                    server.metric("outrider_kv_store_loads_total", end="io_error") +
                    server.metric("outrider_kv_store_salvaged_total") +
                    server.metric("outrider_kv_store_quarantined_total"))
            self.assertGreaterEqual(lost, 1, "counted by reason")
            server.terminate()

    def test_a_request_may_ask_to_be_kept(self):
        ids = prompt(5)
        with self.serve() as server:
            answer, _ = self.ask(server, ids, kv={"pin": True, "ttl_s": 3600})
            server.wait_until(lambda: server.metric("outrider_kv_store_blocks") >= FULL_BLOCKS,
                              "durable blocks")
            self.assertGreater(server.metric("outrider_kv_store_pinned_bytes"), 0)
            server.terminate()
        with self.serve() as server:
            self.check_hit(server, ids, answer, kv={"stop_rule": "wait_complete"})
            server.terminate()

    def test_memory_of_the_host_has_what_the_pool_gives_up(self):
        """A GPU has it unless told otherwise; here, a pool that one prompt fills."""
        prompts = [prompt(seed) for seed in (11, 12, 13)]
        flags = ["--ctx", "1200", "--kv-memory-mb", "30"]
        with Server(binary, model, flags) as plain:
            answers = [self.ask(plain, ids)[0] for ids in prompts]
            self.assertEqual(self.ask(plain, prompts[0])[1]["cached_tokens_device"], 0)
        with Server(binary, model, [*flags, "--kv-host-mb", "80"]) as server:
            for i, (ids, answer) in enumerate(zip(prompts, answers)):
                self.assertEqual(self.ask(server, ids)[0], answer)
                server.wait_until(
                    lambda: server.metric("outrider_kv_host_blocks") >= (i + 1) * FULL_BLOCKS,
                    "blocks in memory of the host")
            for ids, answer in zip(prompts, answers):
                again, timings = self.ask(server, ids)
                self.assertEqual(again, answer)
                self.assertEqual(timings["cached_tokens_warm"], FULL_BLOCKS * BLOCK)
                self.assertEqual(timings["cached_tokens_device"], 0)
            self.assertEqual(server.metric("outrider_prefix_cache_hits_warm_total"),
                             3 * FULL_BLOCKS * BLOCK)
            self.assertEqual(server.metric("outrider_kv_tier_lost_total"), 0)
            self.reset(server, None)
            self.assertEqual(server.metric("outrider_kv_host_blocks"), 0)
            self.assertEqual(self.ask(server, prompts[0])[1]["cached_tokens_warm"], 0)

    def test_the_store_takes_from_the_hosts_memory(self):
        ids = prompt(14)
        with self.serve("--kv-host-mb", "80") as server:
            answer = self.store(server, ids)
            self.assertGreaterEqual(server.metric("outrider_kv_host_blocks"), FULL_BLOCKS)
            server.terminate()
        with self.serve("--kv-host-mb", "80") as server:
            self.check_hit(server, ids, answer)
            server.terminate()

    def reset(self, server, key, body=None):
        status, _, text = server.request("POST", "/reset_prefix_cache", body, bearer(key))
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def test_a_reset_forgets_a_tenants_blocks_and_nobody_elses(self):
        ids = prompt(6)
        keys = pathlib.Path(self.temporary.name) / "keys"
        keys.write_text("ann:secret-ann\nbob:secret-bob\nops:secret-ops\n")
        with self.serve("--api-key-file", str(keys), "--admin-tenant", "ops") as server:
            answer = self.store(server, ids, key="secret-ann")
            self.store(server, ids, key="secret-bob")
            server.wait_until(lambda: server.metric("outrider_kv_store_blocks") >= 2 * FULL_BLOCKS,
                              "durable blocks of both")
            done = self.reset(server, "secret-ann", {"cold": True})
            self.assertGreaterEqual(done["blocks"], FULL_BLOCKS)
            self.assertEqual(done["blocks_in_use"], 0)
            self.assertGreaterEqual(done["cold_blocks"], FULL_BLOCKS)
            again, timings = self.ask(server, ids, key="secret-ann")
            self.assertEqual(again, answer)
            self.assertEqual(timings["cached_tokens_device"] + timings["cached_tokens_cold"], 0)
            _, timings = self.ask(server, ids, key="secret-bob")
            self.assertEqual(timings["cached_tokens_device"], FULL_BLOCKS * BLOCK, "another's")
            done = self.reset(server, "secret-ops")
            self.assertGreaterEqual(done["blocks"], 2 * FULL_BLOCKS, "of all")
            self.assertNotIn("cold_blocks", done)
            self.check_hit(server, ids, answer, key="secret-bob")
            self.reset(server, "secret-bob", {"cold": True})
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        with self.serve("--api-key-file", str(keys)) as server:
            self.check_miss(server, ids, answer, key="secret-bob")
            server.terminate()

    def test_a_directory_that_cannot_be_made_is_refused_at_once(self):
        self.directory.write_text("a file")
        ended = subprocess.run([str(binary), "serve", "--model", str(model), "--http",
                                "127.0.0.1:0", "--rpc", "off", "--store-dir",
                                str(self.directory)], capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("store-dir", ended.stderr)
        ended = subprocess.run([str(binary), "serve", "--model", str(model), "--http",
                                "127.0.0.1:0", "--rpc", "off", "--prefix-caching", "off",
                                "--store-dir", str(self.directory)], capture_output=True, text=True,
                               timeout=60)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("prefix-caching", ended.stderr)
