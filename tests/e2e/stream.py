"""A streamed completion, read on a thread of its own."""

import http.client
import json
import threading


class Stream(threading.Thread):
    """Of one request to a server; `begun` is set with its first token."""

    def __init__(self, server, body):
        super().__init__()
        self.port, self.body = server.http_port, {**body, "stream": True}
        self.begun = threading.Event()
        self.pieces, self.failure = [], None
        self.start()

    def run(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            connection.request("POST", "/v1/completions", json.dumps(self.body),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                self.failure = response.read().decode()
            for line in response:
                if line.startswith(b"data: {"):
                    self._take(json.loads(line[len(b"data: "):]))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.failure = repr(error)
        self.begun.set()

    def _take(self, event):
        if "error" in event:
            self.failure = json.dumps(event)
        self.pieces += event.get("choices", [])
        if self.pieces:
            self.begun.set()

    def answer(self):
        """By choice: tokens (with `return_token_ids`), text, log-probabilities and the reason of its end."""
        self.join()
        assert self.failure is None, self.failure
        found = {}
        for piece in self.pieces:
            ids, text, logprobs, reasons = found.setdefault(piece["index"], ([], [], [], []))
            ids += piece.get("token_ids") or []
            text.append(piece["text"])
            logprobs += (piece["logprobs"] or {}).get("token_logprobs") or []
            reasons += [piece["finish_reason"]] if piece["finish_reason"] else []
        return {index: (ids, "".join(text), logprobs, reasons)
                for index, (ids, text, logprobs, reasons) in found.items()}
