"""What may happen to a KV store's directory between two starts, or to its disk: each request is
answered as without a store, and what did not come from it has a counted reason.

Servers of its own, with a model of its own.
"""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import wide_model
from server import Server, wait_out_an_echo

binary = model = None  # set by run_e2e; the model is not used

PROMPT_TOKENS = 400
FULL_TOKENS = (PROMPT_TOKENS - 1) // wide_model.BLOCK * wide_model.BLOCK
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def obey_permissions():
    """Runs in the new process: root reads and writes only what its owner may."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if os.geteuid() == 0 and libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot give up a capability")


def small_files():
    """Runs in the new process: no file beyond 4 MiB, an error rather than a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))


@contextlib.contextmanager
def held_salvage(directory):
    """A salvage of it waits for a file that is leased here until then (or until the system ends the
    lease, after 45 s)."""
    table = directory / "db" / "lost" / "009999.sst"
    table.parent.mkdir()
    table.write_text("none")
    held = os.open(table, os.O_RDWR)
    fcntl.fcntl(held, 10, signal.SIGURG)  # F_SETSIG; the other signal ends a process
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    try:
        yield
    finally:
        os.close(held)


def refuses(server):
    try:
        socket.create_connection(("127.0.0.1", server.http_port)).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it closes
        pass
    return False


