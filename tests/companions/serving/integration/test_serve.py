"""The server as a process: its clients, its limits, its end."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection

import pytest

pytest.importorskip("uvicorn")

from tests.helpers.command import WarmProcess
from transformer_mt.companions.serving.models import Models
from transformer_mt.corpora import toy


def set_up(cores, changes):
    """In the server's process: with one core no further processes translate for it."""
    if cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    from transformer_mt.companions.serving.http import server

    for name, value in changes.items():
        setattr(server, name, value)


class Served:
    """A server's process, and where it listens."""

    def __init__(self, *words, cores=1, changes={}, **variables):  # noqa: B006
        environment = {f"TRANSFORMER_MT_{key}": str(value) for key, value in variables.items()}
        before = (set_up, cores, changes)
        self.process = WarmProcess(("serve", *words, "--port", "0"), env=environment, before=before)
        self.first = 0  # the line that says where it listens
        while not (found := re.search(r"http://([\d.]+):(\d+);", self.line(0))):
            self.first += 1
        self.address = found[1], int(found[2])
        self.url = f"http://{found[1]}:{found[2]}"

    def line(self, number):
        """What the server says in this line, counted from the first one, once it has said it."""
        number, end = self.first + number, time.monotonic() + 60
        while self.process.stderr_so_far.count("\n") <= number:
            assert self.process.runs and time.monotonic() < end, self.process.stderr_so_far
            time.sleep(0.02)
        return self.process.stderr_so_far.splitlines()[number]

    def post(self, path, **fields):
        body = json.dumps(fields).encode()
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def end(self, number=signal.SIGTERM):
        """The server's result after a signal."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        if self.process.runs:
            self.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def served(tiny_run):
    with Served(tiny_run, cores=None) as server:
        yield server
        workers = _children(server.process.pid)
        server.end(signal.SIGKILL)
    end = time.monotonic() + 60
    while any(pathlib.Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < end, "a worker outlives its server"
        time.sleep(0.05)


def test_the_client_of_libretranslate_is_served(served, tiny_run, cli):
    libretranslatepy = pytest.importorskip("libretranslatepy")
    client = libretranslatepy.LibreTranslateAPI(served.url)
    expected = cli("translate", tiny_run, "The dog sleeps.")[1].rstrip("\n")
    assert client.translate("The dog sleeps.", "en", "de", timeout=60) == expected
    assert client.languages(timeout=60)[0]["code"] == "en"
    assert client.detect("Der Hund schläft in dem großen Haus.", timeout=60)[0]["language"] == "de"


def test_a_run_is_served_by_ctranslate2(tiny_run, tmp_path):
    """It is exported into the run's folder first."""
    pytest.importorskip("ctranslate2")
    shutil.copytree(tiny_run, tmp_path / "tiny")
    with Served(tmp_path / "tiny", "--engine", "ctranslate2") as server:
        assert server.post("/translate", q="The dog sleeps.", source="en", target="de")["translatedText"]
    assert (tmp_path / "tiny/ctranslate2/model.bin").is_file()


