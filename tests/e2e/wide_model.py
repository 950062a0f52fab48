"""A tiny model for tests of the KV store: a start takes a moment, and a block (16 tokens in fp32) has
64 KiB that take longer to compute than to read."""

import json
import sys

from server import ROOT

sys.path.insert(0, str(ROOT / "tests" / "support"))
import make_tiny_model  # noqa: E402

BLOCK = 16
CONTEXT = 512  # tokens that it was made for
FLAGS = ["--kv-kind", "fp32", "--ctx", str(CONTEXT), "--threads", "1"]


def write_model(directory, seed=1):
    path = directory / f"wide-{seed}.gguf"
    path.write_bytes(make_tiny_model.tiny_llama(seed, layers=4, ffn=6144, kv_heads=2, head_dim=64))
    return path


def tokens(draw, count):
    """Random ones, none of them special."""
    return [draw.randrange(3, make_tiny_model.VOCABULARY) for _ in range(count)]


def complete(server, ids, **more):
    """A sampled completion: its text, tokens and logprobs, and what it says about its time."""
    body = {"prompt": ids, "max_tokens": 6, "temperature": 1, "seed": 7, "logprobs": 3,
            "ignore_eos": True, "return_token_ids": True, **more}
    status, _, text = server.request("POST", "/v1/completions", body)
    assert status == 200, f"{status}: {text}"
    answer = json.loads(text)
    choice = answer["choices"][0]
    return (choice["text"], choice["token_ids"], choice["logprobs"]), answer["timings"]


def store_state(server):
    return json.loads(server.request("GET", "/cluster")[2])["kv_store"]
