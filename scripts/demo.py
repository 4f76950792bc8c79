"""Train the demo, and print its score, three translations, the time, and what to do next: `make demo`."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from transformer_mt.messages import duration, table

RUN = "runs/demo"
SENTENCES = (
    "The old teacher sees a small bird in the garden.",
    "Because the child does not sleep, the mother sings.",
    "Today three happy dogs bring the queen the red ball.",
)
NEXT = """
Next, with your own files (line n of one is the translation of line n of the other):
  .venv/bin/transformer-mt new en de all.en all.de --out mine.yaml   writes a config for them
  make train CONFIG=mine.yaml
Or:
  .venv/bin/translate runs/demo                                      translates what you type
  .venv/bin/transformer-mt serve runs/demo                           a web page and an API
  make train CONFIG=configs/multi30k_en_de_quick.yaml                a real corpus, from the hub"""


def command(*words: str) -> str:
    """The standard output of a command of transformer-mt. Ctrl-C reaches it, too: it saves and ends."""
    whole = [sys.executable, "-m", "transformer_mt", *words]
    # A cache of its own: the demo of another folder would be in the user's.
    environment = {"TRANSFORMER_MT_CACHE": str(Path(".cache").resolve()), **os.environ}
    with subprocess.Popen(whole, stdout=subprocess.PIPE, encoding="utf-8", env=environment) as process:
        assert process.stdout is not None
        while True:
            try:
                out = process.stdout.read()
                break
            except KeyboardInterrupt:
                process.wait()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, whole)
    return out


def main() -> int:
    begun = time.monotonic()
    try:
        command("train", "configs/demo.yaml")
        (score, *_) = json.loads(command("evaluate", RUN, "--json").splitlines()[0])["scores"]
        translations = command("translate", RUN, *SENTENCES).splitlines()
    except subprocess.CalledProcessError as error:  # the command has printed why
        return error.returncode if error.returncode > 0 else 128 - error.returncode
    except KeyboardInterrupt:  # again, while a command was saving
        return 130
    rows = [
        [f"{score['name']} of sentences with combinations it never saw", f"{score['value']:.2f}"],
        *zip(SENTENCES, translations),
        ["training, scoring and translating took", duration(time.monotonic() - begun)],
    ]
    print(f"\n{table(rows, ['the demo', ''])}\n{NEXT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
