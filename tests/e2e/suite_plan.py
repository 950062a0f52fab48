"""`--kv-kind auto`: the kinds that a server finds for itself, and the plan that it keeps."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from server import Server

binary = model = None  # set by run_e2e

# Of any model's figures: three bits are worse than eight, however little the model cares.
CANDIDATES = "q8_0 q4_0+hadamard q3"


class Plan(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="outrider-e2e-plan-")
        self.addCleanup(self.temporary.cleanup)
        self.directory = pathlib.Path(self.temporary.name) / "plans"

    def auto(self, *flags):
        return ["--kv-kind", "auto", "--kv-candidates", CANDIDATES, "--plan-dir",
                str(self.directory), *flags]

    def run_server(self, flags):
        """What a server answers, the kind that it says it has, and what it logged."""
        with Server(binary, model, flags) as server:
            body = {"prompt": "A plan that was kept is a plan", "max_tokens": 24, "temperature": 1,
                    "seed": 11, "logprobs": 5, "ignore_eos": True}
            status, _, text = server.request("POST", "/v1/completions", body)
            self.assertEqual(status, 200, text)
            answer = json.loads(text)
            choice = answer["choices"][0]
            kind = json.loads(server.request("GET", "/cluster")[2])["kv_kind"]
            self.assertEqual(server.terminate(), 0)
            return ((choice["text"], choice["logprobs"], answer["system_fingerprint"]), kind,
                    server.log())

    def inspect(self, *flags):
        found = subprocess.run([str(binary), "inspect", "plan", str(self.directory), *flags],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(found.returncode, 0, found.stderr)
        return found.stdout

    def gates(self):
        """Gates of which q8_0 stays within and q3 does not, by what this model does."""
        self.run_server(self.auto("--kv-gate-nll", "100", "--kv-gate-ppl", "100",
                                  "--kv-gate-needle-kl", "100"))
        (plan,) = json.loads(self.inspect("--json"))
        kl = {c["kinds"]: c["quality"]["needle_kl"] for c in plan["candidates"]}
        self.assertLess(kl["q8_0"], kl["q3"])
        return ["--kv-gate-nll", "100", "--kv-gate-ppl", "100", "--kv-gate-needle-kl",
                f"{(kl['q8_0'] + kl['q3']) / 2:.9f}"]

    def test_a_plan_is_made_kept_and_made_anew(self):
        gates = self.gates()
        answer, kind, log = self.run_server(self.auto(*gates))
        self.assertIn("measured in", log)
        self.assertRegex(log, r"rejected .*q3 \(needle KL")

        plans = json.loads(self.inspect("--json"))
        self.assertEqual(len(plans), 2, "each request has its own")
        (plan,) = (p for p in plans if p["gates"]["needle_kl"] < 100)
        self.assertEqual(plan["chosen"], kind)
        verdicts = {c["kinds"]: c for c in plan["candidates"]}
        self.assertEqual(set(verdicts), {"fp16", *CANDIDATES.split()})
        self.assertEqual(verdicts["q3"]["verdict"], "poor")
        chosen = verdicts[kind]
        self.assertEqual(chosen["verdict"], "chosen")
        self.assertLessEqual(chosen["quality"]["needle_kl"], plan["gates"]["needle_kl"])
        table = self.inspect()
        self.assertRegex(table, r"(?m)^  q3 .* poor: needle KL [0-9.]+ over")
        self.assertRegex(table, r"(?m)^  %s .* chosen: " % re.escape(kind))

        kept, kept_kind, log = self.run_server(self.auto(*gates))
        self.assertNotIn("measured in", log)
        self.assertIn(str(self.directory), log)
        self.assertEqual((kept, kept_kind), (answer, kind))

        named, named_kind, _ = self.run_server(["--kv-kind", kind])
        self.assertEqual((named, named_kind), (answer, kind), "text, logprobs, fingerprint")
        other, _, _ = self.run_server(["--kv-kind", "q3"])
        self.assertNotEqual(other[1], answer[1], "this prompt tells kinds apart")

        _, _, log = self.run_server(self.auto(*gates, "--kv-memory-mb", "65"))
        self.assertNotIn("measured in", log, "the same kinds fit")
        _, _, log = self.run_server(self.auto(*gates, "--ctx", "256"))
        self.assertIn("measured in", log)
        self.assertEqual(len(json.loads(self.inspect("--json"))), 3)

    def test_kinds_that_cannot_be_are_refused_at_once(self):
        for kind in ("q4_0+hadamar", "k=q4_0,v=q4_0+hadamard"):
            ended = subprocess.run([str(binary), "serve", "--model", str(model), "--http",
                                    "127.0.0.1:0", "--rpc", "off", "--kv-kind", kind],
                                   capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 2)
            self.assertIn("kv-kind", ended.stderr)
