"""The server under load, compared with the engine called directly in the same run.

    python scripts/bench/serve.py MODEL SOURCE.txt [--engine ctranslate2] [--pivot MODEL] [--part
    load|fair|memory|mixed|malformed|end]

The server is a process of its own on the loopback interface. `load`: sentences per second and latencies of 1,
8 and 64 clients. `fair`: latencies of 50 clients alone, and with one more that sends a long line or word.
`memory`: resident memory over 20,000 requests. `mixed`: 20,000 requests of all kinds, also files, and with
`--pivot`, a model from the first one's target, texts through both. `malformed`: 1,000 broken requests. `end`:
SIGTERM while 64 clients wait for answers.
"""

import argparse
import html
import http.client
import io
import json
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

CLIENTS = (1, 8, 64)


class Server:
    """The process, and where it listens."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "transformer_mt", "serve", str(arguments.model), "--port", "0"]
        command += ["--engine", arguments.engine, *([arguments.pivot] if arguments.pivot else [])]
        self.is_pivot = bool(arguments.pivot)
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        for line in self.process.stderr:
            if found := re.search(r"translating (\S+) to ([^\s,]+).* at http://([\d.]+):(\d+);", line):
                self.source, self.target, self.host, self.port = found[1], found[2], found[3], int(found[4])
                return
        raise SystemExit("the server did not start")

    def megabytes(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


class Client:
    """One connection that is kept."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=120)

    def ask(self, path: str, kind: str, body: bytes) -> int:
        """The status of a request; a file that was translated is fetched, too."""
        self.connection.request("POST", path, body, {"Content-Type": kind})
        answer = self.connection.getresponse()
        content = answer.read()
        if path == "/translate_file" and answer.status == 200:
            address = urllib.parse.urlsplit(json.loads(content)["translatedFileUrl"])
            self.connection.request("GET", address.path)
            answer = self.connection.getresponse()
            answer.read()
        return answer.status

    def translate(self, text: str) -> tuple[int, bytes]:
        fields = {"q": text, "source": self.server.source, "target": self.server.target}
        self.connection.request(
            "POST", "/translate", json.dumps(fields), {"Content-Type": "application/json"}
        )
        answer = self.connection.getresponse()
        return answer.status, answer.read()


def ask_all(server: Server, lines: Sequence[str], clients: int) -> tuple[float, list[float]]:
    """Seconds for all lines by so many clients, and the seconds of each answer."""
    waiting, lock, latencies = iter(lines), threading.Lock(), []

    def work() -> None:
        client = Client(server)
        while True:
            with lock:
                line = next(waiting, None)
            if line is None:
                return
            start = time.perf_counter()
            status, _ = client.translate(line)
            assert status == 200, status
            latencies.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start, latencies


def direct(arguments: argparse.Namespace, lines: Sequence[str]) -> float:
    """Sentences per second of `translate` in a process of its own, without its start."""
    code = (
        "import json, sys, time\n"
        "from transformer_mt import Translator\n"
        "from transformer_mt.device import keep_freed_memory\n"
        "keep_freed_memory(one_heap=True)\n"
        "folder, engine, lines = json.load(sys.stdin)\n"
        "translator = Translator.load(folder, engine=engine)\n"
        "translator.translate(lines[:64])\n"
        "start = time.perf_counter()\n"
        "translator.translate(lines)\n"
        "print(len(lines) / (time.perf_counter() - start))\n"
    )
    given = json.dumps([str(arguments.model), arguments.engine, list(lines)])
    return float(subprocess.run([sys.executable, "-c", code], input=given, text=True, check=True,
                                stdout=subprocess.PIPE).stdout)  # fmt: skip