def test_many_clients_get_what_translate_gives(served, tiny_run, tmp_path, cli):
    sentences = [src for src, _ in toy.generate("test", 60)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
    expected = cli("translate", tiny_run, "-i", tmp_path / "in")[1].split("\n")[:-1]

    def ask(sentence):
        return served.post("/translate", q=sentence, source="en", target="de")["translatedText"]

    with ThreadPoolExecutor(16) as clients:
        assert list(clients.map(ask, sentences)) == expected


def test_only_this_machine_can_reach_it_by_default(served):
    assert served.address[0] == "127.0.0.1"
    assert "translating en to de at http://127.0.0.1:" in served.line(0)


@pytest.mark.parametrize(
    "options, second",
    [
        ([], {"127.0.0.1": 429}),
        (["--behind-proxy"], {"127.0.0.1": 200}),
        (["--trusted-proxy", "127.0.0.2/31"], {"127.0.0.1": 429, "127.0.0.2": 200}),
    ],
)
def test_only_a_proxy_may_name_the_address_of_a_client(tiny_run, options, second):
    """`second` is the status of a second client, by the address of the proxy."""
    body = b'{"q": "Dog.", "source": "en", "target": "de"}'
    with Served(tiny_run, "--requests-per-minute", "1", *options) as server:
        for proxy, expected in second.items():
            statuses = []
            for client in ("192.0.2.1", "192.0.2.2"):
                connection = HTTPConnection(*server.address, timeout=60, source_address=(proxy, 0))
                headers = {"Content-Type": "application/json", "X-Forwarded-For": client}
                connection.request("POST", "/translate", body, headers)
                statuses.append(connection.getresponse().status)
                connection.close()
            assert statuses == [200, expected]


def test_models_come_and_go_in_a_folder_that_is_watched(tiny_run, tmp_path, cli):
    """All by variables of the environment, as in a container."""
    expected = cli("translate", tiny_run, "The dog sleeps.")[1].rstrip("\n")
    asked = {"q": "The dog sleeps.", "source": "en", "target": "de"}
    watched, often = tmp_path / "watched", {"Models": partial(Models, look_every=0.4)}
    watched.mkdir()
    copy = shutil.copytree(tiny_run, tmp_path / "copy")
    with Served(WATCH=watched, UNLOAD_AFTER=60, METRICS="true", changes=often) as server:
        assert "translating nothing yet at" in server.line(0)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            server.post("/translate", **asked)
        copy.rename(watched / "en_de")
        assert server.line(1) == "en_de: translating en to de"
        assert server.post("/translate", **asked) == {"translatedText": expected}
        with urllib.request.urlopen(server.url + "/models", timeout=60) as answer:
            (model,) = json.load(answer)
        assert model.pop("memory") > 10_000_000
        assert model == {"source": "en", "target": "de", "name": "en_de"}
        with urllib.request.urlopen(server.url + "/metrics", timeout=60) as answer:
            assert 'transformer_mt_lines_translated{source="en",target="de"} 1.0' in answer.read().decode()
        (watched / "en_de").rename(copy)
        assert server.line(2) == "no longer translating en to de"


def test_a_client_that_goes_away_frees_its_place(served):
    lines = "\n".join(src for src, _ in toy.generate("train", 300))
    body = json.dumps({"q": lines, "source": "en", "target": "de"}).encode()
    for _ in range(20):  # three times the queue
        with socket.create_connection(served.address) as connection:
            headers = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            connection.sendall(f"POST /translate HTTP/1.1\r\n{headers}\r\n\r\n".encode() + body)
    end = time.monotonic() + 60
    while True:
        try:
            assert served.post("/translate", q="The dog sleeps.", source="en", target="de")["translatedText"]
            return
        except urllib.error.HTTPError as error:
            assert error.code == 429 and time.monotonic() < end
            time.sleep(0.2)


def test_a_connection_that_says_nothing_is_closed(tiny_run):
    with Served(tiny_run, changes={"_HEADER_SECONDS": 0.3, "_REST_SECONDS": 0.3}) as server:
        for before in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):  # the first request, or a later one
            with socket.create_connection(server.address, timeout=60) as connection:
                if before:
                    connection.sendall(before)
                    assert connection.recv(1000).startswith(b"HTTP/1.1 200")
                connection.sendall(b"POST /translate HT")
                while connection.recv(1000):  # the rest of the answer before, then the end
                    pass
        # A body that goes on after its answer.
        with socket.create_connection(server.address, timeout=60) as connection:
            connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 404")
            connection.sendall(b"x")
            while connection.recv(1000):
                pass


def test_a_client_that_does_not_read_its_answer_is_disconnected(tiny_run):
    """Such clients could take all connections, and keep the server from ending."""
    with Served(tiny_run, changes={"_WRITE_SECONDS": 0.5}) as server:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(server.address)
        with client:
            try:
                for _ in range(20_000):  # pipelined: the answers fill all buffers
                    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            except OSError:
                pass
            time.sleep(1.0)
            server.end()


