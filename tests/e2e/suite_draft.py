"""`serve --draft`: a draft model changes speed at most, shows itself, and must fit."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from server import ROOT, Server

sys.path.insert(0, str(ROOT / "tests" / "support"))
import make_tiny_model  # noqa: E402

binary = model = None  # set by run_e2e
OTHER = ROOT / "tests/support/models/tiny-qwen2.gguf"

REQUESTS = [{"prompt": "Ahead of the target " * (1 + i % 3), "max_tokens": 48, "seed": i,
             "temperature": 0 if i % 2 else 0.8, "logprobs": 3, "ignore_eos": True,
             "n": 2 if i % 5 == 0 else 1} for i in range(12)]
LONG = {"prompt": "Ahead of the target ", "max_tokens": 400, "ignore_eos": True}


def ask_all(server, bodies):
    """All at once."""
    def ask(body):
        status, _, text = server.request("POST", "/v1/completions", body)
        assert status == 200, text
        return json.loads(text)
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(ask, bodies))


def contents(found):
    """Text and logprobs of each choice."""
    return [[(choice["text"], choice["logprobs"]) for choice in answer["choices"]] for answer in found]


def answers(server):
    """Of all requests at once: text and logprobs of each choice, and the timings."""
    found = ask_all(server, REQUESTS)
    return contents(found), [answer["timings"] for answer in found]


class Draft(unittest.TestCase):
    def test_answers_are_the_same_and_the_drafts_are_told(self):
        with Server(binary, model, ["--spec", "off"]) as server:
            plain, _ = answers(server)
        # Each model drafts best for itself; spec-k has it draft whether that pays or not.
        flags = ["--draft", str(model), "--spec", "draft", "--spec-k", "4"]
        with Server(binary, model, flags) as server:
            for _ in range(20):
                drafted, timings = answers(server)
                self.assertEqual(drafted, plain)
                if sum(timing["draft_n_accepted"] for timing in timings) > 0:
                    break
            self.assertGreater(sum(timing["draft_n_accepted"] for timing in timings), 0)
            self.assertGreater(server.metric("outrider_hints_total", outcome="used"), 0)
            server.wait_idle()

            def both_rest():  # a member is listed from its first report on
                cluster = json.loads(server.request("GET", "/cluster")[2])
                members = {member["role"]: member for member in cluster["members"]}
                return (members.keys() == {"target", "draft"}
                        and members["draft"]["model"] == cluster["drafts"]["model"]
                        and members["target"]["load"]["drafting"]
                        and all(member["load"]["draft_runs"] == 0 for member in members.values()))
            server.wait_until(both_rest, "both members and the runs' end")
            self.assertEqual(server.terminate(), 0)

    def test_a_draft_model_that_must_prove_itself_changes_no_answer(self):
        with Server(binary, model, ["--spec", "off"]) as server:
            plain, _ = answers(server)
        # It competes with its target, so it is only tried now and then; once it has hinted at
        # something, nothing is said of whether that pays.
        with Server(binary, model, ["--draft", str(model), "--draft-threads", "1", "--spec", "draft",
                                    "--draft-kv-memory-mb", "64"]) as server:
            for _ in range(100):
                ask_all(server, [LONG])
                self.assertEqual(answers(server)[0], plain)
                if server.metric("outrider_hints_total") > 0:
                    break
            self.assertGreater(server.metric("outrider_hints_total"), 0)
            self.assertEqual(server.terminate(), 0)

    def test_the_draft_model_answers_by_its_name_as_a_server_of_its_own_does(self):
        with tempfile.TemporaryDirectory(prefix="outrider-e2e-draft-") as directory:
            large, small = (pathlib.Path(directory) / f"{name}.gguf" for name in ("large", "small"))
            large.write_bytes(make_tiny_model.tiny_llama(1))
            small.write_bytes(make_tiny_model.tiny_llama(2))
            of_small = [{**body, "model": "small"} for body in REQUESTS]
            alone = {}
            for name, path in (("large", large), ("small", small)):
                with Server(binary, path, ["--spec", "off"]) as server:
                    alone[name] = ask_all(server, REQUESTS)
            self.assertNotEqual(contents(alone["large"]), contents(alone["small"]))
            flags = ["--draft", str(small), "--spec", "draft", "--spec-k", "4"]
            with Server(binary, large, flags) as server:
                for _ in range(20):
                    found = ask_all(server, REQUESTS + of_small)
                    for name, part in (("large", found[:len(REQUESTS)]),
                                       ("small", found[len(REQUESTS):])):
                        self.assertEqual(contents(part), contents(alone[name]))
                        self.assertEqual({(answer["model"], answer["system_fingerprint"])
                                          for answer in part},
                                         {(name, alone[name][0]["system_fingerprint"])})
                    ask_all(server, [LONG])  # nobody asks for the draft model itself meanwhile
                    if server.metric("vllm:spec_decode_num_draft_tokens_total") > 0:
                        break
                self.assertGreater(server.metric("vllm:spec_decode_num_draft_tokens_total"), 0)
                self.check_names(server)
                server.wait_idle()
                self.assertEqual(server.terminate(), 0)

    def check_names(self, server):
        def get(path, body=None):
            return json.loads(server.request("POST" if body else "GET", path, body)[2])
        self.assertEqual([entry["id"] for entry in get("/v1/models")["data"]], ["large", "small"])
        self.assertEqual(get("/v1/models/small")["id"], "small")
        self.assertEqual(get("/tokenize", {"prompt": "a b"}),
                         get("/tokenize", {"prompt": "a b", "model": "small"}))
        chat = {"messages": [{"role": "user", "content": "hi"}], "model": "small", "max_tokens": 3}
        self.assertEqual(get("/v1/chat/completions", chat)["model"], "small")
        self.assertEqual(server.request("POST", "/v1/completions",
                                        {"prompt": "a", "model": "medium"})[0], 404)

        def all_are_members():  # a member is listed from its first report on
            listed = sorted((member["role"], member["model"]) for member in get("/cluster")["members"])
            return listed == [("draft", "small"), ("target", "large"), ("target", "small")]
        server.wait_until(all_are_members, "three members")

    def test_a_draft_model_that_does_not_fit_is_refused_before_anything_starts(self):
        for command, code in ((["serve", "--http", "127.0.0.1:0"], 2), (["config", "check"], 1)):
            for draft, word in ((OTHER, "tokenizer"), ("no-such-model", "no-such-model"),
                                (ROOT / "README.md", "draft")):
                done = subprocess.run([str(binary), *command, "--model", str(model), "--draft",
                                       str(draft)], capture_output=True, text=True, timeout=60)
                said = done.stdout + done.stderr
                self.assertEqual(done.returncode, code, said)
                self.assertIn("draft: ", said)
                self.assertIn(word, said)
