"""Starting, refusing, draining and stopping: each test runs a server of its own."""

import http.client
import json
import logging
import os
import pathlib
import pty
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from server import Server, exit_code, wait_out_an_echo

binary = model = None  # set by run_e2e
cpp_client = None      # the C++ example


# More bytes than sockets hold, so that a stream that is not read cannot end.
LONG = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True, "logprobs": 20, "n": 4}


def stream_socket(server, body):
    """A completions stream as a raw socket, after its first event."""
    payload = json.dumps(body).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.http_port))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                       b"application/json\r\nContent-Length: %d\r\n\r\n" % len(payload) + payload)
    first = b""
    while b"data: " not in first:
        first += connection.recv(4096)
    return connection, first


def type_into_chat(lines, environment):
    """What `outrider chat` shows on a terminal where a person types these lines."""
    master, terminal = pty.openpty()
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen([str(binary), "chat", "--model", str(model)], stdin=terminal,
                                   stdout=terminal, stderr=terminal, start_new_session=True,
                                   env={"HOME": home, "TERM": "xterm", **environment})
        os.close(terminal)
        shown = b""
        for line in lines:
            prompts = shown.count(b"\n> ")
            while shown.count(b"\n> ") <= prompts:
                shown += os.read(master, 4096)
            os.write(master, line.encode() + b"\r")
        try:
            while part := os.read(master, 4096):
                shown += part
        except OSError:  # the program has closed the terminal
            pass
        os.close(master)
        assert exit_code(process) == 0, shown
    return shown.decode()


def chat(*arguments, typed=b""):
    return subprocess.run([str(binary), "chat", *arguments], input=typed, capture_output=True,
                          timeout=120)


def read_all(connection):
    data = b""
    while part := connection.recv(65536):
        data += part
    return data


