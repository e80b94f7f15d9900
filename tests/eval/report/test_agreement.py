"""P-values of rank correlations, compared with all permutations and with SciPy."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.report.agreement import permutation_p


@pytest.mark.parametrize("second", [[2, 1, 3, 5, 4], [1, 1, 3, 5, 4], [1, 2, 3, 4, 5]])
def test_few_parsers_use_all_permutations(second):
    first = [0.1, 0.2, 0.3, 0.4, 0.5]
    observed = abs(spearmanr(first, second).statistic)
    permuted = [abs(spearmanr(first, order).statistic) for order in permutations(second)]
    assert permutation_p(first, second) == pytest.approx(np.mean(np.array(permuted) >= observed - 1e-9))


def test_many_parsers_are_close_to_the_t_distribution():
    generator = np.random.default_rng(1)
    first = generator.normal(size=30)
    second = first + 2 * generator.normal(size=30)
    assert permutation_p(first, second) == pytest.approx(spearmanr(first, second).pvalue, abs=0.01)
    assert permutation_p(first, second) == permutation_p(first, second)
