"""The committed tiny models are what make_tiny_model.py writes, and their parts are sound."""

import hashlib
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import make_tiny_model as tiny  # noqa: E402

# Golden values of other tests were computed from these bytes.
DIGESTS = {
    "tiny-llama.gguf": "884f58ab6ff443fa8105b2bf4e0252316e4c03f82f4c3861cca9a0d17e6051bd",
    "tiny-qwen2.gguf": "eb05f17ccc632ab850ee42c052843752c2a5a9aa9c037d6eb4d2275c9c2ade43",
}


class TinyModelsTest(unittest.TestCase):
    def test_the_committed_files_have_the_known_digests(self):
        for name, digest in DIGESTS.items():
            data = (HERE / "models" / name).read_bytes()
            self.assertEqual(hashlib.sha256(data).hexdigest(), digest, name)

    def test_the_script_reproduces_the_committed_files(self):
        self.assertEqual(set(tiny.MODELS), set(DIGESTS))
        for name, make in tiny.MODELS.items():
            self.assertEqual(hashlib.sha256(make()).hexdigest(), DIGESTS[name], name)

    def test_the_vocabulary_is_a_byte_level_bpe(self):
        for pre, specials_first in [("smollm", True), ("qwen2", False)]:
            entries = dict(tiny.tokenizer(pre, specials_first))
            tokens = set(entries["tokenizer.ggml.tokens"])
            self.assertEqual(len(tokens), tiny.VOCABULARY)
            self.assertLessEqual(set(tiny.byte_to_text().values()), tokens)
            known = set(tiny.byte_to_text().values())
            for merge in entries["tokenizer.ggml.merges"]:
                left, right = merge.split(" ")
                self.assertIn(left, known)  # made of what earlier merges gave
                self.assertIn(right, known)
                self.assertIn(left + right, tokens)
                known.add(left + right)

    def test_bytes_map_to_256_different_printable_characters(self):
        table = tiny.byte_to_text()
        self.assertEqual(len(set(table.values())), 256)
        self.assertEqual((table[ord(" ")], table[ord("\n")], table[ord("a")]), ("Ġ", "Ċ", "a"))


if __name__ == "__main__":
    unittest.main()
