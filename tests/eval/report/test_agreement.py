"""The chance of a rank correlation, against all orders and against SciPy."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.report.agreement import permutation_p


@pytest.mark.parametrize("second", [[2, 1, 3, 5, 4], [1, 1, 3, 5, 4], [1, 2, 3, 4, 5]])
def test_with_few_parsers_all_orders_count(second):
    first = [0.1, 0.2, 0.3, 0.4, 0.5]
    found = abs(spearmanr(first, second).statistic)
    others = [abs(spearmanr(first, order).statistic) for order in permutations(second)]
    assert permutation_p(first, second) == pytest.approx(np.mean(np.array(others) >= found - 1e-9))


def test_with_many_parsers_it_is_close_to_the_t_distribution():
    generator = np.random.default_rng(1)
    first = generator.normal(size=30)
    second = first + 2 * generator.normal(size=30)
    assert permutation_p(first, second) == pytest.approx(spearmanr(first, second).pvalue, abs=0.01)
    assert permutation_p(first, second) == permutation_p(first, second)
