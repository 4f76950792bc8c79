"""Before the first training: a config for a user's files, and how long a training will take here.

In: files and two languages, or a config. Out: YAML with a comment on each choice (`new`, begin with
`write.py`), or time and memory on this machine (`train --plan`, begin with `plan.py`).
"""

from transformer_mt.companion import Command, Companion

_COMMANDS = "transformer_mt.companions.wizard.commands"
companion = Companion(
    commands={"new": Command(_COMMANDS, "write a config for your files", "start")},
    options={"train": f"{_COMMANDS}:add_plan"},
)
