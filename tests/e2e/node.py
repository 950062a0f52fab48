"""`outrider node`, started for a test and stopped by it."""

import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading

from server import ROOT, exit_code


class Node:
    """One of a cluster; `join` is a port of this host or addresses, `prefix` what runs the command.
    Use as a context manager."""

    def __init__(self, binary, model, join, flags=("--threads", "1", "--kv-memory-mb", "64"), prefix=()):
        self.log_file = tempfile.NamedTemporaryFile("w+", prefix="outrider-node-", suffix=".log")
        addresses = f"127.0.0.1:{join}" if isinstance(join, int) else join
        command = [*prefix, str(binary), "node", "--join", addresses, "--model", str(model), *flags]
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
        self.log_file.close()

    def exit_code(self):
        return exit_code(self.process)

    def log(self):
        return pathlib.Path(self.log_file.name).read_text()

    def send(self, number):
        self.process.send_signal(number)


class Way:
    """A way to a cluster port that can be cut, whole or in one direction: nothing arrives until it is
    healed, and then all does, as TCP would have it. Use as a context manager."""

    def __init__(self, port):
        self.there = ("127.0.0.1", port)
        self.open = {"to node": threading.Event(), "to server": threading.Event()}
        self.heal()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.heal()
        self.listener.close()

    def cut(self, *directions):
        for direction in directions or self.open:
            self.open[direction].clear()

    def heal(self):
        for way in self.open.values():
            way.set()

    def changed(self, direction, data):
        return data

    def _accept(self):
        while True:
            try:
                node = self.listener.accept()[0]
            except OSError:
                return
            try:
                server = socket.create_connection(self.there)
            except OSError:  # it is down
                node.close()
                continue
            for source, sink, direction in ((node, server, "to server"), (server, node, "to node")):
                threading.Thread(target=self._pass, args=(source, sink, direction), daemon=True).start()

    def _pass(self, source, sink, direction):
        try:
            while data := source.recv(1 << 20):
                self.open[direction].wait()
                sink.sendall(self.changed(direction, data))
        except OSError:
            pass
        self.open[direction].wait()  # an end does not arrive either
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)  # wakes the other direction's thread
            except OSError:
                pass
            end.close()


class Ways:
    """A place where a node runs: this host, behind a way to each of some cluster ports."""

    prefix = ()

    def __init__(self, ports):
        self.ways = [Way(port) for port in ports]
        self.join = ",".join(f"127.0.0.1:{way.port}" for way in self.ways)

    def cut(self, *directions):
        for way in self.ways:
            way.cut(*directions)

    def heal(self):
        for way in self.ways:
            way.heal()

    def close(self):
        for way in self.ways:
            way.close()


class Renaming(Way):
    """On it one word of what the server says becomes another, as long: to the node it is a message
    that it does not know."""

    def __init__(self, port, word, other):
        assert len(word) == len(other)
        self.word, self.other = word.encode(), other.encode()
        super().__init__(port)

    def changed(self, direction, data):
        return data.replace(self.word, self.other) if direction == "to node" else data


def cluster_port(server):
    """Where nodes join it."""
    found = []

    def listens():
        found[:] = re.findall(r"nodes join at \S+:(\d+)", server.log())
        return bool(found)
    server.wait_until(listens, "the cluster address")
    return int(found[0])
