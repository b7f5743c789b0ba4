"""How the hint is made; needs the extra `train`. `tools/train_opinion_hint.py` runs it."""