def test_a_signal_ends_it_when_what_was_accepted_is_done(tiny_run, monkeypatch, tmp_path):
    """And removes the files that wait to be fetched."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = Served(tiny_run)
    lines = "\n".join(src for src, _ in toy.generate("train", 300))
    answers = []

    def ask():
        answers.append(server.post("/translate", q=lines, source="en", target="de")["translatedText"])

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    while int(_connections(server.process.pid)) < 4:
        time.sleep(0.01)
    time.sleep(0.2)
    ended = server.end()
    for client in clients:
        client.join(60)
    assert ended.status == 128 + signal.SIGTERM and ended.err.endswith("\nstopped\n")
    assert [answer.count("\n") for answer in answers] == [299] * 4
    assert list(tmp_path.glob("transformer_mt-files-*")) == []


def _connections(pid):
    """Open connections of a process."""
    links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    return sum(link.startswith("socket:") for link in links) - 3  # the listener and the loop's own pair


def test_mistakes_get_one_line(tiny_run, served, tmp_path, cli):
    """Port 80000 was taken for 14464, and an origin without its scheme never matched."""
    (tmp_path / "keys").write_text("", encoding="utf-8")
    no_address = "must be an address this machine can listen on, but is not"
    for words, message in [
        ((), "MODEL or --watch FOLDER must be given, but neither is"),
        ((tiny_run, tiny_run), "each model must have a direction of its own, but two translate en to de"),
        ((tiny_run, "--direction", "de:en"), "--direction must be one of the models' (en:de), but is de:en"),
        ((tiny_run, "--port", served.address[1]), f"{no_address} ("),
        ((tiny_run, "--host", "no.such.host.invalid"), no_address),
        ((tiny_run, "--host", "127.0..1"), f"127.0..1:5000: {no_address} ("),
        ((tiny_run, "--port", "80000"), "--port must be a whole number from 0 to 65535, but is 80000"),
        ((tiny_run, "--trusted-proxy", "proxy"), "--trusted-proxy must be an address or a network, such as"),
        ((tiny_run, "--watch", "no/folder"), "--watch no/folder: must be a folder with one folder per model"),
        ((tiny_run, "--watch", ".", "--glossary", "terms.tsv"),
         "--glossary must be FROM:TO=FILE with --watch, as models may come, but names no direction"),
        ((tiny_run, "--cors", "example.org"), "--cors must begin with http:// or https://, or be *, but is"),
        ((tiny_run, "--api-keys", tmp_path / "keys"), "must have a key in each line, but has none"),
        (("no/run",), "no/run: no such folder"),
        ((tiny_run, "--suggestions", "no/a.jsonl"), "--suggestions no/a.jsonl: must be a file that can be"),
        ((tiny_run, "--seconds", "-1"), "must be a whole number of at least 0"),
    ]:  # fmt: skip
        status, out, err = cli("serve", *words)
        assert status == 2 and out == "" and message in err, err


def without(package):
    sys.modules[package] = None


def test_without_the_extra_the_error_names_it(tiny_run, cli):
    result = cli("serve", tiny_run, before=(without, "uvicorn"))
    assert result.status == 2 and "pip install 'transformer-mt[serve]'" in result.err


def _children(pid):
    """Processes that translate for the server; not multiprocessing's own helper."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    is_worker = "spawn_main"
    return [
        int(c)
        for c in children
        if is_worker in pathlib.Path(f"/proc/{c}/cmdline").read_text(encoding="utf-8")
    ]


def test_a_worker_that_dies_is_replaced(served, tiny_run, cli):
    """That all end with the server is seen at the end of `served`."""
    if not (workers := _children(served.process.pid)):
        pytest.skip("one core: the server translates itself")
    expected = cli("translate", tiny_run, "The dog sleeps.")[1].rstrip("\n")
    os.kill(workers[0], signal.SIGKILL)
    answer = served.post("/translate", q="The dog sleeps.", source="en", target="de")
    assert answer["translatedText"] == expected
