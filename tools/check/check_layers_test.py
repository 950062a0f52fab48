"""The layer check finds each kind of break in a deliberately broken tree."""

import pathlib
import tempfile
import unittest

import check_layers

TABLE = pathlib.Path(__file__).resolve().parent / "layers.txt"


class LayerCheck(unittest.TestCase):
    def problems(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.check(root, check_layers.read_table(TABLE))

    def test_a_clean_tree_passes(self):
        self.assertEqual([], self.problems({
            "base/a.hpp": "#include <vector>\n",
            "model/b.cpp": '#include "base/a.hpp"\n#include "kernels/ops.hpp"\n',
            "kvstore/c.cpp": "#include <rocksdb/db.h>\n",
            "gateway/caf_bridge.cpp": "#include <caf/all.hpp>\n",
        }))

    def test_an_upward_include_is_found(self):
        found = self.problems({"base/a.hpp": '#include "model/b.hpp"\n'})
        self.assertEqual(["base/a.hpp:1: base may not include model/b.hpp"], found)

    def test_router_and_actors_may_not_meet(self):
        self.assertEqual(["router/a.cpp:1: router may not include actors/b.hpp"],
                         self.problems({"router/a.cpp": '#include "actors/b.hpp"\n'}))
        self.assertEqual(["actors/b.cpp:2: actors may not include router/a.hpp"],
                         self.problems({"actors/b.cpp": '\n#include "router/a.hpp"\n'}))

    def test_two_folders_that_include_each_other_are_named(self):
        found = self.problems({
            "actors/a.cpp": '#include "router/b.hpp"\n',
            "router/b.cpp": '#include "actors/a.hpp"\n',
        })
        self.assertTrue(any("include each other" in problem for problem in found), found)

    def test_a_third_party_header_away_from_home_is_found(self):
        for header, place in [("rocksdb/db.h", "actors/a.cpp"), ("caf/all.hpp", "model/a.cpp"),
                              ("caf/all.hpp", "gateway/http_server.cpp"),
                              ("capnp/message.h", "router/a.cpp"),
                              ("cuda_runtime.h", "kernels/cpu/a.cpp"), ("nccl.h", "link/tcp.cpp")]:
            with self.subTest(header=header, place=place):
                found = self.problems({place: f"#include <{header}>\n"})
                self.assertEqual(1, len(found), found)
                self.assertIn(header, found[0])

    def test_an_unknown_folder_is_found(self):
        self.assertEqual(["misc/a.cpp:1: folder 'misc' is not in the layer table"],
                         self.problems({"misc/a.cpp": "\n"}))


if __name__ == "__main__":
    unittest.main()