class Damage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="outrider-e2e-damage-")
        cls.addClassCleanup(temporary.cleanup)
        cls.root = pathlib.Path(temporary.name)
        cls.model, cls.other_model = (wide_model.write_model(cls.root, seed) for seed in (1, 2))
        draw = random.Random(1)
        cls.prompts = [wide_model.tokens(draw, PROMPT_TOKENS) for _ in range(3)]
        cls.recorded, cls.other_recorded = (cls.record(path) for path in (cls.model, cls.other_model))
        # A stop writes what waits for its flush: two payload files, and the third prompt is pinned.
        cls.golden = cls.root / "golden"
        for ids, kv in zip(cls.prompts, ({"ttl_s": 86400}, {"ttl_s": 86400}, {"pin": True})):
            with cls.serve(cls.golden) as server:
                wide_model.complete(server, ids, kv=kv)
                assert server.terminate() == 0, server.log()

    @classmethod
    def record(cls, path):
        with Server(binary, path, wide_model.FLAGS) as plain:
            return [wide_model.complete(plain, ids)[0] for ids in cls.prompts]

    @classmethod
    def serve(cls, directory, path=None, prepare=None, flags=()):
        flags = [*wide_model.FLAGS, "--store-dir", str(directory), *flags]
        return Server(binary, path or cls.model, flags, prepare=prepare)

    def setUp(self):
        self.directory = self.root / "kv"
        shutil.copytree(self.golden, self.directory)
        self.addCleanup(shutil.rmtree, self.directory)

    def ask_all(self, server, recorded=None):
        """Every answer is right. Tokens that the store brought."""
        cold = 0
        for ids, right in zip(self.prompts, recorded or self.recorded):
            answer, timings = wide_model.complete(server, ids, kv={"stop_rule": "wait_complete"})
            self.assertEqual(answer, right)
            self.assertEqual(timings["cached_tokens_device"], 0)
            cold += timings["cached_tokens_cold"]
        return cold

    def counted(self, server, what, **labels):
        return server.metric(f"outrider_kv_store_{what}", **labels)

    def lost(self, server):
        """Loads that did not bring all though they were tried, and directories salvaged or moved aside."""
        untroubled = sum(self.counted(server, "loads_total", end=end) for end in ("complete", "gated"))
        return (self.counted(server, "loads_total") - untroubled
                + self.counted(server, "salvaged_total") + self.counted(server, "quarantined_total"))

    def all_is_found(self, directory=None):
        """The first prompt is always read; after that a slow disk may close the gate."""
        with self.serve(directory or self.directory) as server:
            cold = self.ask_all(server)
            gated = self.counted(server, "loads_total", end="gated")
            self.assertEqual(cold, (len(self.prompts) - gated) * FULL_TOKENS)
            self.assertEqual(self.lost(server), 0)
            self.assertGreater(cold, 0)
            self.assertEqual(server.terminate(), 0)

    def check_harmless(self, what, damage, keeps_all=False):
        shutil.rmtree(self.directory)
        shutil.copytree(self.golden, self.directory)
        with self.subTest(what):
            damage()
            with self.serve(self.directory) as server:
                cold = self.ask_all(server)
                lost = self.lost(server)
                gated = self.counted(server, "loads_total", end="gated")
                all_tokens = (len(self.prompts) - gated) * FULL_TOKENS
                if self.counted(server, "quarantined_total"):
                    self.assertFalse(keeps_all, "all of it is there")
                    self.assertEqual(cold, 0)
                    self.assertTrue((self.directory / "quarantine").is_dir())
                elif cold < all_tokens:
                    self.assertGreater(lost, 0, "counted by reason")
                if keeps_all:
                    self.assertEqual(cold, all_tokens)
                self.assertEqual(self.counted(server, "available"), 1, "it goes on")
                self.assertEqual(server.terminate(), 0)
            return lost
        return 0

    def test_what_nobody_touched_is_found(self):
        self.all_is_found()

    def test_files_cut_lost_and_exchanged_cost_time_and_nothing_else(self):
        names = sorted(file.name for file in (self.golden / "db").iterdir())
        tables = sorted((name for name in names if name.endswith(".sst")),
                        key=lambda name: (self.golden / "db" / name).stat().st_size)
        self.assertGreaterEqual(len(tables), 4, f"two of payload, rows, pinned records: {names}")
        manifest = next(name for name in names if name.startswith("MANIFEST"))
        log = next(name for name in names if name.endswith(".log"))
        database = self.directory / "db"

        def cut(name):
            size = (database / name).stat().st_size
            os.truncate(database / name, size // 2)

        def exchange(one, other):
            (database / one).rename(database / "aside")
            (database / other).rename(database / one)
            (database / "aside").rename(database / other)

        lost = 0
        for name in (tables[-1], tables[0], manifest, log, "CURRENT"):
            keeps = name in (manifest, "CURRENT")
            lost += self.check_harmless(f"{name} cut", lambda name=name: cut(name), keeps)
            lost += self.check_harmless(f"{name} lost", (database / name).unlink, keeps)
        for one, other in ((tables[-1], tables[-2]), (tables[-1], tables[0]), (manifest, "CURRENT")):
            lost += self.check_harmless(f"{one} and {other} exchanged",
                                        lambda one=one, other=other: exchange(one, other))
        self.assertGreater(lost, 5, "the damage was felt")

    def test_a_kill_amid_a_salvage_costs_nothing(self):
        (self.directory / "db" / "CURRENT").unlink()
        with held_salvage(self.directory):
            with Server(binary, self.model, [*wide_model.FLAGS, "--store-dir", str(self.directory)],
                        wait=False) as server:
                server.wait_until((self.directory / "db" / "SALVAGING").exists, "a salvage")
                server.process.kill()
        shutil.rmtree(self.directory / "db" / "lost")
        with self.serve(self.directory) as server:
            cold = self.ask_all(server)
            gated = self.counted(server, "loads_total", end="gated")
            self.assertEqual(cold, (len(self.prompts) - gated) * FULL_TOKENS)
            self.assertEqual(self.counted(server, "salvaged_total"), 1)
            self.assertEqual(self.counted(server, "quarantined_total"), 0)
            self.assertEqual(server.terminate(), 0)
        self.all_is_found()

    def test_a_signal_ends_a_stop_that_waits_for_the_store(self):
        (self.directory / "db" / "CURRENT").unlink()
        with held_salvage(self.directory), self.serve(self.directory) as server:
            server.process.send_signal(signal.SIGTERM)
            server.wait_until(lambda: refuses(server), "the ports' end")
            self.assertIsNone(server.process.poll(), "it waits for the salvage")
            self.assertNotIn("stopped", server.log())
            wait_out_an_echo()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.exit_code(), 1, server.log())
        self.is_salvaged()

    def test_a_stop_that_hangs_is_given_up(self):
        (self.directory / "db" / "CURRENT").unlink()
        with held_salvage(self.directory), \
                self.serve(self.directory, flags=("--drain-timeout-s", "0")) as server:
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.exit_code(), 3, server.log())
            self.assertIn("the stop hangs: closing the KV store, for ", server.log())
        self.assertEqual((self.directory / "db" / "SALVAGING").read_text(), "0", "it counts as a try")
        self.is_salvaged()

    def is_salvaged(self):
        shutil.rmtree(self.directory / "db" / "lost")
        with self.serve(self.directory) as server:
            self.assertEqual(self.counted(server, "salvaged_total"), 1)
            self.assertEqual(server.terminate(), 0)
            self.assertIn("stopped", server.log())
        self.all_is_found()

    def test_another_models_directory_is_a_miss_for_both_and_serves_both(self):
        with self.serve(self.directory, self.other_model) as server:
            self.assertEqual(self.ask_all(server, self.other_recorded), 0)
            self.assertEqual(self.counted(server, "loads_total", end="absent"), len(self.prompts))
            self.assertEqual(server.terminate(), 0)
        self.all_is_found()

    def test_a_lost_secret_is_a_new_one_which_finds_nothing(self):
        (self.directory / "cluster-secret").unlink()
        with self.serve(self.directory) as server:
            self.assertEqual(self.ask_all(server), 0)
            self.assertEqual(self.counted(server, "loads_total", end="absent"), len(self.prompts))
            self.assertEqual(server.terminate(), 0)

    def test_a_read_only_directory_serves_misses_and_is_left_alone(self):
        def change(mode_of):
            for path in (self.directory, *self.directory.rglob("*")):
                path.chmod(mode_of(path.stat().st_mode))

        def listing():
            return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns)
                          for path in self.directory.rglob("*"))

        change(lambda mode: mode & ~0o222)
        self.addCleanup(change, lambda mode: mode | 0o200)
        before = listing()
        try:
            server = self.serve(self.directory, prepare=obey_permissions)
        except subprocess.SubprocessError:
            self.skipTest("root may write everywhere, and may not give that up here")
        with server:
            self.assertEqual(self.ask_all(server), 0)
            self.assertEqual(self.counted(server, "outages_total", reason="read_only"), 1)
            self.assertEqual(self.counted(server, "loads_total", end="unavailable"),
                             len(self.prompts))
            self.assertEqual(server.terminate(), 0)
        self.assertEqual(listing(), before)
        change(lambda mode: mode | 0o200)
        self.all_is_found()

    def write_until(self, server, reason):
        """New blocks, by new salts, until writing one fails for that reason."""
        for salt in range(40):
            for ids, right in zip(self.prompts, self.recorded):
                answer, _ = wide_model.complete(server, ids, cache_salt=f"{salt}",
                                                kv={"ttl_s": 86400})
                self.assertEqual(answer, right)
            if self.counted(server, "outages_total", reason=reason):
                break
        self.assertGreater(self.counted(server, "outages_total", reason=reason), 0)
        self.assertGreater(self.counted(server, "skipped_blocks_total", reason="write_failed"), 0)

    def test_a_full_disk_costs_hits_and_nothing_else(self):
        disk = self.root / "disk"
        disk.mkdir()
        self.addCleanup(disk.rmdir)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)],
                                 capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"a full disk needs the right to mount one: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
        shutil.copytree(self.golden, disk / "kv")
        with self.serve(disk / "kv") as server:
            self.write_until(server, "no_space")
            self.assertEqual(server.terminate(), 0)
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as out:
            try:
                while out.write(bytes(65536)):
                    pass
            except OSError:
                pass  # no space is left
        with self.serve(disk / "kv") as server:
            self.assertEqual(self.ask_all(server), 0)
            self.assertEqual(self.counted(server, "outages_total", reason="no_space"), 1)
            self.assertEqual(self.counted(server, "loads_total", end="unavailable"),
                             len(self.prompts))
            self.assertEqual(server.terminate(), 0)
        ballast.unlink()
        self.all_is_found(disk / "kv")

    def test_files_that_may_not_grow_cost_hits_and_nothing_else(self):
        with self.serve(self.directory, prepare=small_files) as server:
            self.write_until(server, "io_error")
            self.assertEqual(server.terminate(), 0)
        self.all_is_found()
