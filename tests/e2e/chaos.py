#!/usr/bin/env python3
"""Hundreds of streams at once whose clients leave, cancel or read slowly; then the books must balance.

Usage: chaos.py --binary build/release/outrider --model MODEL.gguf [--streams 500] [--rounds 4] [--seed 1]

After each round: every request has one line in the access log and one outcome, no session is open,
no block is held, no connection is left. After the first rounds memory must have stopped growing.
"""

import argparse
import asyncio
import json
import pathlib
import random
import re
import sys

import capnp

from server import ROOT, Server

sys.path.insert(0, str(ROOT / "docs" / "examples"))
import rpc_client  # noqa: E402: the example is the client under test

BEHAVIOURS = ("reads_all", "leaves_early", "leaves_at_once", "resets", "reads_slowly", "whole",
              "leaves_whole", "calls", "cancels_call")


def request_bytes(rng, stream):
    body = json.dumps({
        "prompt": "word " * rng.randint(1, 40),
        "max_tokens": rng.randint(1, 48),
        "temperature": rng.choice([0, 1]),
        "n": rng.choice([1, 1, 1, 2]),
        "ignore_eos": True,
        "seed": rng.randrange(1 << 32),
        "logprobs": rng.choice([None, 0, 5]),
        "stream": stream,
    }).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body)


async def read_to_end(reader, chunk=65536, pause_s=0.0):
    """Bytes of one chunked or sized response."""
    data = b""
    while not (data.endswith(b"\r\n0\r\n\r\n") or complete(data)):
        part = await reader.read(chunk)
        if not part:
            break
        data += part
        if pause_s:
            await asyncio.sleep(pause_s)
    return data


def complete(data):
    head, found, body = data.partition(b"\r\n\r\n")
    size = re.search(rb"content-length: (\d+)", head, re.I)
    return bool(found and size and len(body) >= int(size[1]))


async def one_call(service, rng, cancels):
    """A Cap'n Proto call, cancelled at a random chunk or read to its end."""
    left = rng.randint(1, 10)

    def on_chunk(chunk):
        nonlocal left
        left -= 1
        if cancels and left == 0:
            task.cancel()

    fields = {"prompt": {"text": "word " * rng.randint(1, 40)}, "maxTokens": rng.randint(8, 48),
              "ignoreEos": True, "seed": {"value": rng.randrange(1 << 32)}}
    task = asyncio.create_task(rpc_client.generate(service, fields, on_chunk))
    try:
        await task
    except asyncio.CancelledError:
        pass


async def one_client(port, rng, behaviour, counts):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    stream = behaviour not in ("whole", "leaves_whole")
    writer.write(request_bytes(rng, stream))
    await writer.drain()
    if behaviour in ("reads_all", "whole"):
        data = await read_to_end(reader)
        status = data[9:12].decode()
        counts[status] = counts.get(status, 0) + 1
        if status == "200" and stream and b"data: [DONE]" not in data:
            counts["broken"] = counts.get("broken", 0) + 1
    elif behaviour == "reads_slowly":
        await read_to_end(reader, 512, rng.uniform(0, 0.02))
    elif behaviour == "leaves_early":
        await reader.read(rng.randint(1, 2000))
    elif behaviour == "leaves_whole":
        await asyncio.sleep(rng.uniform(0, 0.5))
    elif behaviour == "resets":
        await reader.read(rng.randint(1, 500))
        writer.transport.abort()
        return
    writer.close()


async def one_round(server, seed, streams):
    rng = random.Random(seed)
    counts = {}
    connections = [await rpc_client.Connection.open("127.0.0.1", server.rpc_port)
                   for _ in range(4)]
    clients = []
    for _ in range(streams):
        behaviour, own = rng.choice(BEHAVIOURS), random.Random(rng.random())
        if behaviour in ("calls", "cancels_call"):
            service = rng.choice(connections).service
            clients.append(one_call(service, own, behaviour == "cancels_call"))
        else:
            clients.append(one_client(server.http_port, own, behaviour, counts))
    results = await asyncio.gather(*clients, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, ConnectionError):
            raise result
    return counts


def log_lines(server):
    return re.findall(r"request id=(\S+) .*status=(\d+)", server.log())


def check_books(server):
    """Nothing is held, and requests, log lines and outcomes agree."""
    server.wait_idle(300)
    lines = log_lines(server)
    assert len({name for name, _ in lines}) == len(lines), "a request has two log lines"
    outcomes = server.metric("outrider_request_outcomes_total")
    assert outcomes == len(lines), f"{outcomes} outcomes of {len(lines)} requests"
    free, total = (server.metric(f"outrider_kv_blocks_{kind}") for kind in ("free", "total"))
    assert free == total, f"{total - free} blocks are still held"
    server.wait_until(lambda: server.metric("outrider_connections_open") <= 1, "connections")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth-mb", type=float, default=12, help="allowed after two rounds")
    options = parser.parse_args()
    print(f"chaos: seed {options.seed}")
    with Server(pathlib.Path(options.binary).resolve(), pathlib.Path(options.model).resolve(),
                ["--log-level", "info"]) as server:
        memory, files = [], []
        for number in range(options.rounds):
            counts = asyncio.run(
                capnp.run(one_round(server, options.seed * 1000 + number, options.streams)))
            check_books(server)
            assert not counts.get("broken"), f"{counts['broken']} streams ended without [DONE]"
            memory.append(server.rss_mb())
            files.append(server.open_files())
            print(f"round {number}: statuses {counts}, {memory[-1]:.0f} MB, {files[-1]} files",
                  flush=True)
        if options.rounds > 2:
            growth = memory[-1] - memory[1]
            assert growth < options.growth_mb, f"memory grew by {growth:.1f} MB: {memory}"
            assert files[-1] <= files[1] + 4, f"descriptors leak: {files}"
        code = server.terminate()
        assert code == 0, f"exit code {code}:\n{server.log()[-4000:]}"
    print("chaos: the books balance")
    return 0


if __name__ == "__main__":
    sys.exit(main())
