"""`outrider node`, started for a test and stopped by it."""

import pathlib
import re
import signal
import subprocess
import tempfile

from server import ROOT


class Node:
    """One of a cluster. Use as a context manager."""

    def __init__(self, binary, model, port, flags=("--threads", "1", "--kv-memory-mb", "64")):
        self.log_file = tempfile.NamedTemporaryFile("w+", prefix="outrider-node-", suffix=".log")
        command = [str(binary), "node", "--join", f"127.0.0.1:{port}", "--model", str(model), *flags]
        self.process = subprocess.Popen(command, stdout=self.log_file, stderr=self.log_file, cwd=ROOT)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.end()

    def end(self):
        """By force, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def log(self):
        return pathlib.Path(self.log_file.name).read_text()

    def send(self, number):
        self.process.send_signal(number)


def cluster_port(server):
    """Where nodes join it."""
    found = []

    def listens():
        found[:] = re.findall(r"nodes join at 127\.0\.0\.1:(\d+)", server.log())
        return bool(found)
    server.wait_until(listens, "the cluster address")
    return int(found[0])
