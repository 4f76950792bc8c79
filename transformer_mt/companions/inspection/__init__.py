"""Checks of corpora before training: possible faults, and the key that acts on each.

In: a config. Out: findings with estimates and examples, as Markdown and HTML. Begin with `inspect.py`;
`checks.py` has one class per finding.
"""

from transformer_mt.companion import Command, Companion

_COMMANDS = "transformer_mt.companions.inspection.commands"
companion = Companion(
    requires=["wizard"], commands={"inspect": Command(_COMMANDS, "inspect the data before training", "start")}
)
