"""What the scripts of this folder are asked for: errors name the argument, and help shows defaults."""

import argparse
import json
import pathlib

PROMPTS = json.loads((pathlib.Path(__file__).parent / "speculation_prompts.json").read_text("utf-8"))


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """The module's own lines, and defaults where an argument has help."""


def count(text):
    """1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def counts(text):
    """"1,8,32" as they are, each 1 or more."""
    for part in text.split(","):
        count(part)
    return text


def classes(text):
    """Of the prompts, by commas."""
    known = sorted({prompt["class"] for prompt in PROMPTS})
    for name in text.split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return text


def existing(text):
    """The path of a file."""
    if not pathlib.Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return text
