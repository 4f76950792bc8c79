"""A run behind the chat-completions interface: the proof that a student learns the same through it.

    python scripts/chat_server.py RUN --port 8090 &
    transformer-mt distill teacher.yaml CONFIG

It answers the numbered lines of the default prompt (teacher.lines above 1).
"""

import argparse
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from transformer_mt import Translator

_ITEM = re.compile(r"^\d+\. (.*)$", re.MULTILINE)


class _Handler(BaseHTTPRequestHandler):
    translator: Translator
    lock = threading.Lock()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][0]["content"].rpartition("\n\n")[2]
        lines = _ITEM.findall(prompt)
        with self.lock:
            results = self.translator.translate(lines or [prompt])
        texts = [result.translation for result in results]
        text = "\n".join(f"{n}. {t}" for n, t in enumerate(texts, start=1)) if lines else texts[0]
        usage = {
            "prompt_tokens": sum(len(ids) for ids in self.translator.encode_src(lines or [prompt])),
            "completion_tokens": sum(result.num_pieces for result in results),
        }
        message = {"role": "assistant", "content": text}
        answer = {"choices": [{"index": 0, "finish_reason": "stop", "message": message}], "usage": usage}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """A line for each request says nothing here."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--port", type=int, default=8090)
    arguments = parser.parse_args()
    _Handler.translator = Translator.load(arguments.run, "cpu", engine="torch")
    ThreadingHTTPServer(("127.0.0.1", arguments.port), _Handler).serve_forever()


if __name__ == "__main__":
    main()
