#!/usr/bin/env python3
"""Writes dequantize.txt: random blocks of each weight type and their values by the `gguf` package.

Needs `pip install gguf numpy`. Line: type name, block bytes in hex, values as float bits in hex.
"""
import pathlib

import gguf
import numpy as np

BLOCKS = {"Q4_0": 2, "Q4_1": 2, "Q5_0": 2, "Q5_1": 2, "Q8_0": 2, "Q4_K": 1, "Q5_K": 1, "Q6_K": 1,
          "BF16": 16}
HALF_AT = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2],
           "Q5_K": [0, 2], "Q6_K": [208], "BF16": []}

rng = np.random.default_rng(20260101)
lines = []
for name, count in BLOCKS.items():
    kind = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for block in blocks:
        for at in HALF_AT[name]:
            block[at:at + 2] = np.frombuffer(np.float16(rng.normal() * 0.1).tobytes(), np.uint8)
        if name == "BF16":
            block[1] &= 0xBF  # keeps infinities and NaNs out
    values = gguf.dequantize(blocks.reshape(-1), kind).astype(np.float32).reshape(-1)
    lines.append(f"{name} {blocks.tobytes().hex()} {values.tobytes().hex()}\n")
pathlib.Path(__file__).with_name("dequantize.txt").write_text("".join(lines))
