#!/usr/bin/env python3
"""Writes models.json and snippets.json: what Python's jinja2 makes of the same templates.

    pip install jinja2 gguf numpy
    python make_chat_template_golden.py smollm2-135m.gguf qwen2.5-coder-0.5b.gguf …

Environment and variables are those of transformers' apply_chat_template
(transformers/utils/chat_template_utils.py); the clock stands at NOW."""

import datetime
import json
import pathlib
import sys

from conversations import conversations
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from snippets import DATA, snippets

HERE = pathlib.Path(__file__).parent
NOW = 1767323045  # 2026-01-02 03:04:05


class Generation(Extension):
    """transformers' AssistantTracker without the tracking."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(lineno)

    def _support(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise TemplateError(message)


def strftime_now(form):
    now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
    return now.replace(tzinfo=None).strftime(form)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(source, variables):
    """The text, or None where Python raises."""
    try:
        return environment().from_string(source).render(**variables)
    except Exception as error:  # every error of a template is an error for us too
        print(f"  raises {type(error).__name__}: {error}", file=sys.stderr)
        return None


def model_entry(path):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"]
    special = {}
    for name in ("bos", "eos"):
        key = f"tokenizer.ggml.{name}_token_id"
        if key in fields:
            special[f"{name}_token"] = tokens.contents(fields[key].contents())
    source = fields["tokenizer.chat_template"].contents()
    cases = []
    for case in conversations():
        variables = {"messages": case["messages"], "tools": case.get("tools"), "documents": None,
                     "add_generation_prompt": case.get("add_generation_prompt", True),
                     **special, **case.get("extra", {})}
        cases.append(render(source, variables))
    return {"name": pathlib.Path(path).stem, "template": source, **special, "expected": cases}


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (HERE / name).write_text(text.replace('{"name"', '\n{"name"') + "\n", encoding="utf-8")
    print(name, len(text), "bytes")


def main():
    models = [model_entry(path) for path in sys.argv[1:]]
    if models:
        write("models.json", {"conversations": conversations(), "models": models})
    cases = []
    for name, source in snippets():
        cases.append({"name": name, "source": source, "expected": render(source, DATA)})
        if (cases[-1]["expected"] is None) != name.startswith("error: "):
            sys.exit(f"'{name}' does not do what its list says")
    write("snippets.json", {"now": NOW, "variables": DATA, "snippets": cases})
    print(len(cases), "snippets,", sum(c["expected"] is None for c in cases), "of them errors")


main()
