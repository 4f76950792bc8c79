"""Work with several models or trainings: back-translation, students of teachers, sweeps.

Each can be stopped and run again: what is done is kept. Begin with `synthetic.py` (a model's translations
as a corpus, of which `backtranslation_chain.py` is the whole way), `distill.py` or `sweep_plan.py`.
"""
