#!/usr/bin/env python3
"""Writes the numeric goldens: what a GGUF model computes in float32, judged by transformers.

The weights are dequantised with the `gguf` package and put into transformers' own Llama or Qwen2
module by hand, because transformers' GGUF loader takes every head to be width / heads wide
(`--cross-check` compares both ways, tensor by tensor; it needs accelerate). The tokenizer is built here from
the file's vocabulary and merges with the pre-tokenizer that the file names: the one transformers
builds from a GGUF ignores that name and is wrong for digits.

    python3 -m venv gold && gold/bin/pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0
    gold/bin/python tests/golden/make_model_golden.py --model models/smollm2-135m.gguf \
        --out tests/golden/smollm2-135m.json
    gold/bin/python tests/golden/make_model_golden.py --model tests/support/models/tiny-llama.gguf \
        --random-ids 300,65,33,7 --probe-every 5 --out tests/golden/tiny-llama.json

Memory: 4 bytes a weight (7.1 GB for qwen2.5-coder-1.5b). README.md describes the file written.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gguf
import jinja2
import numpy
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL_TOKEN, USER_TOKEN = 3, 4  # token types that text is searched for before the BPE
WINDOW_TOKENS_MAX = 1024
TOP = 20
GREEDY_STEPS = 32
PROMPTS = [("capital", "The capital of France is"), ("fibonacci", "def fibonacci(n):\n")]
CHAT = ("haiku", [{"role": "user", "content": "Write a haiku about rain."}])

HF_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class File:
    """Metadata and dequantised tensors of one GGUF."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.arch = self.get("general.architecture")

    def get(self, key, default=None):
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def arch_value(self, key, default=None):
        value = self.get(f"{self.arch}.{key}", default)
        if value is None:
            sys.exit(f"{self.path}: no {self.arch}.{key}")
        return value

    def tensor_rows(self, name):
        return int(self.tensors[name].shape[1])

    def tensor(self, name):
        t = self.tensors[name]
        values = gguf.dequantize(t.data, t.tensor_type).astype(numpy.float32)
        return values.reshape([int(n) for n in reversed(t.shape)])


