#!/usr/bin/env python3
"""Writes the GGUF and link parts of the fuzz corpus: small files, right and wrong. Run from anywhere.

The other corpora are written by hand. Python's standard library only.
"""

import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import make_tiny_model as tiny  # noqa: E402


def tokens(count):
    return [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm"),
            ("tokenizer.ggml.tokens", [chr(97 + i) for i in range(count)]),
            ("tokenizer.ggml.token_type", [1] * count),
            ("tokenizer.ggml.merges", ["a b"]), ("tokenizer.ggml.eos_token_id", 2)]


def micro_llama(version=3, alignment=32):
    """A whole llama model of one layer, with frequency factors."""
    rnd = tiny.Random(3)
    sizes = dict(layers=1, hidden=32, ffn=32, heads=2, kv_heads=1, head_dim=4)
    kinds = dict(q="Q8_0", k="Q4_0", v="Q4_1", o="F16", gate="Q5_0", up="Q5_1", down="BF16")
    metadata = tiny.head_of("llama", "micro", sizes, 10000.0) + tokens(8)
    metadata = [(k, alignment if k == "general.alignment" else v) for k, v in metadata]
    tensors = [tiny.tensor(rnd, "token_embd.weight", "F32", [8, 32], 1.0)]
    tensors += tiny.layer(rnd, 0, sizes, kinds, has_bias=False)
    tensors.append(tiny.norm(rnd, "output_norm.weight", 32))
    tensors.append(("rope_freqs.weight", 0, [2], struct.pack("<2f", 1.0, 8.0)))
    return tiny.gguf(metadata, tensors, version, alignment)


def micro_qwen2():
    """A whole qwen2 model of one layer with 256-wide encodings, biases and a separate head."""
    rnd = tiny.Random(4)
    sizes = dict(layers=1, hidden=256, ffn=2, heads=1, kv_heads=1, head_dim=2)
    kinds = dict(q="Q4_K", k="Q5_K", v="Q6_K", o="F16", gate="Q4_K", up="Q5_K", down="F16")
    metadata = tiny.head_of("qwen2", "micro", sizes, 1e6) + tokens(4)
    tensors = [tiny.tensor(rnd, "token_embd.weight", "Q6_K", [4, 256], 1.0)]
    tensors += tiny.layer(rnd, 0, sizes, kinds, has_bias=True)
    tensors.append(tiny.norm(rnd, "output_norm.weight", 256))
    tensors.append(tiny.tensor(rnd, "output.weight", "Q4_K", [4, 256], 1.0))
    return tiny.gguf(metadata, tensors)


def every_value():
    """One metadata entry of each type, alone and in an array."""
    values = {0: b"\x01", 1: b"\xff", 2: b"\x01\x00", 3: b"\xff\xff", 4: struct.pack("<I", 7),
              5: struct.pack("<i", -7), 6: struct.pack("<f", 0.5), 7: b"\x01", 8: tiny.text("x"),
              10: struct.pack("<Q", 9), 11: struct.pack("<q", -9), 12: struct.pack("<d", 0.25)}
    out = struct.pack("<4sIQQ", b"GGUF", 3, 0, 2 * len(values))
    for number, data in values.items():
        out += tiny.text(f"v{number}") + struct.pack("<I", number) + data
        out += tiny.text(f"a{number}") + struct.pack("<IIQ", 9, number, 3) + 3 * data
    return out


def frame(kind, stream=0, value=0, message_bytes=0, payload=b"", version=1, magic=b"ORLK"):
    """One frame of a link (link/frame.hpp). Number and check sums are zero: the target puts them right."""
    return struct.pack("<4sBBBBIIQQQQQQ", magic, version, kind, stream, 0, len(payload), 0, 0,
                       value, message_bytes, 0, 0, 0) + payload


def link_streams():
    """What peers of the target's link (3 streams, windows of 4096 bytes) may say, and may not."""
    hello, data, credit, ping = 1, 2, 3, 4
    greeting = frame(hello, 3, 4096)
    parts = [frame(data, 0, 7, 300, bytes(100)) for _ in range(3)]
    return {
        "hello": greeting,
        "no-hello": frame(ping),
        "other-streams": frame(hello, 2, 4096),
        "other-window": frame(hello, 3, 8192),
        "other-version": frame(hello, 3, 4096, version=2),
        "other-magic": frame(hello, 3, 4096, magic=b"GGUF"),
        "one-message": greeting + frame(data, 1, 5, 16, b"sixteen letters."),
        "empty-messages": greeting + b"".join(frame(data, s, s) for s in (0, 1, 2, 1)),
        "parts-in-turn": greeting + b"".join(
            part + frame(data, 2, i, 4, b"four") for i, part in enumerate(parts)),
        "part-of-another-message": greeting + parts[0] + frame(data, 0, 8, 300, bytes(100)),
        "part-too-many": greeting + b"".join(parts) + parts[0],
        "part-left": greeting + parts[0],
        "over-the-message": greeting + frame(data, 0, 1, 2, b"four"),
        "over-the-window": greeting + frame(data, 0, 1, 4096, bytes(64)),
        "over-the-credit": greeting + 17 * frame(data, 1, 1),
        "credit": greeting + b"".join(frame(credit, s, 1256) for s in (0, 1, 2)) + frame(ping),
        "too-much-credit": greeting + frame(credit, 0, 1257),
        "no-such-stream": greeting + frame(data, 3, 1, 1, b"x"),
        "cut-in-header": greeting + parts[0][:40],
        "cut-in-payload": greeting + parts[0][:-1],
    }


def write(name, suffix, files):
    directory = HERE / "corpus" / name
    directory.mkdir(parents=True, exist_ok=True)
    for stem, data in files.items():
        (directory / f"{stem}{suffix}").write_bytes(data)
    total = sum(map(len, files.values()))
    print(f"{directory}: {len(files)} files, {total} bytes")


def main():
    llama = micro_llama()
    files = {
        "micro-llama": llama,
        "micro-llama-v2": micro_llama(version=2),
        "micro-llama-aligned-256": micro_llama(alignment=256),
        "micro-qwen2": micro_qwen2(),
        "every-value": every_value(),
        "header-only": tiny.gguf([], []),
        "one-tensor": tiny.gguf([], [tiny.norm(tiny.Random(5), "t", 4)]),
        "cut-in-metadata": llama[:200],
        "cut-in-tensor-list": llama[:1500],
        "cut-in-data": llama[:-1],
        "tiny-llama-start": (HERE.parent / "support/models/tiny-llama.gguf").read_bytes()[:1024],
        "nested-array": tiny.text("k").join([struct.pack("<4sIQQ", b"GGUF", 3, 0, 1),
                                             struct.pack("<IIQIQ", 9, 9, 1, 9, 1)]),
    }
    write("gguf", ".gguf", files)
    write("link_frame", ".bin", link_streams())


if __name__ == "__main__":
    main()