def load(arguments: argparse.Namespace, lines: Sequence[str]) -> None:
    speeds: dict[str, list[float]] = {"direct": []}
    times: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    for _ in range(arguments.rounds):
        speeds["direct"].append(direct(arguments, lines))
        server = Server(arguments)
        ask_all(server, lines[:64], 8)
        for clients in CLIENTS:
            chosen = lines if clients > 1 else lines[: len(lines) // 4]
            seconds, latencies = ask_all(server, chosen, clients)
            speeds.setdefault(str(clients), []).append(len(chosen) / seconds)
            times[clients] += latencies
        server.process.kill()
    print("| clients | sentences/s | of the engine | p50 ms | p95 ms | p99 ms |\n|---|---|---|---|---|---|")
    engine = statistics.median(speeds["direct"])
    print(f"| engine, called directly | {engine:.0f} | 1.00 | | | |")
    for clients in CLIENTS:
        speed = statistics.median(speeds[str(clients)])
        cuts = statistics.quantiles(times[clients], n=100)
        shown = " | ".join(f"{1000 * cuts[p - 1]:.0f}" for p in (50, 95, 99))
        print(f"| {clients} | {speed:.0f} | {speed / engine:.2f} | {shown} |")


def memory(arguments: argparse.Namespace, lines: Sequence[str]) -> None:
    server, rows = Server(arguments), []
    for done in range(1000, 21_000, 1000):
        ask_all(server, random.Random(done).choices(lines, k=1000), 64)
        rows.append((done, server.megabytes()))
    server.process.kill()
    print("| requests | MB |\n|---|---|")
    for done, megabytes in rows:
        if done in (1000, 2000, 5000, 10_000, 20_000):
            print(f"| {done:,} | {megabytes:.0f} |")


FAIR_CLIENTS, FAIR_SECONDS = 50, 30


def fair(arguments: argparse.Namespace, lines: Sequence[str]) -> None:
    """Latencies of 50 clients with a sentence each: alone, and while one more sends a long line or word."""
    line = ""
    for sentence in lines:
        line = f"{line} {sentence}".strip() if len(line) < 20_000 else line
    long_texts = {
        "nothing": "",
        "one line of 20,000 characters": line[:20_000],
        "one word of 20,000 letters": "a" * 20_000,
    }
    times: dict[str, list[list[float]]] = {name: [] for name in long_texts}
    answered = Counter[str]()
    for _ in range(arguments.rounds):
        server = Server(arguments)
        ask_all(server, lines[:64], 8)
        for name, text in long_texts.items():
            end = time.perf_counter() + FAIR_SECONDS

            other = threading.Thread(target=_ask_for_long, args=(server, text, end, answered), daemon=True)
            other.start()
            times[name].append(_until(server, lines, end))
            other.join()
        server.process.kill()
    print("| one more sends | p50 ms | p95 ms | p95 to that with nothing (each round) |\n|---|---|---|---|")
    for name, rounds in times.items():
        cuts = [statistics.quantiles(latencies, n=100) for latencies in rounds]
        ratios = [
            own[94] / alone[94]
            for own, alone in zip(cuts, (statistics.quantiles(t, n=100) for t in times["nothing"]))
        ]
        shown = [f"{1000 * statistics.median(cut[p - 1] for cut in cuts):.0f}" for p in (50, 95)]
        print(
            f"| {name} | {' | '.join(shown)} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f}) |"
        )
    print(f"\nThe long requests: {dict(answered)}")


def _ask_for_long(server: Server, text: str, end: float, answered: Counter[str]) -> None:
    while text and time.perf_counter() < end:
        answered[f"{text[:10]}...: {Client(server).translate(text)[0]}"] += 1


def _until(server: Server, lines: Sequence[str], end: float) -> list[float]:
    """The seconds of each answer to 50 clients that ask one sentence after the other until `end`."""
    latencies: list[float] = []

    def work(number: int) -> None:
        client, draw = Client(server), random.Random(number)
        while (start := time.perf_counter()) < end:
            status, _ = client.translate(draw.choice(lines))
            assert status == 200, status
            latencies.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(FAIR_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


def mixed(arguments: argparse.Namespace, lines: Sequence[str]) -> None:
    """20,000 requests of all kinds by 16 clients: their status codes, and resident memory. Two more
    clients send a small file of 60,000 line breaks again and again, and leave before it is read.
    """
    server, found, kinds, lock = Server(arguments), Counter[int](), Counter[str](), threading.Lock()
    third = None
    if server.is_pivot:
        connection = Client(server).connection
        connection.request("GET", "/languages")
        targets = json.load(connection.getresponse())[0]["targets"]
        third = next(target for target in targets if target != server.target)
    print("| requests | MB |\n|---|---|")

    def work(seed: int) -> None:
        client, draw = Client(server), random.Random(seed)
        for _ in range(125):
            path, kind, body = _any_request(server, lines, draw, third)
            status = client.ask(path, kind, body)
            with lock:
                found[status] += 1
                kinds[path] += 1

    is_over, left = threading.Event(), Counter[str]()

    def leave() -> None:
        form = _form(server, {"source": server.source, "target": server.target}, "a.odt", _many_breaks())
        while not is_over.wait(2):
            with socket.create_connection((server.host, server.port)) as connection:
                head = f"POST /translate_file HTTP/1.1\r\nHost: x\r\nContent-Type: {form[1]}\r\n"
                connection.sendall(f"{head}Content-Length: {len(form[2])}\r\n\r\n".encode() + form[2])
                time.sleep(0.3)
            left["files"] += 1

    for _ in range(2):
        threading.Thread(target=leave, daemon=True).start()
    for part in range(10):
        threads = [threading.Thread(target=work, args=(16 * part + n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"| {sum(found.values()):,} | {server.megabytes():.0f} |", flush=True)
    is_over.set()
    server.process.kill()
    print(f"\nStatus codes: {dict(sorted(found.items()))}; {dict(kinds)}; clients that left: {left['files']}")


def _many_breaks() -> bytes:
    """An .odt of one paragraph with 60,000 line breaks: 3 KB."""
    names = ' xmlns:{0}="urn:oasis:names:tc:opendocument:xmlns:{0}:1.0"'
    kept, text = io.BytesIO(), "".join(map(names.format, ("office", "text")))
    body = f"<text:p>{'dog<text:line-break/>' * 60_000}</text:p>"
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr("content.xml", f"<office:document-content{text}>{body}</office:document-content>")
    return kept.getvalue()


def _form(server: Server, fields: dict[str, object], name: str, content: bytes) -> tuple[str, str, bytes]:
    """(path, content type, body) of a request with a file."""
    part = "--x\r\nContent-Disposition: form-data; name="
    head = "".join(f'{part}"{key}"\r\n\r\n{value}\r\n' for key, value in fields.items())
    head += f'{part}"file"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + b"\r\n--x--\r\n"
    return "/translate_file", "multipart/form-data; boundary=x", body


def _any_file(lines: Sequence[str], draw: random.Random) -> tuple[str, bytes]:
    """(name, content) of a file of some lines."""
    paragraphs = "".join(f"<p>{html.escape(line)} <b>{html.escape(line)}</b></p>" for line in lines)
    texts = {
        "a.html": f"<html><body>{paragraphs}</body></html>",
        "a.txt": "\n".join(lines),
        "a.json": json.dumps({str(i): line for i, line in enumerate(lines)}),
        "a.srt": "".join(
            f"{i}\n00:00:0{i},000 --> 00:00:0{i},900\n{line}\n\n" for i, line in enumerate(lines)
        ),
    }
    name = draw.choice([*texts, "a.epub"])
    if name in texts:
        return name, texts[name].encode()
    kept = io.BytesIO()
    container = '<container><rootfiles><rootfile full-path="a.opf"/></rootfiles></container>'
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="a.xhtml" '
        'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>'
    )
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("a.opf", package)
        page = f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{paragraphs}</body></html>'
        archive.writestr("a.xhtml", page)
    return name, kept.getvalue()


def _any_request(
    server: Server, lines: Sequence[str], draw: random.Random, third: str | None
) -> tuple[str, str, bytes]:
    """(path, content type, body) of a request: mostly sentences, some pages, texts, files, odd and wrong
    ones, a tenth of all to the `third` language.
    """
    some = draw.choices(lines, k=draw.randint(1, 3))
    target = third if third and draw.random() < 0.1 else server.target
    fields: dict[str, object] = {"source": server.source, "target": target}
    if draw.random() < 0.1:
        return _form(server, fields, *_any_file(draw.choices(lines, k=draw.randint(1, 9)), draw))
    chance = draw.random()
    if chance < 0.5:
        fields["q"] = some[0]
    elif chance < 0.6:
        fields["q"] = some
    elif chance < 0.7:
        fields |= {
            "q": "".join(f"<p title='{line[:20]}'>{line} <b>{line}</b> &amp;" for line in some),
            "format": "html",
        }
    elif chance < 0.75:
        fields |= {"q": " ".join(some), "alternatives": draw.randint(0, 5), "source": "auto"}
    elif chance < 0.8:
        fields["q"] = draw.choice(["42", "", "...", "a" * 300, "\0", "{x}", "\ud7ff", "🌷" * 50, " \n \n"])
    elif chance < 0.85:
        fields |= {"q": some[0], "target": server.target}
        return "/details", "application/json", json.dumps(fields).encode()
    elif chance < 0.9:
        return "/detect", "application/json", json.dumps({"q": some[0]}).encode()
    elif chance < 0.95:
        fields |= {
            "q": some[0],
            draw.choice(["target", "format", "alternatives", "source"]): draw.choice(["xx", -1, []]),
        }
    else:
        return (
            "/translate",
            draw.choice(["application/json", "application/x-www-form-urlencoded"]),
            draw.randbytes(50),
        )
    return "/translate", "application/json", json.dumps(fields).encode()


def malformed(arguments: argparse.Namespace, lines: Sequence[str]) -> None:
    server, found, draw = Server(arguments), Counter[str](), random.Random(1)
    good = json.dumps({"q": lines[0], "source": server.source, "target": server.target}).encode()
    for number in range(1000):
        body = bytearray(good)
        for _ in range(draw.randint(1, 20)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        if number % 3 == 0:
            body = bytearray(draw.randbytes(draw.randint(0, 300)))
        length = len(body) if number % 5 else draw.choice([0, 10, len(body), 10**9, -1])
        kind = draw.choice(["application/json", "application/x-www-form-urlencoded",
                            "multipart/form-data; boundary=x", "x", ""])  # fmt: skip
        method = draw.choice(["POST", "POST", "GET", "BREW", "PO\x00ST"])
        path = draw.choice(["/translate", "/detect", "/translate?q=\x7f", "/../x", "*"])
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        )
        with socket.create_connection((server.host, server.port), timeout=30) as connection:
            connection.sendall(head.encode() + bytes(body))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
        found[answer[9:12].decode() if answer.startswith(b"HTTP") else "closed"] += 1
    status, _ = Client(server).translate(lines[0])
    server.process.kill()
    print("| status | requests |\n|---|---|")
    for name, count in sorted(found.items()):
        print(f"| {name} | {count} |")
    print(f"\nA good request afterwards: {status}.")


def end(arguments: argparse.Namespace, lines: Sequence[str]) -> None:
    server, results = Server(arguments), Counter[str]()
    is_sent = threading.Barrier(65)

    def work(number: int) -> None:
        client = Client(server)
        client.connection.connect()
        is_sent.wait()
        try:
            status, body = client.translate("\n".join(lines[number : number + 20]))
            results["answered" if status == 200 and body else str(status)] += 1
        except (http.client.HTTPException, OSError) as error:
            results[type(error).__name__] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    is_sent.wait()
    time.sleep(0.3)
    answered = results["answered"]
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    print(f"SIGTERM after {answered} of 64 answers; in the end {dict(results)}, exit {server.process.wait()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path, help="a file of sentences")
    parser.add_argument("--engine", choices=["auto", "torch", "ctranslate2"], default="auto")
    parser.add_argument("--pivot", help="a model from the first one's target to a third language")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=1000)
    parts = {"load": load, "fair": fair, "memory": memory, "mixed": mixed, "malformed": malformed, "end": end}
    parser.add_argument("--part", choices=parts, action="append")
    arguments = parser.parse_args()
    lines = [line for line in arguments.source.read_text(encoding="utf-8").split("\n") if line.strip()]
    for name in arguments.part or parts:
        print(f"\n## {name}\n", flush=True)
        parts[name](arguments, lines[: arguments.sentences])


if __name__ == "__main__":
    main()
