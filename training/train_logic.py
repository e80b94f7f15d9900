"""Trains a model of logical inference: `accelerate launch training/train_logic.py RECIPE.yaml [--name value ...]`.

The protocol is that of Shen et al. (2019): train on pairs with few operators, test on pairs with up to twelve.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from training.classification.logic import LogicalInference, parse_logic_recipe
from training.loop.run import run_script, train

main = partial(train, LogicalInference, parse_logic_recipe)

if __name__ == "__main__":
    run_script("train_logic.py", main)