def exchange(server, data):
    """All that comes back before the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as connection:
        connection.sendall(data)
        # Long before an idle connection would be closed.
        connection.settimeout(15)
        return read_all(connection)


def answers(server):
    try:
        return server.request("GET", "/health", timeout_s=5)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def stop_at_once(server):
    server.process.send_signal(signal.SIGTERM)
    server.wait_until(lambda: server.request("GET", "/health")[0] == 503, "draining")
    wait_out_an_echo()
    server.process.send_signal(signal.SIGTERM)


class LifeSuite(unittest.TestCase):
    def test_sigterm_finishes_admitted_streams_and_refuses_new_ones(self):
        with Server(binary, model) as server:
            connection, data = stream_socket(server, LONG)
            for echo in (signal.SIGTERM, signal.SIGINT):  # as GNU timeout and terminals do
                server.process.send_signal(echo)
            server.wait_until(lambda: server.request("GET", "/health")[0] == 503, "draining")
            self.assertEqual(server.request("GET", "/live")[0], 200)
            status, headers, _ = server.request("POST", "/v1/completions", {"prompt": "x"})
            self.assertEqual(status, 503)
            self.assertIn("retry-after", headers)
            while b"[DONE]" not in data[-64:]:
                part = connection.recv(65536)
                self.assertTrue(part, "the stream was cut")
                data += part
            self.assertEqual(server.exit_code(), 0, server.log())
            self.assertRegex(server.log(), r"stopped in [\d.]+ s: draining [\d.]+, .*, ending the engine")

    def test_an_echo_of_the_signal_is_none_while_connections_end(self):
        with Server(binary, model) as server, \
                socket.create_connection(("127.0.0.1", server.rpc_port), timeout=60):
            server.process.send_signal(signal.SIGTERM)
            status = pathlib.Path(f"/proc/{server.process.pid}/status")
            end = time.monotonic() + 30
            while not re.search(r"ShdPnd:\s0+\n", status.read_text()):
                self.assertLess(time.monotonic(), end, "it was not heard")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.exit_code(), 0, server.log())

    def check_forced_stop(self, server, streams):
        """Each stream ended with one error event, and the process says that it was no good end."""
        for connection, data in streams:
            data += read_all(connection)
            connection.close()
            self.assertTrue(data.endswith(b"\r\n0\r\n\r\n"), data[-200:])
            self.assertEqual(data.count(b'"error":'), 1, data[-200:])
            self.assertIn(b'"code":503', data)
            self.assertNotIn(b"[DONE]", data)
        self.assertEqual(server.exit_code(), 1, server.log())
        self.assertEqual(re.findall(r" status=(\d+)", server.log()), ["503"] * len(streams))

    def test_a_second_signal_tells_the_streams_and_stops(self):
        with Server(binary, model, ["--log-level", "info"]) as server:
            streams = [stream_socket(server, LONG) for _ in range(4)]
            stop_at_once(server)
            self.check_forced_stop(server, streams)

    def test_a_second_signal_tells_the_calls_of_rpc_and_stops(self):
        import asyncio

        import capnp
        import suite_rpc

        logging.disable(logging.WARNING)  # of asyncio, for each chunk acknowledged to nobody
        self.addCleanup(logging.disable, logging.NOTSET)
        with Server(binary, model) as server:
            begun = []

            def stop_at_the_first(chunk):
                if begun:
                    return
                begun.append(chunk.choice)
                # Nothing is read meanwhile, so that the call cannot end.
                stop_at_once(server)

            async def call():
                connection = await suite_rpc.rpc_client.Connection.open(
                    "127.0.0.1", server.rpc_port)
                fields = {"prompt": {"text": "x"}, "maxTokens": 200, "ignoreEos": True,
                          "logprobs": 20, "n": 4}
                await asyncio.wait_for(
                    suite_rpc.rpc_client.generate(connection.service, fields, stop_at_the_first), 60)

            with self.assertRaises(suite_rpc.rpc_client.RpcError) as caught:
                asyncio.run(capnp.run(call()))
            self.assertEqual(caught.exception.code, 503)
            self.assertEqual(server.exit_code(), 1, server.log())

    def test_a_drain_that_takes_too_long_tells_the_streams_and_stops(self):
        with Server(binary, model, ["--drain-timeout-s", "1", "--log-level", "info"]) as server:
            streams = [stream_socket(server, LONG)]
            server.process.send_signal(signal.SIGTERM)
            server.wait_until(lambda: "given up: 1 request" in server.log(), "the drain's end")
            self.check_forced_stop(server, streams)

    def test_a_reader_that_takes_nothing_does_not_hold_the_stop(self):
        with Server(binary, model) as server:
            connection, _ = stream_socket(server, LONG)
            stop_at_once(server)
            self.assertEqual(server.exit_code(), 1, server.log())
            connection.close()

    def test_running_out_of_descriptors_is_no_end(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))

        with Server(binary, model, prepare=few) as server:
            idle = [socket.create_connection(("127.0.0.1", server.http_port), timeout=60)
                    for _ in range(200)]
            for connection in idle:
                connection.close()
            server.wait_until(lambda: answers(server), "an answer after the flood")
            self.assertEqual(server.terminate(), 0, server.log())

    def test_accepts_again_after_descriptors_ran_out(self):
        with Server(binary, model) as server:
            descriptors = server.process.pid, resource.RLIMIT_NOFILE
            before = resource.prlimit(*descriptors)
            resource.prlimit(*descriptors, (3, before[1]))
            with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as waiting:
                server.wait_until(lambda: "accept failed" in server.log(), "a refused descriptor")
                resource.prlimit(*descriptors, before)
                waiting.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                self.assertIn(b'"status":"ready"', waiting.makefile("rb").read())
            self.assertTrue(answers(server))
            self.assertEqual(server.log().count("accept failed"), 1)
            self.assertEqual(server.terminate(), 0, server.log())

    def test_connections_end_when_clients_ask_for_it(self):
        body = b'{"prompt":"x","max_tokens":3,"stream":true}'
        head = (b"Host: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body))
        with Server(binary, model) as server:
            new = exchange(server, b"POST /v1/completions HTTP/1.1\r\nConnection: close\r\n" +
                           head + b"\r\n" + body)
            self.assertIn(b"Connection: close\r\n", new)
            self.assertTrue(new.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), new)
            old = exchange(server, b"POST /v1/completions HTTP/1.0\r\n" + head + b"\r\n" + body)
            self.assertIn(b"\r\n\r\ndata: {", old)  # no chunk sizes
            self.assertTrue(old.endswith(b"data: [DONE]\n\n"), old)
            self.assertIn(b'"status":"ready"', exchange(server, b"GET /health HTTP/1.0\r\n\r\n"))

    def test_keys_are_asked_for_on_both_ports(self):
        import asyncio

        import capnp
        import suite_rpc

        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("team:secret-e2e\n")
            keys.flush()
            with Server(binary, model, ["--api-key-file", keys.name, "--cors-origins",
                                        "https://page.example"]) as server:
                self.assertEqual(server.request("GET", "/v1/models")[0], 401)
                for page, status in (("https://page.example", 204), ("https://other.example", 401)):
                    preflight = server.request("OPTIONS", "/v1/models", headers={
                        "Origin": page, "Access-Control-Request-Method": "GET"})
                    self.assertEqual(preflight[0], status)
                good = {"Authorization": "Bearer secret-e2e"}
                self.assertEqual(server.request("GET", "/v1/models", headers=good)[0], 200)

                async def status(key):
                    connection = await suite_rpc.rpc_client.Connection.open(
                        "127.0.0.1", server.rpc_port, key)
                    return (await connection.service.health()).status

                self.assertEqual(asyncio.run(capnp.run(status("secret-e2e"))), "ready")
                with self.assertRaises(suite_rpc.rpc_client.RpcError):
                    asyncio.run(capnp.run(status("wrong")))

    def cached(self, server, key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = {"prompt": [5 + i % 90 for i in range(100)], "max_tokens": 1}
        status, _, text = server.request("POST", "/v1/completions", body, headers)
        self.assertEqual(status, 200, text)
        return json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_tenants_share_no_cached_block(self):
        with tempfile.NamedTemporaryFile("w") as keys, tempfile.NamedTemporaryFile("w") as secret:
            keys.write("red:secret-1\nred:secret-2\nblue:secret-3\nsecret-4\nsecret-5\n")
            keys.flush()
            secret.write("sixteen bytes and more\n")
            secret.flush()
            flags = ("--api-key-file", keys.name, "--cluster-secret-file", secret.name)
            with Server(binary, model, flags) as server:
                found = [self.cached(server, key) for key in ("secret-1", "secret-2", "secret-3", "secret-4",
                                                              "secret-5", "secret-3")]
                self.assertEqual(found, [0, 96, 0, 0, 0, 96])
                self.assertEqual(server.metric("outrider_prefix_cache_blocks"), 4 * 6)

    def test_prefix_caching_can_be_switched_off(self):
        with Server(binary, model, ("--prefix-caching", "off")) as server:
            self.assertEqual([self.cached(server) for _ in range(2)], [0, 0])
            self.assertEqual(server.metric("outrider_prefix_cache_blocks"), 0)
            self.assertEqual(server.metric("vllm:prefix_cache_queries_total"), 0)

    def test_a_short_cluster_secret_is_refused_before_the_model_loads(self):
        with tempfile.NamedTemporaryFile("w") as secret:
            secret.write("short\n")
            secret.flush()
            result = subprocess.run([binary, "serve", "--model", model, "--cluster-secret-file",
                                     secret.name], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn("16 to 4096 bytes", result.stderr)

    def test_the_access_log_has_members_and_the_trace(self):
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        with Server(binary, model, ["--log-json"]) as server:
            for header in (f"00-{trace}-00f067aa0ba902b7-01", "00-malformed-01"):
                _, headers, _ = server.request("POST", "/v1/completions",
                                               {"prompt": "x", "max_tokens": 2, "temperature": 0},
                                               {"traceparent": header})
                self.assertEqual(headers.get("traceparent"), header if trace in header else None)
            server.terminate()  # an answer may be read before its line is written
            lines = [json.loads(line) for line in server.log().splitlines()
                     if '"message":"request"' in line]
        self.assertEqual([line.get("trace") for line in lines], [trace, None])
        self.assertEqual([line["status"] for line in lines], [200, 200])
        self.assertEqual(lines[0]["tokens"], 2)
        self.assertGreater(lines[0]["total_ms"], 0)

    def test_a_port_in_use_is_named_with_the_flag_for_another(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            out = subprocess.run([binary, "serve", "--model", model, "--http", address],
                                 capture_output=True, text=True, timeout=60)
        self.assertEqual(out.returncode, 1)
        self.assertEqual(out.stderr, f"outrider: cannot listen on {address}: Address already in "
                                     "use; choose another address with --http HOST:PORT\n")

    def test_a_flood_of_one_tenant_does_not_keep_another_out(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("alice:secret-a\nbob:secret-b\n")
            keys.flush()
            with Server(binary, model, ["--api-key-file", keys.name, "--max-seqs", "2",
                                        "--max-waiting", "100"]) as server:
                body = json.dumps({"prompt": "x", "max_tokens": 400, "ignore_eos": True}).encode()
                flood = []
                for _ in range(150):  # more than all slots
                    flood.append(socket.create_connection(("127.0.0.1", server.http_port)))
                    flood[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: "
                                      b"Bearer secret-a\r\nContent-Type: application/json\r\n"
                                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
                waiting = "vllm:num_requests_waiting"
                server.wait_until(lambda: server.metric(waiting) >= 60, "the flood")
                status, _, text = server.request(
                    "POST", "/v1/completions", {"prompt": "x", "max_tokens": 4, "priority": 5},
                    {"Authorization": "Bearer secret-b"})
                self.assertEqual(status, 200, text)
                self.assertGreater(server.metric(waiting), 10, "it was served after the flood")
                for connection in flood:
                    connection.close()
                server.wait_idle()

    def test_the_chat_line_takes_every_character_in_any_locale(self):
        for locale in ({"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}, {"LANG": "xx_XX"}, {}):
            shown = type_into_chat(["/set stop grüß 漢 🙂", "/quit"], locale)
            self.assertIn('stop ["grüß 漢 🙂"]', shown, locale)

    def test_the_chat_over_http_takes_bytes_that_are_no_text(self):
        with Server(binary, model) as server:
            out = chat("--url", server.url, "-n", "4", typed=b"caf\xe9 \xff\xfe\n")
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertEqual(out.stderr, b"")

    def test_the_chat_has_one_rule_for_length_here_and_over_http(self):
        with Server(binary, model, ["--ctx", "96"]) as server:
            for where in (["--model", str(model), "--ctx", "96"], ["--url", server.url]):
                cut = chat(*where, "--ignore-eos", typed=b"hi\n")
                self.assertIn(b"[cut off", cut.stdout)
                refused = chat(*where, "-n", "96", typed=b"hi\n")
                self.assertEqual(refused.stdout.strip(), b"", where)
                self.assertIn(b"the context of 96 tokens leaves", refused.stderr)

    def test_the_chat_refuses_engine_flags_beside_a_server(self):
        for flag in (["--threads", "1"], ["--config", "x.yaml"]):
            out = chat("--url", "http://127.0.0.1:1", *flag)
            self.assertEqual(out.returncode, 2)
            self.assertIn(flag[0].encode(), out.stderr)

    def test_the_chat_asks_a_server_for_a_model_by_name(self):
        with Server(binary, model, ["--model-name", "ours"]) as server:
            named = chat("--url", server.url, "--model", "ours", "-n", "4", typed=b"hi\n")
            self.assertEqual((named.returncode, named.stderr), (0, b""))
            other = chat("--url", server.url, "--model", "theirs", typed=b"hi\n")
            self.assertEqual(other.returncode, 1)
            self.assertIn(b"serves ours, not theirs", other.stderr)

    def test_prompts_and_keys_never_reach_the_log(self):
        secret = "xylophone-secret-words"
        with Server(binary, model, ["--log-level", "info"]) as server:
            server.request("POST", "/v1/completions", {"prompt": secret, "max_tokens": 1},
                           {"Authorization": "Bearer sk-secret", "x-request-id": "e2e-rid-7"})
            server.request("POST", "/v1/completions", {"prompt": secret, "n": 0})
            server.terminate()
            log = server.log()
            self.assertNotIn(secret, log)
            self.assertNotIn("sk-secret", log)
            self.assertIn("e2e-rid-7", log)

    def generate(self, *flags, stdout=subprocess.PIPE, prepare=None):
        return subprocess.run([str(binary), "generate", "--model", str(model), "-n", "2", *flags],
                              stdout=stdout, stderr=subprocess.PIPE, text=True, preexec_fn=prepare)

    def test_output_that_a_full_disk_refuses_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = self.generate("-p", "hi", stdout=full)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not all output could be written", done.stderr)

    def test_generate_refuses_what_the_server_refuses_in_its_words(self):
        with Server(binary, model, ["--ctx", "64"]) as server:
            for prompt, tokens in (("hi", "64"), ("word " * 70, "1")):
                _, _, body = server.request("POST", "/v1/completions",
                                            {"prompt": prompt, "max_tokens": int(tokens)})
                done = subprocess.run([str(binary), "generate", "--model", str(model), "--ctx",
                                       "64", "-p", prompt, "-n", tokens],
                                      capture_output=True, text=True)
                self.assertEqual(done.stderr.splitlines()[-1],
                                 "outrider: " + json.loads(body)["error"]["message"])
                self.assertEqual(done.returncode, 2)

    def test_generate_has_the_servers_logprobs(self):
        done = self.generate("-p", "hi", "--chat", "--json", "--logprobs", "3", "--temperature", "0")
        found = json.loads(done.stdout)["logprobs"]
        for entry in found:
            self.assertEqual([top.pop("id") >= 0 for top in entry["top_logprobs"]], [True] * 3)
        with Server(binary, model) as server:
            _, _, body = server.request("POST", "/v1/chat/completions",
                                        {"messages": [{"role": "user", "content": "hi"}],
                                         "logprobs": True, "top_logprobs": 3, "temperature": 0,
                                         "max_tokens": 2})
        self.assertEqual(found, json.loads(body)["choices"][0]["logprobs"]["content"])

    def test_packed_weights_on_disk_give_the_same_answer(self):
        flags = ("-p", "hi", "--json", "--logprobs", "3", "--seed", "1")
        with tempfile.TemporaryDirectory() as directory:
            cached = (*flags, "--weights-cache", directory)
            starts = [self.generate(*flags), self.generate(*cached), self.generate(*cached)]
            (packed,) = pathlib.Path(directory).iterdir()
            with packed.open("r+b") as file:
                file.truncate(100_000)
            starts.append(self.generate(*cached))
        choices = [json.loads(start.stdout) for start in starts]
        for choice in choices:
            del choice["timings"]
        self.assertEqual(choices[1:], choices[:1] * 3)
        self.assertEqual([start.stderr for start in starts[:3]],
                         ["", f"outrider: weights packed anew, for {directory}\n",
                          f"outrider: packed weights from {directory}\n"])
        self.assertIn("weights cache not used", starts[3].stderr)

    def test_a_limit_of_file_sizes_costs_the_weights_cache_only(self):
        def prepare():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

        with tempfile.TemporaryDirectory() as directory:
            done = self.generate("-p", "hi", "--weights-cache", directory, prepare=prepare)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("File too large", done.stderr)
            self.assertEqual(list(pathlib.Path(directory).iterdir()), [])

    def test_a_prompt_file_is_a_file_of_bounded_size(self):
        self.assertIn("a directory, not a regular file", self.generate("--file", "/tmp").stderr)
        self.assertIn("not a regular file", self.generate("--file", "/dev/zero").stderr)
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(1 << 31)
            self.assertIn("longer than", self.generate("--file", file.name).stderr)

    def test_the_cpp_example_streams(self):
        self.assertIsNotNone(cpp_client, "--cpp-client is needed")
        with Server(binary, model) as server:
            out = subprocess.run([cpp_client, f"127.0.0.1:{server.rpc_port}", "Say hello."],
                                 capture_output=True, text=True, timeout=120)
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertRegex(out.stdout, r"\[\d+ \+ \d+ tokens, seed \d+\]")

    def test_the_cpp_example_gives_up_on_a_port_that_says_nothing(self):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as silent:
            out = subprocess.run([cpp_client, f"127.0.0.1:{silent.getsockname()[1]}", "Hello"],
                                 capture_output=True, text=True, timeout=60)
        self.assertEqual(out.returncode, 1)
        self.assertIn("is this the server's RPC port?", out.stderr)

    def test_the_python_example_asks_about_the_port_only_if_nothing_answers(self):
        import sys

        import suite_rpc

        def stderr_of(port, *flags):
            return subprocess.run([sys.executable, suite_rpc.rpc_client.__file__, "--address",
                                   f"127.0.0.1:{port}", *flags, "Hello"],
                                  capture_output=True, text=True, timeout=60).stderr

        with Server(binary, model) as server:
            refused = stderr_of(server.rpc_port, "--temperature", "9")
            self.assertIn("temperature", refused)
            self.assertNotIn("RPC port", refused)
        self.assertIn("RPC port", stderr_of(1))

    def test_the_python_example_streams(self):
        import sys

        import suite_rpc

        with Server(binary, model) as server:
            out = subprocess.run([sys.executable, suite_rpc.rpc_client.__file__, "--address",
                                  f"127.0.0.1:{server.rpc_port}", "--max-tokens", "8", "Hello"],
                                 capture_output=True, text=True, timeout=120)
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertIn("tokens, seed", out.stderr)
