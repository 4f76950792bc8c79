#!/bin/sh
# Use the installed package as a new user does, in the current folder: train, translate, serve.
set -eu
transformer-mt train demo train.max_updates=20 train.export=false
translate runs/demo "The dog sleeps."
transformer-mt serve runs/demo --port 5099 &
server=$!
trap 'kill $server' EXIT
python - <<'PYTHON'
import json, time, urllib.parse, urllib.request

query = urllib.parse.urlencode({"q": "The dog sleeps.", "source": "en", "target": "de"}).encode()
for attempt in range(120):
    try:
        answer = json.load(urllib.request.urlopen("http://127.0.0.1:5099/translate", query, timeout=60))
        break
    except OSError:
        time.sleep(0.5)
print(answer["translatedText"])
PYTHON
