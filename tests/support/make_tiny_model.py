#!/usr/bin/env python3
"""Writes the tiny GGUF models that the tests run: tiny-llama.gguf and tiny-qwen2.gguf.

Usage: make_tiny_model.py [DIRECTORY]     (default: models/ beside this file)

Their weights are random, their tokenizers are learned from the text below; both are real in every
other way. Integers from a seeded generator and single-rounded arithmetic only, so the bytes are
the same on every machine; make_tiny_model_test.py holds them to that. Python's standard library only.
"""

import math
import pathlib
import struct
import sys
from collections import Counter

# ---- random weights, written straight in their encodings ---------------------------------------

MASK = (1 << 64) - 1


class Random:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def bytes(self, count):
        words = [self.next() for _ in range((count + 7) // 8)]
        return struct.pack("<%dQ" % len(words), *words)[:count]

    def uniform(self):
        """In [-1, 1)."""
        return (self.next() >> 40) / float(1 << 23) - 1.0


def half(value):
    return struct.pack("<e", value)


def f32(value):
    return struct.pack("<f", value)


def bf16(value):
    return struct.pack("<f", value)[2:]


# Uniform codes c in [0, n) have a standard deviation of n / sqrt(12); each encoding centres them
# and scales that to `std`. Scales vary a little, so that a mixed-up scale is noticed.

def vary(rnd, value):
    return value * (1.0 + 0.25 * rnd.uniform())


def block_f32(rnd, std):
    return f32(std * 1.732 * rnd.uniform())


def block_f16(rnd, std):
    return half(std * 1.732 * rnd.uniform())


def block_bf16(rnd, std):
    return bf16(std * 1.732 * rnd.uniform())


def block_q4_0(rnd, std):
    return half(vary(rnd, std / 4.6)) + rnd.bytes(16)


def block_q4_1(rnd, std):
    d = vary(rnd, std / 4.6)
    return half(d) + half(-7.5 * d) + rnd.bytes(16)


def block_q5_0(rnd, std):
    return half(vary(rnd, std / 9.2)) + rnd.bytes(20)


def block_q5_1(rnd, std):
    d = vary(rnd, std / 9.2)
    return half(d) + half(-15.5 * d) + rnd.bytes(20)


def block_q8_0(rnd, std):
    return half(vary(rnd, std / 74.0)) + rnd.bytes(32)


def pack_scales(scales):
    """Eight 6-bit scales, each also the minimum of its group, in Q4_K's and Q5_K's 12 bytes."""
    out = [0] * 12
    for i in range(4):
        out[i] = scales[i] | (scales[i + 4] >> 4) << 6
        out[i + 4] = scales[i] | (scales[i + 4] >> 4) << 6
        out[i + 8] = (scales[i + 4] & 15) | (scales[i + 4] & 15) << 4
    return bytes(out)


def block_q4_k(rnd, std):
    scales = pack_scales([24 + rnd.next() % 40 for _ in range(8)])
    d = std / 4.6 / 44
    return half(d) + half(7.5 * d) + scales + rnd.bytes(128)


def block_q5_k(rnd, std):
    scales = pack_scales([24 + rnd.next() % 40 for _ in range(8)])
    d = std / 9.2 / 44
    return half(d) + half(15.5 * d) + scales + rnd.bytes(160)


def block_q6_k(rnd, std):
    scales = bytes((40 + rnd.next() % 48) * (1 if rnd.next() % 2 else -1) & 255 for _ in range(16))
    return rnd.bytes(192) + scales + half(std / 18.5 / 64)


# name: GGUF's number, weights in a block, its writer
TYPES = {
    "F32": (0, 1, block_f32), "F16": (1, 1, block_f16), "BF16": (30, 1, block_bf16),
    "Q4_0": (2, 32, block_q4_0), "Q4_1": (3, 32, block_q4_1), "Q5_0": (6, 32, block_q5_0),
    "Q5_1": (7, 32, block_q5_1), "Q8_0": (8, 32, block_q8_0), "Q4_K": (12, 256, block_q4_k),
    "Q5_K": (13, 256, block_q5_k), "Q6_K": (14, 256, block_q6_k),
}


def tensor(rnd, name, kind, shape, std):
    """`shape` as matrices are written: rows, columns."""
    number, block, write = TYPES[kind]
    assert shape[-1] % block == 0, name
    count = 1
    for dim in shape:
        count *= dim
    return name, number, shape, b"".join(write(rnd, std) for _ in range(count // block))


def norm(rnd, name, size):
    return name, 0, [size], b"".join(f32(1.0 + 0.2 * rnd.uniform()) for _ in range(size))


# ---- byte-level BPE ----------------------------------------------------------------------------

TEXT = """
The cluster serves language models from actors. A draft model rides ahead of the target, on its own
device or node, and the same request always gives the same answer. The capital of France is Paris.
Once upon a time there was a small river that ran through the town, and the children who lived there
would play in the water when the sun was shining. They told stories about the old mill, the bridge
and the man who had built them both with his own hands. In the evening, when the lights were on,
everyone came home to eat, to talk and to rest. What would you like to know about the weather?
You are a helpful assistant. The user asks a question and the assistant writes an answer in a few
short sentences, with an example if it is needed. There is no reason to be afraid of the other side.
def function(values):
    result = []
    for index, value in enumerate(values):
        if value is not None and value > 0:
            result.append(value * index)
    return result
int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "world";
  std::cout << "Hello, " << name << std::endl;
  return 0;
}
"""


def byte_to_text():
    """GPT-2's map of bytes to printable characters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


def words_of(text):
    """Letters with one space before them, other runs alone: no merge crosses a pre-token."""
    words, current = [], ""
    for c in text:
        is_letter = c.isalpha()
        joins = current and ((is_letter and (current[-1].isalpha() or current == " "))
                             or (not is_letter and c == current[-1] and c == " "))
        if not joins and current:
            words.append(current)
            current = ""
        current += c
    return words + [current]


def learn_merges(count):
    table = byte_to_text()
    words = Counter(tuple(table[b] for b in word.encode()) for word in words_of(TEXT))
    merges = []
    while len(merges) < count:
        pairs = Counter()
        for word, times in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += times
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        merged = Counter()
        for word, times in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append(word[i] + word[i + 1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] += times
        words = merged
    return merges


CHATML = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
          "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
          "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 512


def tokenizer(pre, specials_first):
    table = byte_to_text()
    merges = learn_merges(VOCABULARY - 256 - len(SPECIALS))
    plain = sorted(table.values()) + [a + b for a, b in merges]
    tokens = SPECIALS + plain if specials_first else plain + SPECIALS
    assert len(set(tokens)) == VOCABULARY
    ids = {token: i for i, token in enumerate(tokens)}
    return [
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", pre),
        ("tokenizer.ggml.tokens", tokens),
        ("tokenizer.ggml.token_type", [3 if t in SPECIALS else 1 for t in tokens]),
        ("tokenizer.ggml.merges", [a + " " + b for a, b in merges]),
        ("tokenizer.ggml.bos_token_id", ids["<|im_start|>"]),
        ("tokenizer.ggml.eos_token_id", ids["<|im_end|>"]),
        ("tokenizer.ggml.padding_token_id", ids["<|endoftext|>"]),
        ("tokenizer.ggml.add_bos_token", False),
        ("tokenizer.chat_template", CHATML),
    ]


# ---- the GGUF container ------------------------------------------------------------------------

def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value_of(value):
    """Type number and bytes of a metadata value."""
    if isinstance(value, bool):
        return 7, struct.pack("<B", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, f32(value)
    if isinstance(value, str):
        return 8, text(value)
    if isinstance(value[0], str):
        return 9, struct.pack("<IQ", 8, len(value)) + b"".join(text(v) for v in value)
    return 9, struct.pack("<IQ", 5, len(value)) + struct.pack("<%di" % len(value), *value)


def gguf(metadata, tensors, version=3, alignment=32):
    out = bytearray(struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata)))
    for key, value in metadata:
        number, data = value_of(value)
        out += text(key) + struct.pack("<I", number) + data
    offset = 0
    for name, number, shape, data in tensors:
        out += text(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", dim) for dim in reversed(shape))
        out += struct.pack("<IQ", number, offset)
        offset += -(-len(data) // alignment) * alignment
    for _, _, _, data in tensors:
        out += bytes(-len(out) % alignment)
        out += data
    return bytes(out)


# ---- the two models ----------------------------------------------------------------------------

def head_of(architecture, name, sizes, freq_base):
    p = architecture + "."
    return [
        ("general.architecture", architecture),
        ("general.name", name),
        ("general.alignment", 32),
        (p + "block_count", sizes["layers"]),
        (p + "context_length", 512),
        (p + "embedding_length", sizes["hidden"]),
        (p + "feed_forward_length", sizes["ffn"]),
        (p + "attention.head_count", sizes["heads"]),
        (p + "attention.head_count_kv", sizes["kv_heads"]),
        (p + "attention.key_length", sizes["head_dim"]),
        (p + "attention.value_length", sizes["head_dim"]),
        (p + "attention.layer_norm_rms_epsilon", 1e-5),
        (p + "rope.dimension_count", sizes["head_dim"]),
        (p + "rope.freq_base", freq_base),
    ]


def layer(rnd, index, sizes, kinds, has_bias):
    """Widths of the random weights keep the residual stream dominated by what layers add, so that
    the next token depends on the context and not only on the last token."""
    p = "blk.%d." % index
    hidden, ffn = sizes["hidden"], sizes["ffn"]
    q_dim = sizes["heads"] * sizes["head_dim"]
    kv_dim = sizes["kv_heads"] * sizes["head_dim"]
    unit = 1.0 / math.sqrt(hidden)
    out = [norm(rnd, p + "attn_norm.weight", hidden),
           tensor(rnd, p + "attn_q.weight", kinds["q"], [q_dim, hidden], 1.5 * unit),
           tensor(rnd, p + "attn_k.weight", kinds["k"], [kv_dim, hidden], 1.5 * unit),
           tensor(rnd, p + "attn_v.weight", kinds["v"], [kv_dim, hidden], 1.5 * unit)]
    if has_bias:
        out += [tensor(rnd, p + "attn_q.bias", "F32", [q_dim], 0.5),
                tensor(rnd, p + "attn_k.bias", "F32", [kv_dim], 0.5),
                tensor(rnd, p + "attn_v.bias", "F32", [kv_dim], 0.2)]
    return out + [
        tensor(rnd, p + "attn_output.weight", kinds["o"], [hidden, q_dim], 1.2 / math.sqrt(q_dim)),
        norm(rnd, p + "ffn_norm.weight", hidden),
        tensor(rnd, p + "ffn_gate.weight", kinds["gate"], [ffn, hidden], 1.5 * unit),
        tensor(rnd, p + "ffn_up.weight", kinds["up"], [ffn, hidden], 1.5 * unit),
        tensor(rnd, p + "ffn_down.weight", kinds["down"], [hidden, ffn], 1.0 / math.sqrt(ffn))]


def tiny_llama(seed=1, **other_sizes):
    """Tied head, adjacent-pair rotation, SmolLM2's encodings (Q4_1, Q8_0, F32)."""
    rnd = Random(seed)
    sizes = dict(layers=3, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=16) | other_sizes
    kinds = dict.fromkeys(["q", "k", "v", "o", "gate", "up", "down"], "Q4_1")
    tensors = [tensor(rnd, "token_embd.weight", "Q8_0", [VOCABULARY, sizes["hidden"]], 0.35)]
    for i in range(sizes["layers"]):
        tensors += layer(rnd, i, sizes, kinds, has_bias=False)
    tensors.append(norm(rnd, "output_norm.weight", sizes["hidden"]))
    return gguf(head_of("llama", "Tiny Llama", sizes, 10000.0) + tokenizer("smollm", True), tensors)


def tiny_qwen2():
    """Separate head, biases, rotation of halves, heads narrower than hidden / heads, and between
    its two layers every encoding that tiny-llama lacks."""
    rnd = Random(2)
    sizes = dict(layers=2, hidden=256, ffn=256, heads=4, kv_heads=2, head_dim=32)
    kinds = [dict(q="Q4_K", k="Q5_K", v="Q6_K", o="Q5_0", gate="Q4_K", up="Q5_K", down="Q6_K"),
             dict(q="Q4_0", k="F16", v="BF16", o="Q5_1", gate="Q5_0", up="Q4_K", down="Q6_K")]
    tensors = [tensor(rnd, "token_embd.weight", "Q5_0", [VOCABULARY, sizes["hidden"]], 0.35)]
    for i in range(sizes["layers"]):
        tensors += layer(rnd, i, sizes, kinds[i], has_bias=True)
    tensors.append(norm(rnd, "output_norm.weight", sizes["hidden"]))
    tensors.append(tensor(rnd, "output.weight", "Q6_K", [VOCABULARY, sizes["hidden"]],
                          2.5 / math.sqrt(sizes["hidden"])))
    return gguf(head_of("qwen2", "Tiny Qwen2", sizes, 1000000.0) + tokenizer("qwen2", False),
                tensors)


MODELS = {"tiny-llama.gguf": tiny_llama, "tiny-qwen2.gguf": tiny_qwen2}


def main():
    default = pathlib.Path(__file__).resolve().parent / "models"
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        data = make()
        (directory / name).write_bytes(data)
        print(f"{directory / name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
