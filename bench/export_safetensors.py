#!/usr/bin/env python3
"""Writes a GGUF's weights as bfloat16 safetensors with config and tokenizer, for servers that read no
GGUF (vLLM). Needs what tests/golden/make_model_golden.py needs: torch, transformers, gguf.

    bench/export_safetensors.py --model models/smollm2-135m.gguf --out DIRECTORY
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/golden"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()

    import torch
    import transformers
    import make_model_golden as golden

    file = golden.File(args.model)
    tokens = file.get("tokenizer.ggml.tokens")
    bos, eos = (file.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
    model = golden.load_model(file).to(torch.bfloat16)
    for config in (model.config, model.generation_config):
        config.bos_token_id, config.eos_token_id = bos, eos
    model.config.dtype = "bfloat16"
    model.save_pretrained(args.out, safe_serialization=True)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=golden.make_tokenizer(file), bos_token=tokens[bos], eos_token=tokens[eos],
        pad_token=tokens[eos], clean_up_tokenization_spaces=False,
        model_max_length=file.arch_value("context_length"))
    tokenizer.chat_template = file.get("tokenizer.chat_template")
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
