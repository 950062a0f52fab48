"""What the openai client sees of the real server."""

import asyncio
import itertools
import unittest

import openai

server = None  # set by run_e2e

MESSAGES = [{"role": "user", "content": "Write one sentence about the sea."}]


# Prompts of token ids that no other test sends; blocks have 16.
fresh = itertools.count(1)


def fresh_ids(count):
    first = next(fresh)
    return [first] + [5 + (first * 31 + i * 7) % 200 for i in range(count - 1)]


class OpenAiSuite(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        self.model = self.client.models.list().data[0].id

    def chat(self, **fields):
        fields = {"max_tokens": 24, "seed": 1, "messages": MESSAGES, **fields}
        return self.client.chat.completions.create(model=self.model, **fields)

    def complete(self, prompt="The capital of France is", **fields):
        fields = {"max_tokens": 16, "seed": 1, **fields}
        return self.client.completions.create(model=self.model, prompt=prompt, **fields)

    def test_models_say_their_context(self):
        model = self.client.models.list().data[0]
        self.assertGreater(model.max_model_len, 0)
        self.assertEqual(self.client.models.retrieve(model.id).id, model.id)

    def test_chat_answers_with_usage_and_seed(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertLessEqual(usage.completion_tokens, 24)
        self.assertGreaterEqual(usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual(answer.seed, 1)
        self.assertTrue(answer.system_fingerprint)

    def test_stream_equals_whole(self):
        for temperature in (0, 1):
            whole = self.chat(temperature=temperature)
            stream = self.chat(temperature=temperature, stream=True,
                               stream_options={"include_usage": True})
            text, finish, usage, roles = "", None, None, 0
            for chunk in stream:
                self.assertEqual(chunk.object, "chat.completion.chunk")
                if not chunk.choices:
                    usage = chunk.usage
                    continue
                choice = chunk.choices[0]
                roles += choice.delta.role is not None
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
            self.assertEqual(text, whole.choices[0].message.content)
            self.assertEqual(finish, whole.choices[0].finish_reason)
            self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
            self.assertEqual(roles, 1)

    def test_completion_stream_equals_whole_with_logprobs(self):
        whole = self.complete(logprobs=3, temperature=0.8)
        parts = list(self.complete(logprobs=3, temperature=0.8, stream=True))
        joined = {"tokens": [], "token_logprobs": [], "text_offset": []}
        for part in parts:
            for name, values in joined.items():
                values.extend(getattr(part.choices[0].logprobs, name))
        for name, values in joined.items():
            self.assertEqual(values, getattr(whole.choices[0].logprobs, name))
        self.assertEqual("".join(p.choices[0].text for p in parts), whole.choices[0].text)

    def test_the_seed_repeats_the_answer_and_another_does_not(self):
        same = [self.complete(seed=42, temperature=1.0).choices[0].text for _ in range(2)]
        self.assertEqual(same[0], same[1])
        others = {self.complete(seed=s, temperature=1.0).choices[0].text for s in range(4)}
        self.assertGreater(len(others), 1)

    def test_a_drawn_seed_repeats_the_answer(self):
        first = self.complete(seed=None, temperature=1.0)
        again = self.complete(seed=first.seed, temperature=1.0)
        self.assertEqual(first.choices[0].text, again.choices[0].text)

    def test_two_choices_differ_and_match_their_own_seeds(self):
        both = self.complete(n=2, temperature=1.0, seed=5)
        self.assertEqual([c.index for c in both.choices], [0, 1])
        for choice in both.choices:
            alone = self.complete(temperature=1.0, seed=5 + choice.index)
            self.assertEqual(choice.text, alone.choices[0].text)
        self.assertNotEqual(both.choices[0].text, both.choices[1].text)

    def test_equal_prompts_get_different_answers_that_the_seed_repeats(self):
        first = self.complete(prompt=["Once"] * 3, seed=None, temperature=1.0)
        texts = [choice.text for choice in first.choices]
        self.assertEqual(len(set(texts)), 3)
        again = self.complete(prompt=["Once"] * 3, seed=first.seed, temperature=1.0)
        self.assertEqual([choice.text for choice in again.choices], texts)
        last = self.complete(prompt="Once", seed=first.seed + 2, temperature=1.0)
        self.assertEqual(last.choices[0].text, texts[2])

    def cached(self, prompt, **fields):
        answer = self.complete(prompt=prompt, **{"max_tokens": 2, **fields})
        self.assertEqual(answer.timings["cached_tokens_device"],
                         answer.usage.prompt_tokens_details.cached_tokens)
        return answer.usage.prompt_tokens_details.cached_tokens

    def test_a_prompt_that_begins_as_another_is_cached_block_by_block(self):
        prompt = fresh_ids(100)
        before = {name: server.metric(name) for name in
                  ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")}
        whole = self.complete(prompt=prompt, temperature=0.8, logprobs=2)
        self.assertEqual(whole.usage.prompt_tokens_details.cached_tokens, 0)
        again = self.complete(prompt=prompt, temperature=0.8, logprobs=2)
        self.assertEqual(again.usage.prompt_tokens_details.cached_tokens, 96)
        self.assertEqual(again.choices[0], whole.choices[0])
        self.assertEqual(self.cached(prompt[:70] + fresh_ids(40)), 64)
        self.assertEqual(self.cached(prompt[:96]), 80, "the last token is computed")
        self.assertEqual(self.cached(prompt, echo=True, logprobs=1), 0, "its rows are needed")
        counted = {name: server.metric(name) - count for name, count in before.items()}
        self.assertEqual(counted["vllm:prefix_cache_queries_total"], 100 + 100 + 110 + 96)
        self.assertEqual(counted["vllm:prefix_cache_hits_total"], 96 + 64 + 80)
        self.assertGreater(server.metric("outrider_prefix_cache_blocks"), 0)

    def test_a_conversation_finds_its_own_answers(self):
        prompt = fresh_ids(40)
        extra = {"ignore_eos": True, "return_token_ids": True}
        answer = self.complete(prompt=prompt, max_tokens=60, extra_body=extra)
        turn = prompt + answer.choices[0].token_ids + fresh_ids(5)
        self.assertEqual(self.cached(turn), 96)  # 99 tokens were computed

    def test_salts_share_nothing(self):
        prompt = fresh_ids(100)
        for salt in ("a", "b"):
            body = {"cache_salt": salt}
            self.assertEqual(self.cached(prompt, extra_body=body), 0)
            self.assertEqual(self.cached(prompt, extra_body=body), 96)
        self.assertEqual(self.cached(prompt), 0)
        with self.assertRaises(openai.BadRequestError):
            self.cached(prompt, extra_body={"cache_salt": ""})

    def test_a_stream_tells_its_cached_tokens_at_its_end(self):
        prompt = fresh_ids(50)
        for expected in (0, 48):
            parts = list(self.complete(prompt=prompt, stream=True,
                                       stream_options={"include_usage": True}))
            self.assertEqual(parts[-1].usage.prompt_tokens_details.cached_tokens, expected)

    def test_what_is_asked_for_at_once_is_computed_once(self):
        prompt = fresh_ids(320)

        async def main():
            async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none",
                                          max_retries=0) as client:
                return await asyncio.gather(*(
                    client.completions.create(model=self.model, prompt=prompt + [5 + i] * 3,
                                              max_tokens=2, temperature=0) for i in range(8)))

        cached = sorted(a.usage.prompt_tokens_details.cached_tokens for a in asyncio.run(main()))
        self.assertEqual(cached, [0] + [320] * 7)

    def test_chat_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3, max_tokens=8, temperature=0)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), answer.usage.completion_tokens)
        for entry in content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            best = max(top.logprob for top in entry.top_logprobs)
            self.assertAlmostEqual(best, entry.logprob, places=5)  # greedy takes the best
            self.assertIsInstance(entry.bytes, list)

    def test_completion_logprobs_and_echo(self):
        answer = self.complete(prompt="one two three", echo=True, logprobs=2, max_tokens=4)
        logprobs = answer.choices[0].logprobs
        self.assertTrue(answer.choices[0].text.startswith("one two three"))
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertEqual(len(logprobs.tokens), answer.usage.total_tokens)
        self.assertEqual(logprobs.text_offset[0], 0)

    def test_echo_alone_scores_the_prompt(self):
        answer = self.complete(prompt="one two three", echo=True, logprobs=0, max_tokens=0)
        self.assertEqual(answer.choices[0].text, "one two three")
        self.assertEqual(len(answer.choices[0].logprobs.tokens), answer.usage.prompt_tokens)

    def test_stop_strings_never_show(self):
        free = self.complete(temperature=0, max_tokens=24).choices[0].text
        stop = free[len(free) // 2:len(free) // 2 + 2]
        for stream in (False, True):
            answer = self.complete(temperature=0, max_tokens=24, stop=[stop], stream=stream)
            parts = list(answer) if stream else [answer]
            text = "".join(p.choices[0].text for p in parts)
            self.assertEqual(text, free[:free.index(stop)])
            self.assertEqual(parts[-1].choices[0].finish_reason, "stop")

    def test_length_and_minimum(self):
        answer = self.complete(max_tokens=5, extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 5)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        # A token that would end the answer as its first one must wait for the fourth.
        free = self.complete(max_tokens=1, temperature=0, extra_body={"return_token_ids": True})
        stop = {"stop_token_ids": free.choices[0].token_ids}
        bias = {str(free.choices[0].token_ids[0]): 100}
        at_once = self.complete(max_tokens=8, temperature=0, logit_bias=bias, extra_body=stop)
        self.assertEqual(at_once.usage.completion_tokens, 1)
        later = self.complete(max_tokens=8, temperature=0, logit_bias=bias,
                              extra_body={**stop, "min_tokens": 3})
        self.assertEqual(later.usage.completion_tokens, 4)
        self.assertEqual(later.choices[0].finish_reason, "stop")

    def test_several_prompts_answer_in_order(self):
        prompts = ["The sky is", "Water is"]
        both = self.complete(prompt=prompts, temperature=0)
        for index, prompt in enumerate(prompts):
            alone = self.complete(prompt=prompt, temperature=0)
            self.assertEqual(both.choices[index].text, alone.choices[0].text)

    def test_token_ids_go_in_and_come_out(self):
        text = self.complete(prompt="Hello world", temperature=0,
                             extra_body={"return_token_ids": True}).choices[0]
        ids = self.complete(prompt=text.prompt_token_ids, temperature=0).choices[0]
        self.assertEqual(text.text, ids.text)
        self.assertGreater(len(text.token_ids), 0)

    def test_prompt_logprobs(self):
        answer = self.complete(prompt="one two three", max_tokens=1,
                               extra_body={"prompt_logprobs": 1})
        entries = answer.choices[0].prompt_logprobs
        self.assertEqual(len(entries), answer.usage.prompt_tokens)
        self.assertIsNone(entries[0])

    def test_logit_bias_forces_a_token(self):
        choice = self.complete(max_tokens=3, logit_bias={"5": 100}, temperature=0,
                               extra_body={"return_token_ids": True}).choices[0]
        self.assertEqual(choice.token_ids, [5, 5, 5])

    def test_errors_have_type_param_and_code(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        self.assertEqual(str(caught.exception.code), "400")
        self.assertTrue(caught.exception.request_id)
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.completions.create(model="gpt-9", prompt="x")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("gpt-9")
        self.assertEqual(caught.exception.code, "model_not_found")
        self.assertEqual(caught.exception.param, "model")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(max_tokens=10_000_000)
        self.assertEqual(caught.exception.param, "max_tokens")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(prompt="word " * 100_000)
        self.assertEqual(caught.exception.param, "prompt")

    def test_content_parts_and_unknown_fields(self):
        parts = [{"type": "text", "text": MESSAGES[0]["content"]}]
        as_parts = self.chat(messages=[{"role": "user", "content": parts}],
                             extra_body={"wibble": 1}, temperature=0)
        self.assertEqual(as_parts.choices[0].message.content,
                         self.chat(temperature=0).choices[0].message.content)

    def test_leaving_a_stream_frees_it(self):
        stream = self.complete(max_tokens=200, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        server.wait_idle()

    def test_a_deadline_ends_the_request(self):
        with self.assertRaises(openai.APIStatusError) as caught:
            self.complete(max_tokens=200, extra_body={"ignore_eos": True, "deadline_ms": 1})
        self.assertEqual(caught.exception.status_code, 504)

    def test_tokenize_agrees_with_usage(self):
        import json
        status, _, text = server.request("POST", "/tokenize", {"messages": MESSAGES})
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(text)["count"], self.chat().usage.prompt_tokens)

    def test_many_at_once_answer_as_alone(self):
        prompts = [f"Number {i} is" for i in range(16)]
        alone = [self.complete(prompt=p, temperature=1.0).choices[0].text for p in prompts]

        async def together():
            client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none")
            calls = [client.completions.create(model=self.model, prompt=p, seed=1, max_tokens=16,
                                               temperature=1.0) for p in prompts]
            return [answer.choices[0].text for answer in await asyncio.gather(*calls)]

        self.assertEqual(asyncio.run(together()), alone)
