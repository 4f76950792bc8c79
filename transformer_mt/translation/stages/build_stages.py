"""The stages of a call: ours in the order of `parts.py`, with those of resources between them, then those
that `decode.stages` names.
"""

from transformer_mt.config.build_part import part_settings
from transformer_mt.errors import InputError
from transformer_mt.parts import load_part, names_of
from transformer_mt.translation.stages.call import Call
from transformer_mt.translation.stages.stage import BroughtStage, Stage


def build_stages(call: Call) -> list[Stage]:
    """Ours say themselves whether they have something to do. What is protected comes first: the others keep
    it whole. What has no words is not searched for. The last ones see results: ends before flags, which judge
    them.
    """
    ours, _ = names_of("stage")
    stages: list[Stage] = []
    for name in ours:
        for resource in call.resources.by_name.values():
            if resource.before not in ours:
                raise InputError(f"{type(resource).__name__}.before must be a stage ({', '.join(ours)})")
            if resource.before == name:
                stages.append(BroughtStage(resource.stage(call), type(resource).__name__))
        if (stage := load_part("stage", name).of_call(call)) is not None:
            stages.append(stage)
    return [*stages, *map(brought_stage, call.settings.stages)]


def brought_stage(name: str) -> Stage:
    """The stage of others that `decode.stages` names. InputError if it is none."""
    kind = load_part("stage", name)
    return BroughtStage(kind(**part_settings(kind, name, "decode.stages")), name)
