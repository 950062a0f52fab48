#!/usr/bin/env python3
"""Bad input on both ports of the real binary: each is answered clearly or its connection is closed.

Usage: hostile.py --binary build/release/outrider --model MODEL.gguf [--seed 1]
"""

import argparse
import json
import pathlib
import random
import socket
import sys
import threading

from server import Server

LIMIT_BYTES = 8 << 20


def exchange(port, data, timeout_s=20, end=False):
    """Sends bytes on a connection of its own and reads what comes: the status, or None if closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        try:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            reply = b""
            while b"\r\n\r\n" not in reply:
                part = connection.recv(65536)
                if not part:
                    break
                reply += part
        except TimeoutError:
            raise
        except OSError:  # reset, or closed before our own shutdown
            return None, b""
    return (int(reply[9:12]) if reply[:5] == b"HTTP/" else None), reply


def post(path, body, headers=b"Content-Type: application/json\r\n"):
    return (b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + headers +
            b"Content-Length: %d\r\n\r\n" % len(body) + body)


def bad_bodies():
    """(path, body) of requests that must get a 4xx."""
    chat, text = b"/v1/chat/completions", b"/v1/completions"
    raw = [b"", b" ", b"{", b"}", b"[]", b"null", b"1", b"\"x\"", b"{}", b"{\"prompt\"", b"\xff\xfe",
           b"{\"prompt\":\"\xff\"}", b"{\"prompt\":\"\xc0\xaf\"}", b"{\"prompt\":\"\xed\xa0\x80\"}",
           b"{\"prompt\":\"\\ud800\"}", b"{\"prompt\":NaN}", b"{\"prompt\":1e999}", b"[" * 100_000,
           b"{\"a\":" * 100_000, b"\x00" * 1000, b"{'prompt':'x'}", b"{\"prompt\":\"x\",}"]
    for path in (chat, text, b"/tokenize", b"/detokenize"):
        for body in raw:
            yield path, body
    values = ["\"x\"", "-1e308", "1e308", "[]", "{}", "\"\\u0000\"", "99999999999999999999999"]
    fields = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "n", "seed", "logit_bias",
              "stop_token_ids", "min_tokens", "presence_penalty", "repetition_penalty",
              "deadline_ms", "priority", "stream", "ignore_eos", "prompt_logprobs"]
    for field in fields:
        for value in values:
            if (field, value) in {("logit_bias", "{}"), ("stop_token_ids", "[]")}:
                continue  # these are fine
            yield text, f'{{"prompt":"x","max_tokens":1,"{field}":{value}}}'.encode()
    yield text, json.dumps({"prompt": "word " * 200_000}).encode()
    yield text, json.dumps({"prompt": [2**31 - 1]}).encode()
    yield text, json.dumps({"prompt": ["x"] * 1000}).encode()
    yield chat, json.dumps({"messages": [{"role": "user", "content": "x"}] * 5000}).encode()


def bad_framing():
    """Bytes that are no request, or a wrong one: 4xx or a closed connection."""
    line = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
    yield from [b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00" * 50,
                b"A" * 300_000, b"\x00" * 300_000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
                b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
                line + b"Content-Length: -1\r\n\r\n", line + b"Content-Length: x\r\n\r\n",
                line + b"Content-Length: 99999999999999999999\r\n\r\n",
                line + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
                line + b"Transfer-Encoding: gzip\r\n\r\n",
                line + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                line + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
                line + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                line + b"bad header\r\n\r\n", line + b"x: \x00\r\n\r\n",
                b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"PATCH /health HTTP/1.1\r\n\r\n",
                b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
                post(b"/v1/completions", b"{}", b"Content-Type: text/html\r\n"),
                post(b"/health", b"{}"), post(b"/nothing", b"{}")]


def big_body(port):
    """100 MB announced and sent: the answer comes although the body is never read whole."""
    body = b" " * (1 << 20)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                           b"application/json\r\nContent-Length: %d\r\n\r\n" % (100 << 20))
        try:
            for _ in range(100):
                connection.sendall(body)
        except ConnectionError:
            pass
        return int(connection.recv(65536)[9:12])


def slow_headers(port, results):
    """One byte now and then: the server gives up, not the client."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.settimeout(1)
        try:
            for byte in b"POST /v1/completions HTTP/1.1\r\nHost: " + b"x" * 60:
                connection.sendall(bytes([byte]))
                try:
                    reply = connection.recv(4096)
                    results.append(reply[9:12] or b"closed")
                    return
                except socket.timeout:
                    pass
        except ConnectionError:
            results.append(b"closed")
            return
    results.append(b"never")


def rpc_garbage(rng):
    yield from [b"x" * 4096, b"\xff" * 65536, b"\x00" * 65536, b"GET / HTTP/1.1\r\n\r\n",
                b"\x00\x00\x00\x00\xff\xff\xff\x7f", b"\xff\xff\xff\x7f\x01\x00\x00\x00",
                b"\x00\x00\x00\x00\x02\x00\x00\x00" + b"\xff" * 16]
    for _ in range(60):
        words = rng.randint(1, 40)
        yield (b"\x00\x00\x00\x00" + words.to_bytes(4, "little") +
               bytes(rng.randrange(256) for _ in range(words * 8)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cases = 0
    with Server(pathlib.Path(options.binary).resolve(),
                pathlib.Path(options.model).resolve()) as server:
        slow = []
        lorises = [threading.Thread(target=slow_headers, args=(server.http_port, slow))
                   for _ in range(20)]
        for thread in lorises:
            thread.start()
        for path, body in bad_bodies():
            status, reply = exchange(server.http_port, post(path, body))
            assert status is not None and 400 <= status < 500, (status, path, body[:120], reply[:200])
            cases += 1
        for data in bad_framing():
            status, reply = exchange(server.http_port, data, end=True)
            assert status is None or 400 <= status < 500, (status, data[:120], reply[:200])
            cases += 1
        assert big_body(server.http_port) == 413
        for data in rpc_garbage(random.Random(options.seed)):
            exchange(server.rpc_port, data, end=True)
            cases += 1
        for thread in lorises:
            thread.join()
        assert len(slow) == 20 and b"never" not in slow, slow
        cases += 21
        status, _, text = server.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2})
        assert status == 200, text
        server.wait_idle()
        code = server.terminate()
        assert code == 0, f"exit code {code}:\n{server.log()[-4000:]}"
    print(f"hostile: {cases} bad inputs (seed {options.seed}), the server goes on")
    return 0 if cases >= 200 else 1


if __name__ == "__main__":
    sys.exit(main())
