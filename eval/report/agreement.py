"""Agreement between models and layers, and its rank correlation with F1 against gold trees."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from eval.report.tables import Table, per_cent
from onlstm_hf.scoring.agreement import mean_agreement

MEAN_AGREEMENT = "all others"  # column of the mean agreement with all other parsers, also a key in results files
MIN_PARSERS = 3
MAX_PARSERS_IN_EXACT_TEST = 7


def agreement_summary(parsers: Sequence[dict], agreement: np.ndarray) -> dict:
    """Returns the parsers with their mean agreement with all others, and its rank correlation with F1.

    `parsers` have `model`, `trees` (the name of the layer) and `sentence_f1`. Spearman's correlation is over all
    parsers ("all") and over those of each layer; `None` for fewer than `MIN_PARSERS` parsers or equal values.
    """
    table = pd.DataFrame(parsers).assign(**{MEAN_AGREEMENT: mean_agreement(agreement)})
    correlations: dict[str, float | None] = {}
    for name, rows in [("all", table), *table.groupby("trees", sort=False)]:
        correlation = rows["sentence_f1"].rank().corr(rows[MEAN_AGREEMENT].rank(), min_periods=MIN_PARSERS)
        correlations[name] = None if np.isnan(correlation) else float(correlation)
    return {"parsers": table.to_dict("records"), "rank_correlation": {MEAN_AGREEMENT: correlations}}


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the two-sided p-value of Spearman's rank correlation by a permutation test.

    The test is exact for at most `MAX_PARSERS_IN_EXACT_TEST` values, else it draws 9,999 random permutations (seeded).
    """
    ranks, second_ranks = (pd.Series(values).rank().to_numpy() for values in (first, second))
    ranks, second_ranks = ranks - ranks.mean(), second_ranks - second_ranks.mean()
    if len(ranks) <= MAX_PARSERS_IN_EXACT_TEST:
        orders = np.array(list(permutations(range(len(ranks)))))
    else:
        generator = np.random.default_rng(0)
        orders = np.stack([np.arange(len(ranks)), *(generator.permutation(len(ranks)) for _ in range(9999))])
    correlations = np.abs(second_ranks[orders] @ ranks)
    return float((correlations >= np.abs(second_ranks @ ranks) - 1e-9).mean())


def agreement_table(summary: dict) -> Table:
    """Returns header and rows in per cent: one row per parser, then the rank correlations."""
    rows = [
        [row["trees"], row["model"], per_cent(row["sentence_f1"]), per_cent(row[MEAN_AGREEMENT])]
        for row in summary["parsers"]
    ]
    for name, correlation in summary["rank_correlation"][MEAN_AGREEMENT].items():
        if correlation is not None:
            rows.append([f"rank correlation with F1: {name}", "", "", f"{correlation:.2f}"])
    return ["agreement", "model", "sentence F1", MEAN_AGREEMENT], rows
