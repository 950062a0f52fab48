"""`serve --draft`: a draft model changes speed at most, shows itself, and must fit."""

import concurrent.futures
import json
import subprocess
import unittest

from server import ROOT, Server

binary = model = None  # set by run_e2e
OTHER = ROOT / "tests/support/models/tiny-qwen2.gguf"

REQUESTS = [{"prompt": "Ahead of the target " * (1 + i % 3), "max_tokens": 48, "seed": i,
             "temperature": 0 if i % 2 else 0.8, "logprobs": 3, "ignore_eos": True,
             "n": 2 if i % 5 == 0 else 1} for i in range(12)]


def answers(server):
    """Of all requests at once: text and logprobs of each choice, and the timings."""
    def ask(body):
        status, _, text = server.request("POST", "/v1/completions", body)
        assert status == 200, text
        return json.loads(text)
    with concurrent.futures.ThreadPoolExecutor(len(REQUESTS)) as pool:
        found = list(pool.map(ask, REQUESTS))
    return ([[(choice["text"], choice["logprobs"]) for choice in answer["choices"]]
             for answer in found], [answer["timings"] for answer in found])


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
        with Server(binary, model, ["--draft", str(model), "--draft-threads", "1",
                                    "--draft-kv-memory-mb", "64"]) as server:
            self.assertEqual(answers(server)[0], plain)
            self.assertEqual(server.terminate(), 0)

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