def make_config(file):
    """The transformers configuration that the file's metadata describes."""
    heads = file.arch_value("attention.head_count")
    width = file.arch_value("embedding_length")
    common = dict(
        vocab_size=file.tensor_rows("token_embd.weight"),
        hidden_size=width,
        intermediate_size=file.arch_value("feed_forward_length"),
        num_hidden_layers=file.arch_value("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=file.arch_value("attention.head_count_kv", heads),
        head_dim=file.arch_value("attention.key_length", width // heads),
        max_position_embeddings=file.arch_value("context_length"),
        rms_norm_eps=file.arch_value("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default",
                         "rope_theta": file.arch_value("rope.freq_base", 10000.0)},
        tie_word_embeddings="output.weight" not in file.tensors,
        attn_implementation="eager",
    )
    if file.arch == "llama":
        return transformers.LlamaConfig(**common)
    if file.arch == "qwen2":
        return transformers.Qwen2Config(use_sliding_window=False, **common)
    sys.exit(f"{file.path}: architecture {file.arch} is not handled")


def hf_name(name):
    """transformers' name of a GGUF tensor."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    if name == "output.weight":
        return "lm_head.weight"
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{HF_NAMES[part]}.{kind}"


def halves_from_adjacent(rows, heads):
    """GGUF's llama interleaves the two halves of each head of q and k; transformers does not."""
    shape = rows.shape
    pairs = rows.reshape(heads, shape[0] // heads // 2, 2, *shape[1:])
    return pairs.swapaxes(1, 2).reshape(shape)


def load_model(file):
    config = make_config(file)
    kind = {"llama": transformers.LlamaForCausalLM, "qwen2": transformers.Qwen2ForCausalLM}
    model = kind[file.arch](config).to(torch.float32).eval()
    parameters = dict(model.named_parameters())
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name in file.tensors:
        if name == "rope_freqs.weight":
            divide = torch.from_numpy(file.tensor(name).copy())
            model.model.rotary_emb.inv_freq /= divide
            continue
        values = file.tensor(name)
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if file.arch == "llama" and part in heads:
            values = halves_from_adjacent(values, heads[part])
        target = parameters.pop(hf_name(name))
        assert tuple(target.shape) == values.shape, (name, target.shape, values.shape)
        with torch.no_grad():
            target.copy_(torch.from_numpy(numpy.ascontiguousarray(values)))
    assert not parameters, f"no weights for {sorted(parameters)}"
    assert model.config.tie_word_embeddings == ("output.weight" not in file.tensors)
    return model


def cross_check(file, model):
    """Compares every parameter with what transformers' own GGUF loader makes of the file."""
    other = transformers.AutoModelForCausalLM.from_pretrained(
        str(file.path.parent), gguf_file=file.path.name, dtype=torch.float32)
    theirs = dict(other.named_parameters())
    worst = 0.0
    for name, ours in model.named_parameters():
        if name not in theirs:
            print(f"cross-check: transformers has no {name}")
            continue
        difference = (ours - theirs[name]).abs().max().item()
        worst = max(worst, difference)
        if difference > 0:
            print(f"cross-check: {name} differs by {difference}")
    same_rope = torch.equal(model.model.rotary_emb.inv_freq, other.model.rotary_emb.inv_freq)
    print(f"cross-check: {len(theirs)} parameters, largest difference {worst}, "
          f"rope equal: {same_rope}, eps {model.config.rms_norm_eps} / {other.config.rms_norm_eps}")


def make_tokenizer(file):
    tokens = file.get("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ", 1)) for m in file.get("tokenizer.ggml.merges")]
    result = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    pre = file.get("tokenizer.ggml.pre")
    if pre == "smollm":
        split = [pre_tokenizers.Digits(individual_digits=True),
                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    elif pre == "qwen2":
        split = [pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"),
                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    else:
        sys.exit(f"{file.path}: pre-tokenizer {pre} is not handled")
    result.pre_tokenizer = pre_tokenizers.Sequence(split)
    result.decoder = decoders.ByteLevel()
    types = file.get("tokenizer.ggml.token_type")
    result.add_special_tokens([AddedToken(t, normalized=False, special=True)
                               for t, kind in zip(tokens, types)
                               if kind in (CONTROL_TOKEN, USER_TOKEN)])
    return result


def text_windows(file):
    tokenizer = make_tokenizer(file)
    for path in sorted((pathlib.Path(__file__).parent / "texts").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text, path
        assert len(ids) <= WINDOW_TOKENS_MAX, f"{path}: {len(ids)} tokens in one window"
        yield path.name.removesuffix(".txt"), ids


def random_windows(file, spec):
    draw = random.Random(20240917)
    rows = file.tensor_rows("token_embd.weight")
    for length in spec.split(","):
        yield f"random-{length}", [draw.randrange(rows) for _ in range(int(length))]


def prompts(file):
    """Named prompts of the greedy paths."""
    tokenizer = make_tokenizer(file)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(file.get("tokenizer.chat_template"))
    chat = template.render(messages=CHAT[1], add_generation_prompt=True)
    return [(name, tokenizer.encode(text, add_special_tokens=False).ids)
            for name, text in [*PROMPTS, (CHAT[0], chat)]]


def rounded(values):
    return [round(float(v), 5) for v in values]


@torch.no_grad()
def window_golden(model, name, ids, probe_every):
    """Position i judges token i + 1: `nll`, `top1` and `gap` have one entry less than `ids`."""
    logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
    assert logits.dtype == torch.float32 and bool(torch.isfinite(logits).all())
    best = logits.topk(2, dim=-1)
    normaliser = logits.logsumexp(-1)
    nll = normaliser - logits.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    probes = []
    for position in range(probe_every - 1, len(ids) - 1, probe_every):
        top = logits[position].topk(TOP)
        logprobs = rounded(top.values - normaliser[position])
        probes.append({"position": position, "ids": top.indices.tolist(), "logprobs": logprobs})
    return {
        "name": name, "ids": ids, "mean_nll": round(nll.double().mean().item(), 6),
        "nll": rounded(nll), "top1": best.indices[:, 0].tolist(),
        "gap": rounded(best.values[:, 0] - best.values[:, 1]), "probes": probes,
    }


@torch.no_grad()
def greedy_golden(model, name, prompt):
    ids, logprobs, gaps = [], [], []
    cache = None
    feed = torch.tensor([prompt])
    for _ in range(GREEDY_STEPS):
        out = model(feed, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        row = out.logits[0, -1].log_softmax(-1)
        best = row.topk(2)
        ids.append(best.indices[0].item())
        logprobs.append(best.values[0].item())
        gaps.append((best.values[0] - best.values[1]).item())
        feed = torch.tensor([[ids[-1]]])
    return {"name": name, "prompt": prompt, "ids": ids, "logprobs": rounded(logprobs),
            "gap": rounded(gaps)}


def dump(golden, path):
    """JSON with one array or scalar a line, so that a change is visible in a diff."""
    def text(value, indent):
        inner = " " * (indent + 1)
        if isinstance(value, dict):
            items = [f"{inner}{json.dumps(k)}: {text(v, indent + 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[" + ", ".join(text(v, indent) for v in value) + "]"
        return json.dumps(value, separators=(",", ":"))
    pathlib.Path(path).write_text(text(golden, 0) + "\n", encoding="utf-8")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--out", required=True, help="JSON file to write")
    parser.add_argument("--random-ids", metavar="N,N,…",
                        help="windows of N random ids each (seeded) instead of the texts")
    parser.add_argument("--probe-every", type=int, default=64, help="positions between top-20 rows")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cross-check", action="store_true",
                        help="compare the weights with transformers' own GGUF loader")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("highest")
    file = File(options.model)
    windows = list(random_windows(file, options.random_ids) if options.random_ids
                   else text_windows(file))
    model = load_model(file)
    if options.cross_check:
        cross_check(file, model)
    scored = []
    for name, ids in windows:
        scored.append(window_golden(model, name, ids, options.probe_every))
        print(f"{name}: {len(ids)} tokens, mean NLL {scored[-1]['mean_nll']:.4f}", flush=True)
    paths = [greedy_golden(model, name, ids) for name, ids in prompts(file)]
    for path in paths:
        print(f"greedy {path['name']}: smallest gap {min(path['gap']):.4f} {path['ids']}")
    nll = [v for w in scored for v in w["nll"]]
    with open(options.model, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    dump({
        "format": 1, "model": file.path.stem, "sha256": digest, "architecture": file.arch,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__,
                      "tokenizers": tokenizers.__version__, "numpy": numpy.__version__},
        "positions": len(nll), "mean_nll": round(sum(nll) / len(nll), 6),
        "windows": scored, "greedy": paths,
    }, options.out)
    print(f"{options.out}: {len(nll)} positions, mean NLL {sum(nll) / len(nll):.5f}")


if __name__ == "__main__":
    main()
