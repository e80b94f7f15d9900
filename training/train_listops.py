"""Trains a model of ListOps: `accelerate launch training/train_listops.py RECIPE.yaml [--name value ...]`.

The value of an expression with nested lists (Nangia & Bowman 2018) is one of ten classes. A model without gold trees
must find the lists itself. For models that induce trees, the results state how well the trees fit.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from training.classification.listops import ListOps, parse_listops_recipe
from training.loop.run import run_script, train

main = partial(train, ListOps, parse_listops_recipe)

if __name__ == "__main__":
    run_script("train_listops.py", main)
