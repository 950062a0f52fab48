"""The cluster's port: who may join, and what becomes of everybody else who connects."""

import hashlib
import hmac
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from node import Node, cluster_port
from server import Server
from suite_draft import answers
from suite_node import targets

binary = model = None  # set by run_e2e
NODE = ["--roles", "target", "--threads", "1", "--ctx", "512"]
SECRET = b"the secret of this cluster, and of no other"


VERSION = 5  # k_wire_version
ACTORS, LINE = b"\0", b"\1"  # what a connection is for


def opening(purpose=ACTORS, nonce=None):
    return b"OUTRIDER" + VERSION.to_bytes(2, "little") + b"\0" + purpose + (nonce or os.urandom(32))


def proof(secret, purpose, member, server):
    key = hmac.new(secret, b"outrider cluster handshake", hashlib.sha256).digest()
    return hmac.new(key, b"member" + purpose + member + server, hashlib.sha256).digest()


def frame(operation, payload, length=None):
    length = len(payload) if length is None else length
    return bytes([operation, 0, 0, 0]) + length.to_bytes(4, "big") + os.urandom(24) + payload


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def until_closed(connection):
    """What the server says until it ends the connection."""
    said = b""
    try:
        while part := connection.recv(65536):
            said += part
    except ConnectionError:
        pass
    return said


def shake_hands(port, secret, purpose=ACTORS):
    """A connection that has been let in."""
    connection = connect(port)
    mine = os.urandom(32)
    connection.sendall(opening(purpose, mine))
    theirs = connection.recv(44, socket.MSG_WAITALL)
    if theirs[10] != 0:
        raise ConnectionRefusedError(f"refusal {theirs[10]}")
    connection.sendall(proof(secret, purpose, mine, theirs[12:]))
    assert connection.recv(33, socket.MSG_WAITALL)[0] == 0
    return connection


def refused(server, reason):
    return server.metric("outrider_cluster_refused_total", reason=reason)


