"""How large the models and the batches of the speed benchmark are."""

from dataclasses import dataclass

from eval.speed.contestants import StackSize


@dataclass(frozen=True)
class Scale:
    """Sizes of all cases.

    Attributes:
        large, small: the two stacks of the recurrence.
        growing: the stack of which batch size, length and layer sizes grow one by one.
        batch_sizes, lengths, widths: to which they grow; the width is that of the inner layer.
        model: fields of the `ONLSTMConfig` that parses, and whose peak memory is measured.
        prpn: fields of the `PRPNConfig` of the case `prpn`.
        recipe: of the whole training step and of the loss curves.
        overrides: of the recipe.
        shortest_turn: seconds that a contestant of the recurrence runs for in each round, see `take_turns`.
    """

    large: StackSize
    small: StackSize
    growing: StackSize
    batch_sizes: tuple[int, ...]
    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    model: dict
    prpn: dict
    recipe: str
    overrides: tuple[str, ...] = ()
    shortest_turn: float = 0.2


_LARGE, _SMALL = StackSize(20, 70, (400, 1150, 1150, 400)), StackSize(32, 35, (200, 400, 200))
_GROWTH = {"batch_sizes": (5, 10, 20, 40, 80), "lengths": (10, 35, 100, 300, 1000), "widths": (100, 200, 400, 800)}
SCALES = {
    "full": Scale(_LARGE, _SMALL, _SMALL, **_GROWTH, model={}, prpn={}, recipe="onlstm_ptb"),
    "small": Scale(
        StackSize(32, 50, (320, 512, 512, 320), 8),
        _SMALL,
        _SMALL,
        **_GROWTH,
        model={"embedding_size": 320, "hidden_size": 512, "chunk_size": 8},
        prpn={"embedding_size": 256, "hidden_size": 320},
        recipe="onlstm_ptb_small",
    ),
    "quick": Scale(
        StackSize(2, 4, (8, 12, 8), 4),
        StackSize(3, 2, (4, 8, 4), 4),
        StackSize(2, 3, (4, 8, 4), 4),
        batch_sizes=(1, 2),
        lengths=(2, 4),
        widths=(4, 8),
        model={"vocab_size": 50, "embedding_size": 8, "hidden_size": 12, "chunk_size": 4},
        prpn={"vocab_size": 50, "embedding_size": 8, "hidden_size": 12},
        recipe="onlstm_ptb",
        overrides=(
            "--batch_size=2",
            "--bptt_length=6",
            "--model.embedding_size=8",
            "--model.hidden_size=12",
            "--model.chunk_size=4",
        ),
        shortest_turn=0.0,
    ),
}
