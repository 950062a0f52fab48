"""`outrider node`: a draft model or a target in another process. It may come, go, hang and come back;
answers stay the same and no request fails."""

import concurrent.futures
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from node import Node, Renaming, cluster_port
from server import ROOT, Server
from stream import Stream
from suite_draft import answers

sys.path.insert(0, str(ROOT / "tests" / "support"))
import make_tiny_model  # noqa: E402

binary = model = None  # set by run_e2e
OTHER = ROOT / "tests/support/models/tiny-qwen2.gguf"
# spec-k: drafted whether that pays or not.
DRAFTING = ["--cluster", "127.0.0.1:0", "--spec", "draft", "--spec-k", "4"]


def draft_node(port, model_file=None):
    return Node(binary, model_file or model, port)


def target_node(port, flags):
    return Node(binary, model, port, ["--roles", "target", "--threads", "1", *flags])


def members(server, role):
    listed = json.loads(server.request("GET", "/cluster")[2])["members"]
    return [member for member in listed if member["role"] == role]


def targets(server):
    return members(server, "target")


def drafts(server):
    """Models of the draft members that the router lists."""
    return [member["model"] for member in members(server, "draft")]


def used(server):
    return server.metric("outrider_hints_total", outcome="used")


class NodeSuite(unittest.TestCase):
    def plain(self):
        with Server(binary, model, ["--spec", "off"]) as server:
            return answers(server)[0]

    def expect_hints(self, server, plain, what):
        """Asks until hints were used; all answers are the plain ones."""
        before = used(server)

        def more():
            self.assertEqual(answers(server)[0], plain)
            return used(server) > before
        server.wait_until(more, f"hints of {what}")

    def test_a_draft_of_another_process_comes_goes_and_comes_back(self):
        plain = self.plain()
        with Server(binary, model, DRAFTING) as server:
            port = cluster_port(server)
            self.assertEqual(answers(server)[0], plain)
            self.assertEqual(used(server), 0)
            with draft_node(port) as node:
                self.expect_hints(server, plain, "the first node")
                server.wait_until(lambda: drafts(server), "the draft to be listed")
                told = json.loads(server.request("GET", "/cluster")[2])["drafts"]["model"]
                self.assertEqual([told], drafts(server))
                for member in members(server, "draft"):
                    self.assertLess(member["incarnation"], 2**53, "readers of JSON may round it")
                node.send(signal.SIGKILL)
                self.assertEqual(answers(server)[0], plain)
                server.wait_until(lambda: not drafts(server), "the dead draft to be forgotten")
            with draft_node(port) as node:
                self.expect_hints(server, plain, "the second node")
                node.send(signal.SIGTERM)
                self.assertEqual(node.exit_code(), 0, node.log())
                self.assertEqual(answers(server)[0], plain)
            self.assertEqual(server.terminate(), 0)

    def test_a_draft_that_hangs_is_done_without_and_used_again(self):
        plain = self.plain()
        with Server(binary, model, DRAFTING) as server, draft_node(cluster_port(server)) as node:
            self.expect_hints(server, plain, "the node")
            node.send(signal.SIGSTOP)
            self.assertEqual(answers(server)[0], plain)
            server.wait_until(lambda: not drafts(server), "the silent draft to be forgotten")
            self.assertEqual(answers(server)[0], plain)
            node.send(signal.SIGCONT)
            self.expect_hints(server, plain, "the node that goes on")
            self.assertEqual(server.terminate(), 0)

    def test_a_node_that_does_not_know_a_message_costs_no_answer(self):
        plain = self.plain()
        for word in ("DraftCommits", "DraftOpen"):
            with Server(binary, model, DRAFTING) as server, \
                    Renaming(cluster_port(server), f"schema::{word}", f"schema::{word[:-1]}X") as way, \
                    draft_node(way.port):
                server.wait_until(lambda: drafts(server), "the node")

                def not_understood():
                    self.assertEqual(answers(server)[0], plain)
                    return "was not understood" in server.log()
                server.wait_until(not_understood, "a message that is not understood")
                self.assertEqual(answers(server)[0], plain)
                self.assertEqual(len(targets(server)), 1)
                self.assertEqual(server.terminate(), 0)

    def test_a_node_that_joins_what_is_no_cluster_port_says_so(self):
        with Server(binary, model, DRAFTING) as server:
            for port in (server.rpc_port, server.http_port):
                with draft_node(port) as node:
                    server.wait_until(lambda: "no cluster port" in node.log(), "the node's word")

    def test_a_node_joins_the_server_that_comes_after_it_and_its_successor(self):
        plain = self.plain()
        with socket.socket() as chosen:  # a port that both servers can have
            chosen.bind(("127.0.0.1", 0))
            port = chosen.getsockname()[1]
        flags = ["--cluster", f"127.0.0.1:{port}", *DRAFTING[2:]]
        with draft_node(port) as node:
            for _ in range(2):
                with Server(binary, model, flags) as server:
                    self.expect_hints(server, plain, "the node")
                    self.assertEqual(server.terminate(), 0)
            node.send(signal.SIGINT)
            self.assertEqual(node.exit_code(), 0, node.log())

    def test_a_draft_of_another_tokenizer_is_refused_loudly(self):
        with Server(binary, model, DRAFTING) as server, draft_node(cluster_port(server), OTHER) as node:
            self.assertEqual(node.exit_code(), 1, node.log())
            self.assertIn("tokenizer", node.log())
            self.assertIn("tokenizer", server.log())
            self.assertEqual(drafts(server), [])

    def test_a_draft_joins_a_server_that_has_one_of_its_own(self):
        with tempfile.TemporaryDirectory(prefix="outrider-e2e-node-") as directory:
            small = pathlib.Path(directory) / "small.gguf"
            small.write_bytes(make_tiny_model.tiny_llama(2))
            with Server(binary, model, [*DRAFTING, "--draft", str(small)]) as server:
                with draft_node(cluster_port(server)):
                    server.wait_until(lambda: len(drafts(server)) == 2, "both drafts")
                    self.expect_hints(server, self.plain(), "two drafts")
                self.assertEqual(server.terminate(), 0)
                self.assertNotIn("keeps it from using", server.log())

    def test_a_target_of_another_process_serves_like_the_servers_own(self):
        plain = self.plain()
        flags = ["--ctx", "512"]
        with Server(binary, model, [*flags, "--cluster", "127.0.0.1:0"]) as server:
            with target_node(cluster_port(server), flags) as node:
                server.wait_until(lambda: len(targets(server)) == 2, "the second target")
                self.assertEqual(len({member["fingerprint"] for member in targets(server)}), 1)

                def both_served():
                    self.assertEqual(answers(server)[0], plain)
                    return all(member["load"]["rows_per_s"] > 0 for member in targets(server))
                server.wait_until(both_served, "answers of both")
                node.send(signal.SIGTERM)
                self.assertEqual(node.exit_code(), 0, node.log())
            server.wait_until(lambda: len(targets(server)) == 1, "the target to be forgotten")
            self.assertEqual(answers(server)[0], plain)
            self.assertEqual(server.terminate(), 0)

    def test_a_gateway_serves_with_the_targets_that_join(self):
        plain = self.plain()
        flags = ["--ctx", "512"]
        gateway = Server(binary, model, ["--roles", "gateway", "--cluster", "127.0.0.1:0"], wait=False)
        with gateway:
            port = cluster_port(gateway)
            twice = f"127.0.0.1:{port},localhost:{port}"
            with Node(binary, OTHER, twice, ["--roles", "target", "--threads", "1"]) as other:
                self.assertEqual(other.exit_code(), 1, other.log())
                for log in (other.log(), gateway.log()):
                    self.assertIn('the cluster "tiny-llama"', log)
            with target_node(port, flags):
                gateway.wait_ready()
                with target_node(port, ["--ctx", "256"]) as other:
                    self.assertEqual(other.exit_code(), 1, other.log())
                    self.assertIn("ctx 256, not 512", other.log())
            gateway.wait_until(lambda: not targets(gateway), "the two that left to be forgotten")
            with target_node(port, flags) as first, target_node(port, flags) as second:
                gateway.wait_until(lambda: len(targets(gateway)) == 2, "both targets")
                self.assertEqual(gateway.metric("outrider_cluster_members", role="target"), 2)
                self.assertEqual(gateway.metric("outrider_cluster_transitions_total", event="joined"), 3)
                refused = gateway.metric("outrider_cluster_transitions_total", event="refused")
                self.assertGreaterEqual(refused, 3, "the first one at each of its gates")
                self.assertEqual(gateway.request("GET", "/ready")[0], 200)
                self.assertEqual(answers(gateway)[0], plain)
                first.send(signal.SIGKILL)
                self.assertEqual(answers(gateway)[0], plain)
                second.send(signal.SIGTERM)
                self.assertEqual(second.exit_code(), 0, second.log())
            gateway.wait_until(lambda: gateway.request("GET", "/ready")[0] == 503, "that no target is left")
            for event in ("gone", "left", "leaving"):
                self.assertGreaterEqual(gateway.metric("outrider_cluster_transitions_total", event=event), 1, event)
            status, _, text = gateway.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})
            self.assertEqual(status, 503, text)
            status, _, text = gateway.request("POST", "/reset_prefix_cache", {})
            self.assertEqual(status, 400, text)
            with target_node(port, ["--ctx", "256"]) as node:
                self.assertEqual(node.exit_code(), 1, node.log())
            with target_node(port, flags):
                gateway.wait_until(lambda: gateway.request("GET", "/ready")[0] == 200, "a new target")
                self.assertEqual(answers(gateway)[0], plain)
                self.assertEqual(gateway.terminate(), 0)

    def test_a_gateway_shows_who_is_there_before_its_first_target(self):
        with socket.create_server(("127.0.0.1", 0)) as held:
            http_port = held.getsockname()[1]
        flags = ["--roles", "gateway", "--cluster", "127.0.0.1:0"]
        with Server(binary, model, flags, wait=False, http_port=http_port) as gateway:
            port = cluster_port(gateway)
            with draft_node(port), Node(binary, OTHER, port, ["--roles", "target", "--threads", "1"]) as other:
                self.assertEqual(other.exit_code(), 1, other.log())
                gateway.wait_until(lambda: drafts(gateway), "the draft")
                self.assertEqual(gateway.request("GET", "/ready")[0], 503)
                self.assertEqual(gateway.metric("outrider_cluster_members", role="draft"), 1)
                self.assertEqual(gateway.metric("outrider_cluster_members", role="target"), 0)
                gateway.wait_until(lambda: gateway.metric("outrider_cluster_transitions_total",
                                                          event="refused") == 1, "the refusal")
                gateway.process.send_signal(signal.SIGTERM)
                self.assertEqual(gateway.exit_code(), 0, gateway.log())

    def test_requests_by_rejection_outlive_their_target(self):
        # What a twin draws next may be any token, but no request may fail for that.
        flags = ["--ctx", "512", "--spec", "draft", "--spec-k", "2"]
        with tempfile.TemporaryDirectory() as directory, \
                Server(binary, model, ["--roles", "gateway", "--cluster", "127.0.0.1:0"], wait=False) as gateway:
            port = cluster_port(gateway)
            other = pathlib.Path(directory) / "other.gguf"
            other.write_bytes(make_tiny_model.tiny_llama(2))
            with draft_node(port, other), target_node(port, flags) as one, target_node(port, flags) as two:
                gateway.wait_ready()
                gateway.wait_until(lambda: len(targets(gateway)) == 2 and drafts(gateway), "all three")
                for node in (one, two):
                    body = {"prompt": "Ahead of the target", "max_tokens": 400, "temperature": 1,
                            "ignore_eos": True, "return_token_ids": True, "logprobs": 1,
                            "speculation": {"method": "reject_sampling"}}
                    streams = [Stream(gateway, {**body, "seed": seed}) for seed in range(16)]
                    for stream in streams:
                        stream.begun.wait()
                    node.send(signal.SIGKILL)
                    for stream in streams:
                        ids, _, _, reasons = stream.answer()[0]
                        self.assertEqual((len(ids), reasons), (400, ["length"]))
                    if node is one:
                        again = target_node(port, flags)
                        self.addCleanup(again.end)
                        gateway.wait_until(lambda: len(targets(gateway)) == 2, "a third target")
                # What it drafted for the two that were killed nobody told it to end.
                gateway.wait_until(lambda: members(gateway, "draft")[0]["load"]["draft_runs"] == 0,
                                   "the draft to forget the texts of targets that are dead")
                self.assertEqual(gateway.terminate(), 0)

    def test_a_gateway_tells_what_came_of_its_targets_drafts(self):
        flags = ["--ctx", "512", "--spec", "ngram", "--spec-k", "4"]
        ask = {"prompt": "one two three " * 8, "max_tokens": 64, "temperature": 0, "ignore_eos": True}
        with Server(binary, model, ["--roles", "gateway", "--cluster", "127.0.0.1:0"], wait=False) as gateway:
            port = cluster_port(gateway)

            def told():
                return [int(gateway.metric(f"vllm:spec_decode_num_{what}_total"))
                        for what in ("drafts", "draft_tokens", "accepted_tokens")]

            totals = [0, 0, 0]
            for target in range(2):  # one after the other: what the first one did stays counted
                with target_node(port, flags) as node:
                    gateway.wait_ready()
                    gateway.wait_until(lambda: len(targets(gateway)) == 1, "the target")
                    timings = json.loads(gateway.request("POST", "/v1/completions", ask)[2])["timings"]
                    self.assertGreater(timings["draft_n"], 0)
                    before = totals
                    gateway.wait_until(lambda: told()[1] == before[1] + timings["draft_n"], f"counts {target}")
                    totals = told()
                    drafts_view = json.loads(gateway.request("GET", "/cluster")[2])["drafts"]
                    self.assertEqual([drafts_view[key] for key in ("drafts", "draft_tokens", "accepted_tokens")],
                                     totals)
                    self.assertEqual(totals[2], before[2] + timings["draft_n_accepted"])
                    node.send(signal.SIGKILL)
                gateway.wait_until(lambda: not targets(gateway), "the dead target to be forgotten")
                self.assertEqual(told(), totals)
            self.assertEqual(gateway.terminate(), 0)

    def test_two_gateways_share_their_targets_and_one_outlives_the_other(self):
        plain = self.plain()
        flags = ["--roles", "gateway", "--cluster"]
        with Server(binary, model, [*flags, "127.0.0.1:0"], wait=False) as one, \
                Server(binary, model, [*flags, "127.0.0.1:0"], wait=False) as other:
            ports = [cluster_port(one), cluster_port(other)]
            both = f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
            with target_node(both, ["--ctx", "512"]) as first, target_node(both, ["--ctx", "512"]), \
                    Node(binary, model, both):
                for gateway in (one, other):
                    gateway.wait_ready()
                    gateway.wait_until(lambda: len(members(gateway, "target")) == 2, "both targets")
                    gateway.wait_until(lambda: drafts(gateway), "the draft")
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    asked = [pool.submit(answers, gateway) for gateway in (one, other)]
                for answer in asked:
                    self.assertEqual(answer.result()[0], plain)
                one.process.kill()
                self.assertEqual(answers(other)[0], plain)
                first.send(signal.SIGKILL)
                self.assertEqual(answers(other)[0], plain)
                with Server(binary, model, [*flags, f"127.0.0.1:{ports[0]}"], wait=False) as again:
                    again.wait_ready()
                    self.assertEqual(answers(again)[0], plain)
                    self.assertEqual(again.terminate(), 0)
                self.assertEqual(other.terminate(), 0)

    def test_a_target_that_would_answer_otherwise_is_refused_loudly(self):
        with Server(binary, model, ["--ctx", "512", "--cluster", "127.0.0.1:0"]) as server:
            port = cluster_port(server)
            for flags, word in ((["--ctx", "256"], "ctx 256, not 512"),
                                (["--ctx", "512", "--kv-kind", "q8_0"], "kv-kind of values q8_0, not fp16"),
                                (["--ctx", "512", "--model-name", "mine"], "--model-name")):
                with target_node(port, flags) as node:
                    self.assertEqual(node.exit_code(), 1, node.log())
                    self.assertIn(word, node.log())
            server.wait_until(lambda: len(targets(server)) == 1, "its own target alone")
            self.assertEqual(server.terminate(), 0)

    def test_wrong_usage_is_said_before_anything_is_loaded(self):
        for flags, word in (([], "join"), (["--join", "here"], "HOST:PORT"),
                            (["--join", ":8090"], "host"), (["--join", "a:1", "--roles", "x"], "roles")):
            done = subprocess.run([str(binary), "node", "--model", str(model), *flags],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            done = subprocess.run([str(binary), "serve", "--model", str(model), "--http", "127.0.0.1:0",
                                   "--rpc", "off", "--cluster", address],
                                  capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("--cluster HOST:PORT", done.stderr)
