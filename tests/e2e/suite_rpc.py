"""What a pycapnp client sees of the real server, compared with HTTP token for token."""

import asyncio
import json
import pathlib
import struct
import sys
import unittest

import capnp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples"))
import rpc_client  # noqa: E402: the example is the client under test

server = None  # set by run_e2e


def run(function):
    """Runs `function(service)` on a connection of its own."""

    async def main():
        connection = await rpc_client.Connection.open("127.0.0.1", server.rpc_port)
        return await function(connection.service)

    return asyncio.run(capnp.run(main()))


class Seen:
    """All chunks of one call."""

    def __init__(self):
        self.text, self.ids, self.logprobs, self.finish = {}, {}, {}, {}

    def __call__(self, chunk):
        choice = chunk.choice
        self.text[choice] = self.text.get(choice, "") + chunk.text
        self.ids.setdefault(choice, []).extend(token.id for token in chunk.tokens)
        self.logprobs.setdefault(choice, []).extend(
            token.logprob for token in chunk.tokens if token.hasLogprob)
        if chunk.finishReason != "none":
            self.finish[choice] = str(chunk.finishReason)


def generate(fields):
    seen = Seen()

    async def call(service):
        result = await rpc_client.generate(service, fields, seen)
        return result.seed, result.usage.completionTokens, result.usage.promptTokens

    seed, completion, prompt = run(call)
    return seen, {"seed": seed, "completion_tokens": completion, "prompt_tokens": prompt}


class RpcSuite(unittest.TestCase):
    def http(self, path, body):
        status, _, text = server.request("POST", path, body)
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def test_a_completion_equals_http_token_for_token(self):
        seen, result = generate({"prompt": {"text": "The capital of France is"}, "maxTokens": 16,
                                 "seed": {"value": 3}, "temperature": 0.75, "topP": 0.5,
                                 "logprobs": 1})
        body = self.http("/v1/completions", {"prompt": "The capital of France is", "max_tokens": 16,
                                             "seed": 3, "temperature": 0.75, "top_p": 0.5,
                                             "logprobs": 1, "return_token_ids": True})
        choice = body["choices"][0]
        self.assertEqual(seen.ids[0], choice["token_ids"])
        self.assertEqual(seen.text[0], choice["text"])
        self.assertEqual(seen.finish[0], choice["finish_reason"])
        bits = [struct.pack("<f", value) for value in seen.logprobs[0]]
        self.assertEqual(bits, [struct.pack("<f", v) for v in choice["logprobs"]["token_logprobs"]])
        self.assertEqual(result["seed"], 3)
        self.assertEqual(result["completion_tokens"], body["usage"]["completion_tokens"])

    def test_a_chat_equals_http(self):
        messages = [{"role": "user", "content": "Name a colour."}]
        seen, result = generate({"messages": messages, "maxTokens": 12, "temperature": 0})
        body = self.http("/v1/chat/completions",
                         {"messages": messages, "max_tokens": 12, "temperature": 0})
        self.assertEqual(seen.text[0], body["choices"][0]["message"]["content"])
        self.assertEqual(result["prompt_tokens"], body["usage"]["prompt_tokens"])

    def test_choices_and_stop_strings(self):
        seen, _ = generate({"prompt": {"text": "One, two,"}, "n": 2, "maxTokens": 8,
                            "seed": {"value": 1}})
        self.assertEqual(sorted(seen.finish), [0, 1])
        text = generate({"prompt": {"text": "One, two,"}, "maxTokens": 16, "temperature": 0})
        free = text[0].text[0]
        stop = free[len(free) // 2:len(free) // 2 + 2]
        cut, _ = generate({"prompt": {"text": "One, two,"}, "maxTokens": 16, "temperature": 0,
                           "stop": [stop]})
        self.assertEqual(cut.text[0], free[:free.index(stop)])
        self.assertEqual(cut.finish[0], "stop")

    def test_cached_tokens_are_those_of_http(self):
        ids = [9] + [5 + i * 11 % 200 for i in range(99)]
        body = {"prompt": ids, "max_tokens": 1, "cache_salt": "rpc"}
        self.assertEqual(self.http("/v1/completions", body)["timings"]["cached_tokens_device"], 0)

        def cached(salt):
            async def call(service):
                fields = {"prompt": {"tokens": ids}, "maxTokens": 1, "cacheSalt": salt}
                result = await rpc_client.generate(service, fields, Seen())
                return result.usage.cachedTokens, result.timings.cachedTokensDevice

            return run(call)

        self.assertEqual(cached("rpc"), (96, 96))
        self.assertEqual(cached("another"), (0, 0))

    def test_errors_name_the_field_as_http_does(self):
        for fields, param in (({"prompt": {"text": "x"}, "temperature": -1}, "temperature"),
                              ({"prompt": {"text": "x"}, "n": 99}, "n"),
                              ({}, "prompt"),
                              ({"prompt": {"text": "x"}, "kv": "{"}, "kv")):
            with self.assertRaises(rpc_client.RpcError) as caught:
                generate(fields)
            self.assertEqual(caught.exception.param, param)
            self.assertEqual(caught.exception.code, 400)

    def test_cancelling_the_call_frees_the_request(self):
        async def call(service):
            fields = {"prompt": {"text": "Once"}, "maxTokens": 200, "ignoreEos": True, "n": 8}
            task = asyncio.create_task(
                rpc_client.generate(service, fields, lambda chunk: task.cancel()))
            with self.assertRaises(asyncio.CancelledError):
                await task
            # The connection is still good.
            return (await service.health()).status

        self.assertEqual(run(call), "ready")
        server.wait_idle()

    def test_models_health_and_tokenize(self):
        async def call(service):
            models = (await service.models()).models
            tokens = list((await service.tokenize(input={"prompt": "Hello world"})).tokens)
            text = (await service.detokenize(tokens=tokens)).text
            return models[0].id, tokens, text

        name, tokens, text = run(call)
        http = json.loads(server.request("POST", "/tokenize", {"prompt": "Hello world"})[2])
        self.assertEqual(tokens, http["tokens"])
        self.assertIn("Hello world", text)
        self.assertEqual(json.loads(server.request("GET", "/v1/models")[2])["data"][0]["id"], name)

    def test_many_calls_share_one_connection(self):
        async def call(service):
            seen = [Seen() for _ in range(12)]
            calls = [rpc_client.generate(
                service, {"prompt": {"text": f"Item {i}:"}, "maxTokens": 8, "seed": {"value": i}},
                seen[i]) for i in range(12)]
            await asyncio.gather(*calls)
            return [s.ids[0] for s in seen]

        together = run(call)
        for index in (0, 7):
            alone, _ = generate({"prompt": {"text": f"Item {index}:"}, "maxTokens": 8,
                                 "seed": {"value": index}})
            self.assertEqual(alone.ids[0], together[index])
