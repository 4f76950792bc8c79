"""A language model behind a chat-completions server as the teacher of `distill` and `backtranslate`.

Begin with `language_model.py` and `asking.py`, which speaks with the server. `prompt.py` has the YAML and the
request; `answers.py` makes lines of its answers, checks and keeps them.
"""

from transformer_mt.companion import Companion

companion = Companion(
    requires=["lab"],
    hooks={"open_teacher": "transformer_mt.companions.teacher.language_model:open_described"},
)
