"""`outrider node`: a draft model in another process. It may come, go, hang and come back; answers stay
the same and no request fails."""

import json
import re
import signal
import socket
import subprocess
import tempfile
import unittest

from server import ROOT, Server
from suite_draft import answers

binary = model = None  # set by run_e2e
OTHER = ROOT / "tests/support/models/tiny-qwen2.gguf"
# spec-k: drafted whether that pays or not.
DRAFTING = ["--cluster", "127.0.0.1:0", "--spec", "draft", "--spec-k", "4"]


class Node:
    """`outrider node`, one thread, ended with the test."""

    def __init__(self, port, model_file=None):
        self.log_file = tempfile.NamedTemporaryFile("w+", prefix="outrider-node-", suffix=".log")
        command = [str(binary), "node", "--join", f"127.0.0.1:{port}", "--model",
                   str(model_file or model), "--threads", "1", "--kv-memory-mb", "64"]
        self.process = subprocess.Popen(command, stdout=self.log_file, stderr=self.log_file, cwd=ROOT)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def log(self):
        with open(self.log_file.name) as file:
            return file.read()

    def send(self, number):
        self.process.send_signal(number)


def cluster_port(server):
    found = []

    def listens():
        found[:] = re.findall(r"nodes join at 127\.0\.0\.1:(\d+)", server.log())
        return bool(found)
    server.wait_until(listens, "the cluster address")
    return int(found[0])


def drafts(server):
    """Models of the draft members that the router lists."""
    members = json.loads(server.request("GET", "/cluster")[2])["members"]
    return [member["model"] for member in members if member["role"] == "draft"]


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
            with Node(port) as node:
                self.expect_hints(server, plain, "the first node")
                server.wait_until(lambda: drafts(server), "the draft to be listed")
                told = json.loads(server.request("GET", "/cluster")[2])["drafts"]["model"]
                self.assertEqual([told], drafts(server))
                node.send(signal.SIGKILL)
                self.assertEqual(answers(server)[0], plain)
                server.wait_until(lambda: not drafts(server), "the dead draft to be forgotten")
            with Node(port) as node:
                self.expect_hints(server, plain, "the second node")
                node.send(signal.SIGTERM)
                self.assertEqual(node.process.wait(60), 0, node.log())
                self.assertEqual(answers(server)[0], plain)
            self.assertEqual(server.terminate(), 0)

    def test_a_draft_that_hangs_is_done_without_and_used_again(self):
        plain = self.plain()
        with Server(binary, model, DRAFTING) as server, Node(cluster_port(server)) as node:
            self.expect_hints(server, plain, "the node")
            node.send(signal.SIGSTOP)
            self.assertEqual(answers(server)[0], plain)
            server.wait_until(lambda: not drafts(server), "the silent draft to be forgotten")
            self.assertEqual(answers(server)[0], plain)
            node.send(signal.SIGCONT)
            self.expect_hints(server, plain, "the node that goes on")
            self.assertEqual(server.terminate(), 0)

    def test_a_node_joins_the_server_that_comes_after_it_and_its_successor(self):
        plain = self.plain()
        with socket.socket() as chosen:  # a port that both servers can have
            chosen.bind(("127.0.0.1", 0))
            port = chosen.getsockname()[1]
        flags = ["--cluster", f"127.0.0.1:{port}", *DRAFTING[2:]]
        with Node(port) as node:
            for _ in range(2):
                with Server(binary, model, flags) as server:
                    self.expect_hints(server, plain, "the node")
                    self.assertEqual(server.terminate(), 0)
            node.send(signal.SIGINT)
            self.assertEqual(node.process.wait(60), 0, node.log())

    def test_a_draft_of_another_tokenizer_is_refused_loudly(self):
        with Server(binary, model, DRAFTING) as server, Node(cluster_port(server), OTHER) as node:
            self.assertEqual(node.process.wait(60), 1, node.log())
            self.assertIn("tokenizer", node.log())
            self.assertIn("tokenizer", server.log())
            self.assertEqual(drafts(server), [])

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
