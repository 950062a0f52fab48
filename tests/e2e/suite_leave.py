"""A target that is asked to stop hands its requests over to its twins, with their keys and values."""

import pathlib
import random
import signal
import sys
import tempfile
import unittest

from node import Node, cluster_port
from server import ROOT, Server
from stream import Stream
from suite_node import targets
from wide_model import tokens

sys.path.insert(0, str(ROOT / "tests" / "support"))
import make_tiny_model  # noqa: E402

binary = model = None  # set by run_e2e
FLAGS = ["--ctx", "512", "--threads", "1"]
PROMPT_TOKENS = 300
STREAMS = 6


class Leave(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="outrider-leave-")
        cls.model = pathlib.Path(cls.directory.name) / "wide.gguf"
        cls.model.write_bytes(make_tiny_model.tiny_llama(1, layers=6, ffn=12288, kv_heads=2, head_dim=64))
        draw = random.Random(2627)
        cls.bodies = [{"prompt": tokens(draw, PROMPT_TOKENS), "max_tokens": 200, "ignore_eos": True,
                       "seed": i, "temperature": 0.9 if i % 2 else 0, "logprobs": 2,
                       "n": 2 if i == 0 else 1, "return_token_ids": True,
                       "kv": {"stop_rule": "wait_complete"}}  # whatever computing would take here
                      for i in range(STREAMS)]

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def streams(self, server):
        return [Stream(server, body) for body in self.bodies]

    def plain(self):
        with Server(binary, self.model, FLAGS) as server:
            return [stream.answer() for stream in self.streams(server)]

    def target(self, port, *flags):
        return Node(binary, self.model, port, ["--roles", "target", *FLAGS, *flags])

    def leave(self, server, node, left):
        """More streams have begun than one target was given; the node is asked to stop, and `left` remain."""
        streams = self.streams(server)
        server.wait_until(lambda: sum(stream.begun.is_set() for stream in streams) > STREAMS // 2, "first tokens")
        node.send(signal.SIGTERM)
        answers = [stream.answer() for stream in streams]
        self.assertEqual(node.exit_code(), 0, node.log())
        self.assertRegex(node.log(), r"stopped in [\d.]+ s: leaving [\d.]+, ending the engine .*, ending CAF")
        server.wait_until(lambda: len(targets(server)) == left, "the target to be forgotten")
        return answers

    def test_requests_go_on_elsewhere_with_their_blocks(self):
        plain = self.plain()
        with Server(binary, self.model, ["--roles", "gateway", "--cluster", "127.0.0.1:0"], wait=False) as server:
            port = cluster_port(server)
            with self.target(port) as one, self.target(port) as other:
                server.wait_ready()
                server.wait_until(lambda: len(targets(server)) == 2, "both targets")
                self.assertEqual(self.leave(server, one, 1), plain)
                self.assertRegex(one.log(), r"leaving: \d+ of its requests ", "it had some")
                self.assertRegex(one.log(), r"gave \d+ blocks", "and their blocks")

                def told():
                    return targets(server)[0]["load"]["blocks_taken"] > 0
                server.wait_until(told, "the twin's word")
                self.assertEqual([stream.answer() for stream in self.streams(server)], plain)
            server.terminate()

    def test_all_that_leave_end_what_nobody_takes(self):
        plain = self.plain()
        with Server(binary, self.model, ["--roles", "gateway", "--cluster", "127.0.0.1:0"], wait=False) as server:
            port = cluster_port(server)
            with self.target(port) as one, self.target(port) as other:
                server.wait_ready()
                server.wait_until(lambda: len(targets(server)) == 2, "both targets")
                streams = self.streams(server)
                server.wait_until(lambda: all(stream.begun.is_set() for stream in streams), "first tokens")
                for node in (one, other):
                    node.send(signal.SIGTERM)
                self.assertEqual([stream.answer() for stream in streams], plain)
                for node in (one, other):
                    self.assertEqual(node.exit_code(), 0, node.log())
            server.terminate()

    def test_what_is_sent_to_a_frozen_twin_ends_where_it_was(self):
        plain = self.plain()
        with Server(binary, self.model, ["--roles", "gateway", "--cluster", "127.0.0.1:0"], wait=False) as server:
            port = cluster_port(server)
            with self.target(port) as one, self.target(port) as frozen:
                server.wait_ready()
                server.wait_until(lambda: len(targets(server)) == 2, "both targets")
                streams = self.streams(server)
                server.wait_until(lambda: all(stream.begun.is_set() for stream in streams), "first tokens")
                frozen.send(signal.SIGSTOP)
                one.send(signal.SIGTERM)
                self.assertEqual(one.exit_code(), 0, one.log())
                server.wait_until(lambda: any(not stream.is_alive() for stream in streams), "its answers")
                frozen.send(signal.SIGCONT)
                self.assertEqual([stream.answer() for stream in streams], plain)
            server.terminate()

    def test_a_server_takes_over_what_a_node_hands_over(self):
        plain = self.plain()
        with Server(binary, self.model, [*FLAGS, "--cluster", "127.0.0.1:0"]) as server:
            with self.target(cluster_port(server)) as node:
                server.wait_until(lambda: len(targets(server)) == 2, "the node")
                self.assertEqual(self.leave(server, node, 1), plain)
                self.assertRegex(node.log(), r"gave \d+ blocks")
            self.assertEqual(server.terminate(), 0)

    def test_the_last_target_leaves_without_a_twin(self):
        with Server(binary, self.model, ["--roles", "gateway", "--cluster", "127.0.0.1:0"], wait=False) as server:
            with self.target(cluster_port(server)) as node:
                server.wait_ready()
                node.send(signal.SIGTERM)
                self.assertEqual(node.exit_code(), 0, node.log())
            server.terminate()
