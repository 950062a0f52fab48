"""Prints the codebook of KvKind::q3: weighted k-means (Lloyd) of eight levels.

Samples are blocks of 32 normal numbers divided by their largest magnitude, as the store scales
them; a block's errors weigh as the square of what they are multiplied by again.
"""

import argparse
import bisect
import itertools
import random


def codebook(blocks: int, rounds: int, seed: int) -> list[float]:
    draw = random.Random(seed)
    samples = []
    for _ in range(blocks):
        block = [draw.gauss(0, 1) for _ in range(32)]
        scale = max(map(abs, block))
        # Mirrored, since the distribution is symmetric.
        samples += [(sign * x / scale, scale * scale) for x in block for sign in (1, -1)]
    samples.sort()
    values = [x for x, _ in samples]
    weights = [0.0, *itertools.accumulate(w for _, w in samples)]
    moments = [0.0, *itertools.accumulate(w * x for x, w in samples)]
    levels = [-1 + 2 * i / 7 for i in range(8)]
    for _ in range(rounds):
        cuts = [bisect.bisect(values, (a + b) / 2) for a, b in itertools.pairwise(levels)]
        parts = itertools.pairwise([0, *cuts, len(values)])
        levels = [(moments[b] - moments[a]) / (weights[b] - weights[a]) for a, b in parts]
    return levels


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(", ".join(f"{v:.4f}f" for v in codebook(args.blocks, args.rounds, args.seed)))
