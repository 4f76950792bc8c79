"""The Dockerfile and compose.yaml: by Docker where it runs, and else command by command."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest
import yaml

from tests.conftest import ROOT, TINY
from transformer_mt.cli import build_parser
from transformer_mt.cli.arguments import subcommands
from transformer_mt.companions.serving.commands import words_of_environment


def instructions():
    """(stage, keyword, rest) of each instruction of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    stage = None
    for line in text.splitlines():
        if line and not line.startswith("#"):
            keyword, rest = line.split(" ", 1)
            stage = rest.split()[-1] if keyword == "FROM" else stage
            yield stage, keyword, rest


def of_stage(stage):
    """The instructions of a stage, after those of the stage that it begins from."""
    mine = [(keyword, rest) for name, keyword, rest in instructions() if name == stage]
    before = mine[0][1].split()[0]
    return [*(of_stage(before) if before in {name for name, *_ in instructions()} else []), *mine[1:]]


class Image:
    """A stage built in a folder: its own Python, its own files, and nothing of ours."""

    def __init__(self, stage, root):
        self.root, self.folder, self.words = root, root, []
        subprocess.run([sys.executable, "-m", "venv", root / "venv"], check=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFORMER_MT_")}
        self.environment = kept | {"PATH": f"{root / 'venv' / 'bin'}:{os.environ['PATH']}"}
        self.environment.pop("PYTHONPATH", None)
        for keyword, rest in of_stage(stage):
            self.do(keyword, rest)

    def inside(self, text):
        """A command or value with the image's folders as they are here."""
        return re.sub(r"(?<![\w/.])/(src|models|cache|work)\b", lambda m: f"{self.root}/{m[1]}", text)

    def do(self, keyword, rest):
        if keyword == "ENV":
            self.environment |= dict(pair.split("=", 1) for pair in shlex.split(self.inside(rest)))
        elif keyword == "WORKDIR":
            self.folder = self.root / rest.strip("/")
            self.folder.mkdir(exist_ok=True)
        elif keyword == "COPY":
            *sources, target = rest.split()
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, self.folder / target)
                else:
                    shutil.copy(ROOT / source, self.folder / target)
        elif keyword == "RUN":
            command = ["bash", "-ec", self.inside(rest)]
            quiet = subprocess.DEVNULL
            subprocess.run(command, check=True, cwd=self.folder, env=self.environment, stdout=quiet)
        elif keyword in ("ENTRYPOINT", "CMD"):
            self.words += json.loads(rest)
        elif keyword == "HEALTHCHECK":
            self.health = rest.partition("CMD ")[2]
        else:
            assert keyword in ("ARG", "USER", "EXPOSE"), keyword


def translation_of(url):
    body = b'{"q": "The dog sleeps.", "source": "en", "target": "de"}'
    request = urllib.request.Request(url + "/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["translatedText"]


@pytest.mark.slow
def test_the_commands_of_the_image_serve_the_models_of_a_folder(tmp_path, tiny_run, cli):
    image = Image("serve", tmp_path)
    shutil.copytree(tiny_run, tmp_path / "models" / "en_de")
    environment = image.environment | {"TRANSFORMER_MT_PORT": "0"}
    server = subprocess.Popen(
        image.words, stderr=subprocess.PIPE, text=True, cwd=image.folder, env=environment
    )
    try:
        line = server.stderr.readline()
        assert "translating en to de at http://0.0.0.0:" in line
        port = re.search(r":(\d+);", line)[1]
        expected = cli("translate", tiny_run, "The dog sleeps.")[1].rstrip("\n")
        assert translation_of(f"http://127.0.0.1:{port}") == expected
        environment["TRANSFORMER_MT_PORT"] = port
        subprocess.run(["bash", "-ec", image.health], check=True, env=environment)
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


@pytest.mark.slow
def test_the_commands_of_the_second_stage_train(tmp_path):
    image = Image("train", tmp_path)
    (tmp_path / "work" / "tiny.yaml").write_text(yaml.safe_dump(TINY), encoding="utf-8")
    words = [*image.words[:-1], "train", "tiny.yaml", "--out", "runs/tiny"]
    subprocess.run(words, check=True, cwd=image.folder, env=image.environment)
    assert (tmp_path / "work" / "runs" / "tiny" / "model.safetensors").exists()


def docker_runs():
    return shutil.which("docker") and not subprocess.run(["docker", "info"], capture_output=True).returncode


@pytest.mark.slow
def test_docker_builds_and_runs_the_image(tmp_path, tiny_run, cli):
    if not docker_runs():
        pytest.skip("there is no Docker daemon")
    tag, name = "transformer-mt-test", f"transformer-mt-test-{os.getpid()}"
    subprocess.run(["docker", "build", "-t", tag, ROOT], check=True)
    shutil.copytree(tiny_run, tmp_path / "en_de")
    run = [
        "docker",
        "run",
        "--rm",
        "--name",
        name,
        "-p",
        "127.0.0.1:5077:5000",
        "-v",
        f"{tmp_path}:/models:ro",
    ]
    with subprocess.Popen([*run, tag]) as process:
        try:
            expected = cli("translate", tiny_run, "The dog sleeps.")[1].rstrip("\n")
            end = time.monotonic() + 120
            while True:
                try:
                    assert translation_of("http://127.0.0.1:5077") == expected
                    break
                except OSError:
                    assert time.monotonic() < end and process.poll() is None
                    time.sleep(1)
        finally:
            subprocess.run(["docker", "rm", "-f", name], check=False)


def test_compose_and_the_image_name_what_there_is(capsys):
    """Stages, folders and settings: a variable that is no setting would have no effect."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    stages = {stage for stage, *_ in instructions()}
    variables = dict(
        pair.split("=", 1)
        for _, keyword, rest in instructions()
        if keyword == "ENV"
        for pair in shlex.split(rest)
    )
    for service in services.values():
        assert service["build"]["target"] in stages
        variables |= {key: str(value) for key, value in service.get("environment", {}).items()}
    parser = subcommands(build_parser())["serve"]
    found = parser.parse_args(words_of_environment(parser, variables))
    assert capsys.readouterr().err == ""
    assert found.watch == "/models" and found.host == "0.0.0.0" and found.unload_after == 600
    assert services["translate"]["volumes"][0].endswith(f":{found.watch}:ro")
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = [word for _, keyword, rest in instructions() if keyword == "COPY" for word in rest.split()[:-1]]
    assert all(f"!{name}" in kept and (ROOT / name).exists() for name in copied)
