"""transformer-mt train CONFIG --plan"""

import os
from typing import TYPE_CHECKING

from tabulate import tabulate

from transformer_mt.config import Config
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.other_programs import OtherPrograms
from transformer_mt.progress_bar import duration

if TYPE_CHECKING:
    from transformer_mt.training.planning.plan import Plan


def print_plan(config: Config, gpus: int) -> int:
    """Print how long the training takes here and in how much memory."""
    if gpus > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise InputError("--plan must run in one process; leave out --gpus and torchrun")
    say(f"{config.name}: loading PyTorch")  # takes seconds
    from transformer_mt.training.planning.lengths import lengths_of
    from transformer_mt.training.planning.plan import plan_training

    config, lengths = lengths_of(config)
    say("measuring this machine")
    others = OtherPrograms()
    plan = plan_training(config, lengths)
    print(tabulate(_rows(plan, others), tablefmt="plain"))
    for change in plan.changes:
        print(f"\n{change.keys}\n  {change.reason}")
    return 0


def _rows(plan: "Plan", others: OtherPrograms) -> list[tuple[str, str]]:
    of_state, time = plan.state_bytes / 1e9, "not measured: the model does not fit this machine"
    if plan.seconds is not None:
        total = duration(plan.seconds * plan.updates)
        how = "measured without torch.compile" if plan.is_compiled else "measured"
        time = f"{total}, {plan.seconds:.3g} s an update, {how}; without validations"
        time += others.note(plan.seconds * plan.updates)
    return [
        ("parameters", f"{plan.parameters:,}"),
        ("epoch", f"{plan.pairs:,.0f} pairs"),
        (
            "update",
            f"{plan.update_tokens:,} padded tokens, of them {plan.target_tokens:,.0f} target tokens; "
            f"{'packed' if plan.packed else 'padded'}, {plan.padding:.0%} padding",
        ),
        (
            "training",
            f"{plan.updates:,} updates, {plan.epochs:.1f} epochs, "
            f"{plan.updates * plan.target_tokens:,.0f} target tokens",
        ),
        (
            "memory",
            f"{plan.peak_bytes / 1e9:.1f} GB of {plan.available_bytes / 1e9:.1f}, of them {of_state:.1f} for "
            "weights, gradients and moments",
        ),
        ("time", time),
    ]
