#!/usr/bin/env python3
"""Writes a GGUF model of random weights in the shape of Llama-3-8B, for speeds where no real model can go.

Usage: make_synthetic_model.py FILE [--layers 32] [--kind Q4_0|Q8_0] [--faint-from N --faint F]

A tensor's numbers depend on its name only. So with --faint-from 2 --faint 0.1 the layers from the third
on add a tenth of what they would, and a model of --layers 2 is a draft model whose guesses the other
often shares; how often, F decides.

Needs numpy. Its tokenizer is that of the tiny test models, filled up to the vocabulary's size.
"""

import argparse
import pathlib
import struct
import sys
import zlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/support"))
import make_tiny_model as tiny  # noqa: E402

SIZES = dict(hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128)
VOCABULARY = 128256
ALIGNMENT = 32
# Name: GGUF's number, bytes of a block of 32, its scale for weights of deviation 1.
KINDS = {"Q4_0": (2, 18, 1 / 4.6), "Q8_0": (8, 34, 1 / 74.0)}


def matrix(name, kind, rows, columns, deviation):
    return name, kind, [rows, columns], deviation


def tensors_of(layers, kind, faint_from, faint):
    hidden, ffn = SIZES["hidden"], SIZES["ffn"]
    kv = SIZES["kv_heads"] * SIZES["head_dim"]
    unit = hidden ** -0.5
    out = [matrix("token_embd.weight", "Q8_0", VOCABULARY, hidden, 0.35)]
    for i in range(layers):
        p = f"blk.{i}."
        adds = faint if i >= faint_from else 1.0
        out += [(p + "attn_norm.weight", "F32", [hidden], 1.0), (p + "ffn_norm.weight", "F32", [hidden], 1.0),
                matrix(p + "attn_q.weight", kind, hidden, hidden, 1.5 * unit),
                matrix(p + "attn_k.weight", kind, kv, hidden, 1.5 * unit),
                matrix(p + "attn_v.weight", kind, kv, hidden, 1.5 * unit),
                matrix(p + "attn_output.weight", kind, hidden, hidden, adds * 1.2 * unit),
                matrix(p + "ffn_gate.weight", kind, ffn, hidden, 1.5 * unit),
                matrix(p + "ffn_up.weight", kind, ffn, hidden, 1.5 * unit),
                matrix(p + "ffn_down.weight", kind, hidden, ffn, adds * ffn ** -0.5)]
    out.append(("output_norm.weight", "F32", [hidden], 1.0))
    out.append(matrix("output.weight", "Q8_0", VOCABULARY, hidden, 2.5 * unit))
    return out


def size_of(kind, shape):
    count = int(numpy.prod(shape))
    return 4 * count if kind == "F32" else count // 32 * KINDS[kind][1]


def data_of(name, kind, shape, deviation):
    random = numpy.random.Generator(numpy.random.SFC64(zlib.crc32(name.encode())))
    count = int(numpy.prod(shape))
    if kind == "F32":
        return (1 + 0.2 * random.uniform(-1, 1, count)).astype("<f4").tobytes()
    _, size, scale = KINDS[kind]
    blocks = random.integers(0, 256, (count // 32, size), dtype=numpy.uint8)
    scales = deviation * scale * (1 + 0.25 * random.uniform(-1, 1, count // 32))
    blocks[:, :2] = scales.astype("<f2").view(numpy.uint8).reshape(-1, 2)
    return blocks.tobytes()


def metadata(layers):
    sizes = SIZES | dict(layers=layers)
    head = [(key, 8192 if key.endswith("context_length") else value)
            for key, value in tiny.head_of("llama", "Synthetic 8B", sizes, 500000.0)]
    filled = []
    for key, value in tiny.tokenizer("smollm", True):
        if key == "tokenizer.ggml.tokens":
            value = value + [f"<|unused_{i}|>" for i in range(VOCABULARY - len(value))]
        elif key == "tokenizer.ggml.token_type":
            value = value + [5] * (VOCABULARY - len(value))
        filled.append((key, value))
    return head + filled


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--kind", choices=KINDS, default="Q4_0")
    parser.add_argument("--faint-from", type=int, default=1 << 30)
    parser.add_argument("--faint", type=float, default=1.0)
    args = parser.parse_args()
    tensors = tensors_of(args.layers, args.kind, args.faint_from, args.faint)
    fields = metadata(args.layers)
    head = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields)))
    for key, value in fields:
        number, data = tiny.value_of(value)
        head += tiny.text(key) + struct.pack("<I", number) + data
    offset = 0
    for name, kind, shape, _ in tensors:
        head += tiny.text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", dim) for dim in reversed(shape))
        head += struct.pack("<IQ", 0 if kind == "F32" else KINDS[kind][0], offset)
        offset += -(-size_of(kind, shape) // ALIGNMENT) * ALIGNMENT
    with open(args.file, "wb") as out:
        out.write(head)
        for name, kind, shape, deviation in tensors:
            out.write(bytes(-out.tell() % ALIGNMENT))
            out.write(data_of(name, kind, shape, deviation))
    print(f"{args.file}: {pathlib.Path(args.file).stat().st_size} bytes")


if __name__ == "__main__":
    main()
