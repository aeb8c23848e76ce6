"""Training: from labelled studies to a model folder. Needs the extra `train`.

Read `run.py` first: it goes from a plan to the model folder and names every other module.
"""
