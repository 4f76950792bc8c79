"""Work with several models or trainings: back-translation, students of teachers, sweeps, comparisons.

Each can be stopped and run again; finished work is kept. Begin with `synthetic.py` (a model's translations
as a corpus; `backtranslation_chain.py` does all steps of back-translation), `distill.py`, `sweep_jobs.py`,
`tune.py` or `comparison.py`.
"""

from transformer_mt.companion import Command, Companion

_HERE = "transformer_mt.companions.lab"
companion = Companion(
    requires=["exchange", "language_models", "wizard"],
    commands={
        "backtranslate": Command(
            f"{_HERE}.commands:add_backtranslate", "back-translate monolingual text", "train"
        ),
        "distill": Command(
            f"{_HERE}.commands:add_distill", "train a small, fast student of a trained model", "train"
        ),
        "sweep": Command(f"{_HERE}.commands:add_sweep", "compare variants of a config", "train"),
        "tune": Command(f"{_HERE}.commands:add_tune", "search for better settings of a config", "train"),
        "plot": Command(f"{_HERE}.plot_pictures", "plot attention or learning curves", "research"),
        "trace": Command(f"{_HERE}.trace", "trace a sentence through a model", "research"),
        "runs": Command(f"{_HERE}.runs", "list runs and how they differ", "research"),
        "compare": Command(f"{_HERE}.compare_systems", "compare systems on test sets", "research"),
        "rerank": Command(f"{_HERE}.commands:add_rerank", "choose among candidates by a metric", "research"),
    },
    kinds={
        "loss": {
            "r_drop": f"{_HERE}.losses:RDrop",
            "simcut": f"{_HERE}.losses:SimCut",
            "token_distillation": f"{_HERE}.losses:TokenDistillation",
        }
    },
    options={"evaluate": f"{_HERE}.evaluation_tables:add_options"},
    hooks={"after_evaluation": f"{_HERE}.evaluation_tables:after_evaluation"},
)
