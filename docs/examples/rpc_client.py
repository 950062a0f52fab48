#!/usr/bin/env python3
"""Streams an answer over Cap'n Proto.

Usage: rpc_client.py [--address 127.0.0.1:8081] [--key KEY] [--max-tokens 64] [--temperature 1] [--chat] PROMPT

Needs pycapnp (pip install pycapnp==2.2.4). The schema is schema/outrider.capnp of this repository.
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import sys

import capnp

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Without this import path pycapnp cannot find the schema behind `-> stream`, and aborts.
IMPORTS = [os.path.dirname(os.path.dirname(os.path.abspath(capnp.__file__)))]
schema = capnp.load(str(ROOT / "schema" / "outrider.capnp"), imports=IMPORTS)


class RpcError(Exception):
    """A refused call: the same object that HTTP puts into {"error": …}."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.code = error["code"]
        self.param = error["param"]
        self.type = error["type"]

    @staticmethod
    def of(exception):
        text = str(exception)
        start = text.find('{"error":')
        if start < 0:
            return exception
        return RpcError(json.JSONDecoder().raw_decode(text[start:])[0]["error"])


class Sink(schema.TokenSink.Server):
    """Receives the tokens of one call, in order. Override on_chunk."""

    def __init__(self, on_chunk):
        self.on_chunk = on_chunk
        self.result = None

    async def push(self, chunk, **kwargs):
        self.on_chunk(chunk)

    async def done(self, result, **kwargs):
        self.result = result.as_builder()


class Connection:
    """One connection and the service behind it. Open it inside capnp.kj_loop() or capnp.run()."""

    @classmethod
    async def open(cls, host, port, key=""):
        self = cls()
        stream = await capnp.AsyncIoStream.create_connection(host=host, port=port)
        self.client = capnp.TwoPartyClient(stream)  # the connection ends with this object
        login = self.client.bootstrap().cast_as(schema.Login)
        try:
            self.service = (await login.open(apiKey=key)).service
        except capnp.KjException as exception:
            raise RpcError.of(exception) from None
        return self


async def generate(service, fields, on_chunk):
    """Runs one request to its end and returns its GenerateResult. Cancelling the task cancels it."""
    request = schema.GenerateRequest.new_message(**fields)
    try:
        return (await service.generate(request=request, sink=Sink(on_chunk))).result
    except capnp.KjException as exception:
        raise RpcError.of(exception) from None


async def main(options):
    host, _, port = options.address.rpartition(":")
    # Another kind of server may wait for us to say more.
    connection = await asyncio.wait_for(Connection.open(host, int(port), options.key), 5)
    fields = {"model": options.model, "maxTokens": options.max_tokens,
              "temperature": options.temperature}
    if options.chat:
        fields["messages"] = [{"role": "user", "content": options.prompt}]
    else:
        fields["prompt"] = {"text": options.prompt}

    def show(chunk):
        sys.stdout.write(chunk.text)
        sys.stdout.flush()

    result = await generate(connection.service, fields, show)
    usage = result.usage
    print(f"\n[{usage.promptTokens} + {usage.completionTokens} tokens, seed {result.seed}]",
          file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="127.0.0.1:8081")
    parser.add_argument("--key", default="")
    parser.add_argument("--model", default="", help="empty: the first that is served")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=1, help="0 is greedy")
    parser.add_argument("--chat", action="store_true", help="use the model's chat template")
    parser.add_argument("prompt")
    options = parser.parse_args()
    if not re.fullmatch(r".+:\d{1,5}", options.address):
        parser.error(f"--address {options.address!r} is not HOST:PORT")
    try:
        asyncio.run(capnp.run(main(options)))
    except RpcError as exception:
        sys.exit(f"rpc_client.py: {exception}")
    except (OSError, OverflowError, asyncio.TimeoutError, capnp.KjException) as exception:
        reason = (str(exception) or "no answer").splitlines()[0]
        sys.exit(f"rpc_client.py: {options.address}: {reason} (is this the server's RPC port?)")
