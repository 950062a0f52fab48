"""`outrider bench` and `outrider load`: what they print, never how fast."""

import http.server
import json
import math
import statistics
import subprocess
import threading
import unittest

from server import ROOT, Server

TINY = ROOT / "tests/support/models/tiny-llama.gguf"
server = None  # set by run_e2e, as are these
binary = model = None


def printed(*arguments, code=0):
    """What a command prints with --json."""
    done = subprocess.run([str(binary), *arguments, "--json"], capture_output=True, text=True,
                          timeout=300)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def lines(*arguments, code=0):
    return [json.loads(line) for line in printed(*arguments, code=code).splitlines()]


class BenchSuite(unittest.TestCase):
    def test_every_test_has_its_name_and_its_limits(self):
        rows = json.loads(printed("bench", "--model", str(model), "--prompt", "48", "--gen", "8",
                                  "--depth", "0,32", "--batch", "1,3", "--repetitions", "2"))
        tensors = json.loads(printed("inspect", "model", str(model), "--json"))["tensors"]
        parameters = sum(math.prod(tensor["shape"]) for tensor in tensors)
        self.assertEqual([row["test"] for row in rows],
                         ["pp48", "pp48@32", "tg8", "tg8@32", "tg8x3", "tg8x3@32"])
        for row in rows:
            self.assertEqual(row["model"], str(model))
            self.assertEqual(row["rows"], row["batch"] if row["gen"] else 48)
            self.assertIn(row["limit"], ("bandwidth", "compute") if row["gen"] else ("compute",))
            self.assertEqual(row["share_of_limit"],
                             row["share_of_plain_read" if row["limit"] == "bandwidth" else
                                 "share_of_int16_dot"])
            self.assertEqual(row["repetitions"], 2)
            self.assertEqual(row["steps"], 8 if row["gen"] else 1)
            for field in ("tokens_per_s", "ms_per_step", "operations_per_s",
                          "int16_dot_operations_per_s", "share_of_int16_dot",
                          "int8_dot_operations_per_s", "share_of_int8_dot", "load_s",
                          "resident_bytes_after_load", "weight_file_bytes", "threads"):
                self.assertGreater(row[field], 0, f"{row['test']}: {field}")
            for field in ("step_bytes", "bytes_per_s", "plain_read_bytes_per_s",
                          "share_of_plain_read"):
                self.assertEqual(row.get(field, 0) > 0, row["gen"] > 0, f"{row['test']}: {field}")
            self.assertTrue(row["cpu"] and row["backend"] and row["version"])
            self.assertEqual((row["quantisation"], row["parameters"]), ("Q4_1", parameters))
            self.assertRegex(row["started"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            samples = row["samples_tokens_per_s"]
            self.assertEqual(len(samples), 2)
            self.assertEqual((min(samples), max(samples)),
                             (row["min_tokens_per_s"], row["max_tokens_per_s"]))
            self.assertAlmostEqual(row["stddev_tokens_per_s"], statistics.stdev(samples), 5)

    def test_the_table_has_a_line_for_each_test(self):
        done = subprocess.run([str(binary), "bench", "--model", str(model), "--prompt", "16", "--gen",
                               "4", "--repetitions", "1"], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("pp16 ", "tg4 ", "least..most", "of a read", "of int16"):
            self.assertIn(name, done.stdout)

    def test_what_does_not_fit_the_context_is_said(self):
        done = subprocess.run([str(binary), "bench", "--model", str(model), "--depth", "1000000"],
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the model's context is", done.stderr)
        rows = json.loads(printed("bench", "--model", str(model), "--prompt", "8", "--gen", "0",
                                  "--depth", "0,1000000", "--repetitions", "1", code=1))
        self.assertEqual([row["test"] for row in rows], ["pp8"])


class LoadSuite(unittest.TestCase):
    SHAPE = ("--isl", "12", "--osl", "6", "--vocab", "200")

    def check(self, row, requests):
        self.assertEqual(row["errors"], {})
        self.assertEqual(row["requests"], requests)
        self.assertEqual(row["completed"], requests)
        self.assertEqual(row["prompt_tokens"], 12 * requests)
        self.assertEqual(row["output_tokens"], 6 * requests)
        self.assertEqual((row["prompt_tokens_mean"], row["output_tokens_mean"]), (12, 6))
        self.assertIsNone(row["mismatch"])
        self.assertIsNone(row["rate" if row["concurrency"] else "concurrency"])
        self.assertTrue(row["ignore_eos"])
        for field in ("duration_s", "requests_per_s", "output_tokens_per_s"):
            self.assertGreater(row[field], 0, field)
        for field in ("ttft_ms", "e2e_ms", "tpot_ms", "late_ms"):
            self.assertEqual(row[field]["count"], requests, field)
            self.assertLessEqual(row[field]["p50"], row[field]["p99"], field)
            self.assertLessEqual(row[field]["p99"], row[field]["max"], field)
        for field in ("goodput_per_s", "client_running", "client_waiting"):
            self.assertGreaterEqual(row[field], 0, field)
        self.assertLessEqual(row["goodput_per_s"], row["requests_per_s"])

    def test_closed_loops_complete_every_request(self):
        rows = lines("load", "--url", server.url, "--concurrency", "1,4", "--requests", "9",
                     *self.SHAPE)
        self.assertEqual([row["load"] for row in rows], ["1 stream", "4 streams"])
        for row in rows:
            self.check(row, 9)

    def test_an_open_loop_completes_every_request(self):
        rows = lines("load", "--url", server.url, "--rate", "200", "--requests", "20", *self.SHAPE)
        self.assertEqual([row["rate"] for row in rows], [200])
        self.check(rows[0], 20)

    def test_requests_reach_the_server_as_asked(self):
        before = server.metric("vllm:prompt_tokens_total")
        lines("load", "--url", server.url, "--concurrency", "2", "--requests", "3", "--warmup", "2",
              *self.SHAPE)
        server.wait_idle()
        sent = 1 + 2 + 3  # the probe, the warm-up, the load
        self.assertEqual(server.metric("vllm:prompt_tokens_total") - before, 12 * sent)

    def test_prompts_can_share_their_first_tokens(self):
        before = server.metric("vllm:prefix_cache_hits_total")
        row, = lines("load", "--url", server.url, "--concurrency", "3", "--requests", "6",
                     "--isl", "40", "--isl-shared", "32", "--osl", "6", "--vocab", "200",
                     "--seed", "77", "--warmup", "2")
        self.assertEqual((row["completed"], row["isl_shared"]), (6, 32))
        server.wait_idle()
        hits = server.metric("vllm:prefix_cache_hits_total") - before
        self.assertEqual(hits, 32 * (1 + 5))  # one warms up with other tokens

    def test_ids_stay_inside_the_servers_vocabulary(self):
        with Server(binary, TINY) as tiny:  # fewer ids than are guessed where a server is silent
            row, = lines("load", "--url", tiny.url, "--requests", "4", "--isl", "12", "--osl", "6")
        self.assertEqual(row["completed"], 4)

    def test_prompts_can_be_text(self):
        row, = lines("load", "--url", server.url, "--requests", "3", "--prompts", "text",
                     *self.SHAPE)
        self.assertEqual(row["completed"], 3)
        self.assertGreater(row["prompt_tokens"], 0)

    def test_the_table_shows_each_load(self):
        done = subprocess.run([str(binary), "load", "--url", server.url, "--concurrency", "2",
                               "--requests", "4", *self.SHAPE], capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("2 streams", "TTFT", "TPOT", "ITL", "E2E", "good/s"):
            self.assertIn(word, done.stdout)

    def test_refused_requests_are_told_with_the_servers_words(self):
        done = subprocess.run([str(binary), "load", "--url", server.url, "--isl", "4", "--osl",
                               "100000"], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 1)
        self.assertIn("HTTP 400", done.stderr)


class ForeignServer(http.server.BaseHTTPRequestHandler):
    """A server of another kind: HTTP/1.0, no ignore_eos, and every third answer is cut off."""

    answers = 0

    def log_message(self, *unused):
        pass

    def reply(self, status, text):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        self.reply(200, json.dumps({"data": [{"id": "foreign", "meta": {"n_vocab": 50}}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "ignore_eos" in body:
            self.reply(400, '{"error": {"message": "unknown argument: ignore_eos"}}')
            return
        ForeignServer.answers += 1
        events = [{"choices": [{"text": "a"}]}, {"choices": [{"text": "b"}]}]
        if ForeignServer.answers % 3 and max(body["prompt"]) < 50:
            events.append({"choices": [{"text": "", "finish_reason": "length"}]})
        self.reply(200, "".join(f"data: {json.dumps(event)}\n\n" for event in events))


class ForeignSuite(unittest.TestCase):
    def test_a_server_of_another_kind_is_measured_and_its_failures_counted(self):
        foreign = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ForeignServer)
        threading.Thread(target=foreign.serve_forever, daemon=True).start()
        try:
            row, = lines("load", "--url", f"http://127.0.0.1:{foreign.server_port}", "--isl", "4",
                         "--osl", "2", "--requests", "9", "--warmup", "0", code=1)
        finally:
            foreign.shutdown()
            foreign.server_close()
        self.assertEqual(row["model"], "foreign")
        self.assertFalse(row["ignore_eos"])
        self.assertEqual(row["errors"], {"cut stream": 3})
        self.assertEqual(row["completed"], 6)
        self.assertEqual(row["output_tokens"], 12)  # it counts nothing: events with text
        self.assertIsNone(row["prompt_tokens_mean"])
        self.assertEqual(row["mismatch"], "the server counted no prompt tokens")
