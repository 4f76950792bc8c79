"""A language model behind a chat-completions server as the teacher of `distill` and `backtranslate`.

Begin with `language_model.py` and `asking.py`. `teacher_section.py` has the YAML, `prompt.py` the request;
`chat.py` speaks with the server, `answer_checks.py` makes lines of its answers, `kept_answers.py` keeps them.
"""

from transformer_mt.companion import Companion

companion = Companion(
    requires=["lab"],
    hooks={"open_teacher": "transformer_mt.companions.teacher.language_model:open_described"},
)
