"""Agreement of models and layers, and its rank correlation with F1 against gold trees."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from eval.report.tables import Table, per_cent
from onlstm_hf.scoring.agreement import mean_agreement

ALL = "all others"
FEWEST_RANKS = 3
# Not all orders of more parsers than these are tried.
MOST_RANKS_IN_ALL_ORDERS = 7


def agreement_summary(parsers: Sequence[dict], agreement: np.ndarray) -> dict:
    """Mean agreement of each parser with all others, and its rank correlation with the F1 against gold trees.

    Args:
        parsers: `model`, `trees` (the name of its layer) and `sentence_f1` of each.
        agreement: `[num_parsers, num_parsers]`, of `tree_agreement`.

    Returns:
        `parsers`, each with its mean agreement (`ALL`); and as `ALL` of `rank_correlation` Spearman's of agreement and
        `sentence_f1` over all parsers ("all") and over those with the same name of layer, `None` where fewer than
        `FEWEST_RANKS` can be ranked.
    """
    table = pd.DataFrame(parsers).assign(**{ALL: mean_agreement(agreement)})
    groups = {"all": table} | dict(list(table.groupby("trees", sort=False)))
    correlations = {name: _rank_correlation(rows["sentence_f1"], rows[ALL]) for name, rows in groups.items()}
    return {"parsers": table.to_dict("records"), "rank_correlation": {ALL: correlations}}


def _rank_correlation(f1: pd.Series, agreement: pd.Series) -> float | None:
    """Spearman's; `None` where too few can be ranked, or all are equal."""
    if len(f1) < FEWEST_RANKS:
        return None
    correlation = f1.rank().corr(agreement.rank())
    return None if np.isnan(correlation) else float(correlation)


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p of Spearman's rank correlation: the share of orders that give one as far from 0.

    All orders count where they are few, else this one and 9,999 random ones (seeded).
    """
    ranks, others = (pd.Series(values).rank().to_numpy() for values in (first, second))
    ranks, others = ranks - ranks.mean(), others - others.mean()
    if len(ranks) <= MOST_RANKS_IN_ALL_ORDERS:
        orders = np.array(list(permutations(range(len(ranks)))))
    else:
        generator = np.random.default_rng(0)
        orders = np.stack([np.arange(len(ranks)), *(generator.permutation(len(ranks)) for _ in range(9999))])
    correlations = np.abs(others[orders] @ ranks)
    return float((correlations >= np.abs(others @ ranks) - 1e-9).mean())


def agreement_table(summary: dict) -> Table:
    """Header and rows, in per cent: a row a parser, then the rank correlations."""
    rows = [
        [row["trees"], row["model"], per_cent(row["sentence_f1"]), per_cent(row[ALL])] for row in summary["parsers"]
    ]
    for name, correlation in summary["rank_correlation"][ALL].items():
        if correlation is not None:
            rows.append([f"rank correlation with F1: {name}", "", "", f"{correlation:.2f}"])
    return ["agreement", "model", "sentence F1", ALL], rows
