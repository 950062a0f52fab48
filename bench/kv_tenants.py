#!/usr/bin/env python3
"""Looks for KV blocks that cross tenants or salts: by what answers say of cached tokens, and by how
long the first token takes.

One tenant has prompts computed and stored. Others ask for the same prompts, once from the pool and
once from the store of a restarted server: they must find nothing, and wait as for prompts that
nobody had before. Exit code 1 if any of them found a token.

Usage: kv_tenants.py --model M [--tokens 512] [--prompts 8]
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from kv_store_serving import ROOT, STORED, prompt, wait_stored

from server import Server  # noqa: E402  (kv_store_serving put it on the path)

KEYS = {"red": "key-of-red-0001", "blue": "key-of-blue-0001"}
OWNER = ("red", "one")
OTHERS = [("red", "two"), ("red", None), ("blue", "one"), ("blue", "two"), ("blue", None), (None, "one")]


def ask(server, ids, tenant, salt, **more):
    body = {"prompt": ids, "max_tokens": 1, "temperature": 0, **more, **({"cache_salt": salt} if salt else {})}
    key = KEYS.get(tenant, "key-without-a-name-1")
    status, _, text = server.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"},
                                     timeout_s=600)
    assert status == 200, text
    answer = json.loads(text)
    timings = answer["timings"]
    return (answer["usage"]["prompt_tokens_details"]["cached_tokens"],
            timings["queue_ms"] + timings["prefill_ms"])


def probe(server, prompts, who, **more):
    """Tokens that were found, and the median time to the first token."""
    found, times = zip(*(ask(server, ids, *who, **more) for ids in prompts))
    return sum(found), statistics.median(times)


def name(who):
    return f"{who[0] or 'a key without a name'}, salt {who[1] or 'none'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/release/outrider")
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--prompts", type=int, default=8)
    options = parser.parse_args()
    prompts = [prompt(i, options.tokens) for i in range(options.prompts)]
    full = options.prompts * ((options.tokens - 1) // 16 * 16)
    leaks = 0
    with tempfile.TemporaryDirectory(prefix="outrider-kv-tenants-") as directory:
        keys = pathlib.Path(directory, "keys")
        keys.write_text("".join(f"{tenant}:{key}\n" for tenant, key in KEYS.items()) + "key-without-a-name-1\n")
        flags = ["--api-key-file", str(keys), "--store-dir", directory + "/kv"]

        def round_of(server, tier, seed, expected):
            nonlocal leaks
            fresh = probe(server, [prompt(seed + i, options.tokens) for i in range(options.prompts)], OWNER)
            for who in OTHERS:
                found, ms = probe(server, prompts, who)
                leaks += found
                print(f"{tier}: {name(who)}: {found} tokens found, {ms / fresh[1]:.2f} of a new prompt's time")
            found, ms = probe(server, prompts, OWNER)
            leaks += found != expected
            print(f"{tier}: {name(OWNER)}, whose they are: {found} of {expected}, {ms / fresh[1]:.2f}")

        with Server(options.binary, options.model, flags) as server:
            probe(server, prompts, OWNER, kv=STORED)
            wait_stored(server, full // 16)
            round_of(server, "pool", 1000, full)
            server.terminate()
        # Under the salts of before they could find what they had computed themselves.
        OTHERS[:] = [(tenant, (salt or "none") + "-again") for tenant, salt in OTHERS]
        with Server(options.binary, options.model, flags) as server:
            round_of(server, "store", 2000, full)
            server.terminate()
    print("nothing was shared" if leaks == 0 else "SHARED, or the owner's own was lost")
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
