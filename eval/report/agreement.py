"""Agreement of models and layers, and its rank correlation with F1 against gold trees."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from eval.report.tables import Table, per_cent
from onlstm_hf.scoring.agreement import mean_agreement

# Groups of parsers that a parser is compared with.
SAME_LAYER, OWN_LAYERS, ALL = "same layer of other models", "other layers of its model", "all others"
FEWEST_RANKS = 3
# Not all orders of more parsers than these are tried.
MOST_RANKS_IN_ALL_ORDERS = 7


def agreement_summary(parsers: Sequence[dict], agreement: np.ndarray) -> dict:
    """Means of agreement for each parser, and their rank correlation with the F1 against gold trees.

    Args:
        parsers: `model`, `trees` (the name of its layer) and `sentence_f1` of each.
        agreement: `[num_parsers, num_parsers]`, of `tree_agreement`.

    Returns:
        `parsers`, each with its mean agreement with three kinds of others (`None` where there is none); `matrix`, the
        agreement; and `rank_correlation`: by kind, Spearman's of agreement and `sentence_f1` over all parsers ("all")
        and over those with the same name of layer, `None` where fewer than `FEWEST_RANKS` can be ranked.
    """
    models, trees = (np.array([parser[name] for parser in parsers]) for name in ("model", "trees"))
    same_model, same_layer = models[:, None] == models, trees[:, None] == trees
    kinds = {
        SAME_LAYER: same_layer & ~same_model,
        OWN_LAYERS: same_model & ~same_layer,
        ALL: np.ones_like(same_model),
    }
    table = pd.DataFrame(parsers)
    for kind, others in kinds.items():
        table[kind] = mean_agreement(agreement, others)
    groups = {"all": table} | dict(list(table.groupby("trees", sort=False)))
    correlations = {
        kind: {name: _rank_correlation(rows["sentence_f1"], rows[kind]) for name, rows in groups.items()}
        for kind in kinds
    }
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return {"parsers": rows, "matrix": agreement.tolist(), "rank_correlation": correlations}


def _rank_correlation(f1: pd.Series, agreement: pd.Series) -> float | None:
    """Spearman's; `None` where too few can be ranked, or all are equal."""
    known = agreement.notna()
    if known.sum() < FEWEST_RANKS:
        return None
    correlation = f1[known].rank().corr(agreement[known].rank())
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
    kinds = (SAME_LAYER, OWN_LAYERS, ALL)
    rows = [
        [row["trees"], row["model"], per_cent(row["sentence_f1"]), *(per_cent(row[kind]) for kind in kinds)]
        for row in summary["parsers"]
    ]
    correlations = summary["rank_correlation"]
    for name in correlations[ALL]:
        cells = [correlations[kind][name] for kind in kinds]
        if any(cell is not None for cell in cells):
            figures = ("" if cell is None else f"{cell:.2f}" for cell in cells)
            rows.append([f"rank correlation with F1: {name}", "", "", *figures])
    return ["agreement", "model", "sentence F1", *kinds], rows