class Authority:
    """Makes certificates by the openssl command, in a directory."""

    def __init__(self, directory, name):
        self.directory, self.name = pathlib.Path(directory), name
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                      "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", self.path("key"),
                      "-out", self.path("pem"))

    def path(self, kind):
        return str(self.directory / f"{self.name}.{kind}")

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)

    def flags(self, name):
        """Of a process with a certificate of its own for `name`."""
        files = {kind: str(self.directory / f"{self.name}-{name}.{kind}") for kind in ("key", "csr", "pem")}
        names = pathlib.Path(self.directory / "names")
        names.write_text(f"subjectAltName=DNS:{name}\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                      "-subj", f"/CN={name}", "-keyout", files["key"], "-out", files["csr"])
        self._openssl("x509", "-req", "-in", files["csr"], "-CA", self.path("pem"), "-CAkey",
                      self.path("key"), "-CAcreateserial", "-days", "2", "-extfile", str(names),
                      "-out", files["pem"])
        return ["--cluster-tls-cert", files["pem"], "--cluster-tls-key", files["key"],
                "--cluster-tls-ca", self.path("pem")]


class GateSuite(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.directory = pathlib.Path(made.name)

    def secret(self, text=SECRET):
        path = self.directory / hashlib.sha256(text).hexdigest()[:8]
        path.write_bytes(text)
        path.chmod(0o600)
        return ["--cluster-secret-file", str(path)]

    def serve(self, *flags):
        return Server(binary, model, ["--ctx", "512", "--cluster", "127.0.0.1:0", *flags])

    def test_only_who_has_the_secret_joins(self):
        with self.serve(*self.secret()) as server:
            port = cluster_port(server)
            with Node(binary, model, port, [*NODE, *self.secret()]):
                server.wait_until(lambda: len(targets(server)) == 2, "the target with the secret")
            server.wait_until(lambda: len(targets(server)) == 1, "its end")
            for flags in (self.secret(b"another secret, as long as it"), []):
                with Node(binary, model, port, [*NODE, *flags]) as node:
                    server.wait_until(lambda: "cluster secrets differ" in node.log(), "its word")
            self.assertGreaterEqual(refused(server, "secret"), 2)
            self.assertEqual(len(targets(server)), 1)
            self.assertEqual(server.terminate(), 0)

    def test_only_certificates_of_the_cluster_join(self):
        own, rogue = Authority(self.directory, "own"), Authority(self.directory, "rogue")
        with self.serve(*own.flags("server")) as server:
            plain = answers(server)[0]
            port = cluster_port(server)
            named = ["--cluster-tls-name", "server"]
            with Node(binary, model, port, [*NODE, *own.flags("member"), *named]) as node:
                server.wait_until(lambda: len(targets(server)) == 2, "the target with a certificate")
                self.assertEqual(answers(server)[0], plain)
                node.send(signal.SIGKILL)
                self.assertEqual(answers(server)[0], plain)
            server.wait_until(lambda: len(targets(server)) == 1, "its end")
            stranger = rogue.flags("member")
            stranger[-1] = own.path("pem")
            for flags in ([*stranger, *named], [*own.flags("member"), "--cluster-tls-name", "other"], []):
                with Node(binary, model, port, [*NODE, *flags]) as node:
                    server.wait_until(lambda: "no router" in node.log(), "its word")
            server.wait_until(lambda: refused(server, "tls") >= 3, "the refusals")
            self.assertEqual(len(targets(server)), 1)
            self.assertEqual(server.terminate(), 0)

    def test_an_address_that_others_reach_wants_credentials(self):
        command = [str(binary), "serve", "--model", str(model), "--http", "127.0.0.1:0", "--rpc", "off",
                   "--cluster", ":0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--cluster-secret-file", done.stderr)
        own = Authority(self.directory, "own")
        for flags, word in ((["--cluster-tls-cert", own.path("pem")], "cluster-tls-key: TLS takes all three"),
                            (["--cluster-tls-cert", "/nowhere", *own.flags("x")[2:]], "cluster-tls-cert: cannot read"),
                            ([*own.flags("x")[:3], own.path("key"), *own.flags("y")[4:]], "cluster-tls-key: ")):
            done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)

    def test_a_node_wants_a_name_to_look_for_in_a_certificate(self):
        own = Authority(self.directory, "own")
        command = [str(binary), "node", "--roles", "target", "--model", str(model), *own.flags("member")]
        for flags, word in ((["--join", "127.0.0.1:1"], "join: 127.0.0.1:1 has no name"),
                            (["--join", "server:1,[::1]:1"], "join: [::1]:1 has no name"),
                            (["--join", "127.0.0.1:1", "--cluster-tls-name", "127.0.0.1"],
                             'cluster-tls-name: "127.0.0.1" is an address')):
            done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)

    def hostile(self, port, generator):
        """One connection that is no member's, or what a member's must not do."""
        kind = generator.randrange(8)
        if kind == 7:
            return self.noise_on_a_line(port, generator)
        with (shake_hands(port, SECRET) if kind >= 5 else connect(port)) as connection:
            try:
                if kind == 0:  # noise
                    connection.sendall(generator.randbytes(generator.randrange(1, 100_000)))
                elif kind == 1:  # another protocol
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64))
                elif kind == 2:  # CAF without a handshake, four gigabytes announced
                    connection.sendall(frame(0, b"", 0xffffffff) + bytes(64))
                elif kind == 3:  # a wrong proof
                    connection.sendall(opening() + os.urandom(32))
                elif kind == 4:  # half a word, and gone
                    connection.sendall(opening()[:generator.randrange(1, 44)])
                    connection.shutdown(socket.SHUT_WR)
                elif kind == 5:  # let in: a length that no member sends
                    connection.sendall(frame(generator.randrange(7), b"", generator.randrange(1 << 17, 1 << 32)))
                else:  # let in: right lengths, wrong contents
                    for _ in range(generator.randrange(1, 20)):
                        connection.sendall(frame(generator.randrange(7),
                                                 generator.randbytes(generator.randrange(2000))))
                    connection.shutdown(socket.SHUT_WR)
            except OSError:  # it was cut off before
                return
            until_closed(connection)

    def noise_on_a_line(self, port, generator):
        """Two ends of one, or one alone, where there is room for more."""
        name = generator.randbytes(16)
        try:
            ends = [shake_hands(port, SECRET, LINE) for _ in range(generator.randrange(1, 3))]
            for end in ends:
                end.sendall(name + generator.randbytes(generator.randrange(50_000)))
        except OSError:
            return
        for end in ends:
            end.close()

    def test_strangers_disturb_nobody_and_take_no_memory(self):
        seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
        print(f"seed {seed}", end=" ")
        with self.serve(*self.secret()) as server, \
                Node(binary, model, port := cluster_port(server), [*NODE, *self.secret()]) as node:
            server.wait_until(lambda: len(targets(server)) == 2, "the target")
            plain = answers(server)[0]
            before = server.rss_mb()
            silent = [connect(port) for _ in range(200)]  # more than may wait

            def strangers(number):
                generator = random.Random(seed + number)
                for _ in range(60):
                    self.hostile(port, generator)
            crowd = [threading.Thread(target=strangers, args=(i,)) for i in range(4)]
            for stranger in crowd:
                stranger.start()
            while any(stranger.is_alive() for stranger in crowd):
                self.assertEqual(answers(server)[0], plain)
            for stranger in crowd:
                stranger.join()
            for connection in silent:
                self.assertEqual(until_closed(connection), b"")
                connection.close()
            self.assertEqual(answers(server)[0], plain)
            for reason in ("protocol", "secret", "full", "frame"):
                self.assertGreater(refused(server, reason), 0, reason)
            server.wait_until(lambda: server.metric("outrider_cluster_line_ends") == 0, "the lines' ends")
            self.assertLess(server.rss_mb() - before, 64)
            self.assertEqual(len(targets(server)), 2, "the member is still one")
            self.assertEqual(node.log().count("connected to the router"), 1, node.log())
            self.assertEqual(server.terminate(), 0)
