#!/usr/bin/env python3
"""Runs the client suites against the real binary.

Usage: run_e2e.py --binary build/release/outrider --model MODEL.gguf [-k PATTERN]
                  [--suite openai,rpc,life,speed,store,damage,plan,draft,node,gate]
                  [--cpp-client build/release/docs/examples/rpc_client]

Needs tests/e2e/requirements.txt. Any GGUF will do: the suites compare answers with each other.
"""

import argparse
import pathlib
import sys
import unittest

import suite_damage
import suite_draft
import suite_gate
import suite_leave
import suite_life
import suite_node
import suite_openai
import suite_plan
import suite_rpc
import suite_speed
import suite_store
from server import Server

SUITES = {"openai": suite_openai, "rpc": suite_rpc, "life": suite_life,
          "speed": suite_speed, "store": suite_store, "damage": suite_damage, "plan": suite_plan,
          "draft": suite_draft, "node": suite_node, "gate": suite_gate, "leave": suite_leave}


def load(names, pattern):
    loader = unittest.TestLoader()
    if pattern:
        loader.testNamePatterns = [f"*{pattern}*"]
    return unittest.TestSuite(loader.loadTestsFromModule(SUITES[name]) for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--cpp-client")
    parser.add_argument("--suite", default=",".join(SUITES))
    parser.add_argument("-k", dest="pattern")
    options = parser.parse_args()
    for suite in (suite_life, suite_speed, suite_store, suite_damage, suite_plan, suite_draft, suite_node,
                  suite_gate, suite_leave):
        suite.binary = pathlib.Path(options.binary).resolve()
        suite.model = pathlib.Path(options.model).resolve()
    if options.cpp_client:
        suite_life.cpp_client = str(pathlib.Path(options.cpp_client).resolve())

    with Server(suite_life.binary, suite_life.model) as server:
        suite_openai.server = suite_rpc.server = suite_speed.server = server
        result = unittest.TextTestRunner(verbosity=2).run(
            load(options.suite.split(","), options.pattern))
        server.wait_idle()
        code = server.terminate()
        if code != 0:
            print(f"the server ended with code {code}:\n{server.log()}", file=sys.stderr)
    return 0 if result.wasSuccessful() and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
