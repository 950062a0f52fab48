"""The real binary, started for a test and stopped by it."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENDS_WITHIN_S = 50  # whoever stops gives up after 60 s, if drain-timeout-s is as it was


def process_holds(pid):
    """MiB, descriptors and threads."""
    root = pathlib.Path(f"/proc/{pid}")
    resident = int(re.search(r"VmRSS:\s+(\d+) kB", (root / "status").read_text())[1]) / 1024
    return resident, len(os.listdir(root / "fd")), len(os.listdir(root / "task"))


def threads_of(pid):
    """What each thread of a process does, as text."""
    try:
        seen = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if "Thread 1 " in seen.stdout:
            return seen.stdout
    except (OSError, subprocess.TimeoutExpired):
        pass  # there is none, or it may not look
    out = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        for name in ("comm", "wchan", "status"):
            with contextlib.suppress(OSError):
                out.append(f"{task.name} {name}: {(task / name).read_text().strip()}")
    return "\n".join(out)


def exit_code(process, timeout_s=ENDS_WITHIN_S):
    """Of a process that is to end. If it does not, what its threads do is printed first."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        print(f"{process.args} did not end in {timeout_s} s:\n{threads_of(process.pid)}", flush=True)
        raise


def wait_out_an_echo():
    """A signal that is heard within a fifth of a second of another is its echo (docs/API.md)."""
    heard = time.monotonic()
    while time.monotonic() < heard + 0.2:
        time.sleep(0.01)  # this time is what the documents promise


class Server:
    """`outrider serve` on free ports. Use as a context manager. `prepare` runs in the new process.
    Without `wait` it is still starting, and wait_ready() may come later or never; meanwhile it
    answers only where the caller chose the port."""

    def __init__(self, binary, model, flags=(), start_timeout_s=180, prepare=None, wait=True, http_port=0):
        self.log_file = tempfile.NamedTemporaryFile("w+", prefix="outrider-e2e-", suffix=".log")
        command = [str(binary), "serve", "--model", str(model), "--http", f"127.0.0.1:{http_port}",
                   "--rpc", "127.0.0.1:0", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log_file,
                                        text=True, cwd=ROOT, preexec_fn=prepare)
        self.http_port = http_port or None
        self.rpc_port = None
        self._lines = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read_stdout, daemon=True)
        self._reader.start()
        if wait:
            self.wait_ready(start_timeout_s)

    def wait_ready(self, start_timeout_s=180):
        if not self._ready.wait(start_timeout_s) or self.rpc_port is None:
            self.process.kill()
            raise RuntimeError("the server did not start:\n" + self.log())

    def _read_stdout(self):
        for line in self.process.stdout:
            self._lines.append(line)
            if match := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line):
                self.http_port = self.http_port or int(match[1])
            if match := re.search(r"^\s*127\.0\.0\.1:(\d+)\s", line):
                self.rpc_port = int(match[1])
                self._ready.set()
        self._ready.set()  # it ended

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.end()

    def end(self):
        """By force, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.log_file.close()

    def log(self):
        self.log_file.flush()
        return "".join(self._lines) + pathlib.Path(self.log_file.name).read_text()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http_port}"

    def request(self, method, path, body=None, headers=None, timeout_s=60):
        """One request on a connection of its own: status, headers, text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout_s)
        try:
            sent = {"Content-Type": "application/json"} if body is not None else {}
            payload = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, payload, {**sent, **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, text
        finally:
            connection.close()

    def metrics(self):
        """Every sample as {name{labels}: value}."""
        out = {}
        for line in self.request("GET", "/metrics")[2].splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def metric(self, name, **labels):
        """Sum of the samples of one name whose labels match."""
        total = 0.0
        for key, value in self.metrics().items():
            base, _, rest = key.partition("{")
            if base == name and all(f'{k}="{v}"' in rest for k, v in labels.items()):
                total += value
        return total

    def rss_mb(self):
        return process_holds(self.process.pid)[0]

    def open_files(self):
        return process_holds(self.process.pid)[1]

    def threads(self):
        return process_holds(self.process.pid)[2]

    def wait_until(self, condition, what, timeout_s=60):
        end = time.monotonic() + timeout_s
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"the server died waiting for {what}:\n" + self.log())
            if time.monotonic() > end:
                raise AssertionError(f"timed out waiting for {what}\n" + self.log()[-4000:])
            time.sleep(0.05)  # between two looks at another process; the condition decides, not the time

    def wait_idle(self, timeout_s=60):
        """No sessions, nothing running or waiting."""
        gauges = ("outrider_sessions_open", "vllm:num_requests_running",
                  "vllm:num_requests_waiting", "outrider_requests_parked")
        self.wait_until(lambda: all(self.metric(g) == 0 for g in gauges), "idle", timeout_s)

    def exit_code(self):
        return exit_code(self.process)

    def terminate(self, timeout_s=ENDS_WITHIN_S):
        """SIGTERM, then the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return exit_code(self.process, timeout_s)
