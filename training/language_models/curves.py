"""Figure of a finished run: perplexity and F1 over the updates, with baselines."""

from collections.abc import Mapping
from pathlib import Path

from onlstm_hf.utils.files import written_file

F1 = "parsing_f1_layer_"


def draw_curves(log: Path, path: Path, baselines: Mapping[str, float]) -> bool:
    """Draws perplexity and, where gold trees were given, sentence F1 over the updates of a run.

    Dashed lines show the F1 (0 to 1) of baselines. Returns whether there are the libraries and validations to draw.
    """
    try:
        import pandas as pd
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return False
    entries = pd.read_json(log, lines=True)
    if "validation_perplexity" not in entries:
        return False
    has_trees = "parsing_f1" in entries
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2 if has_trees else 1, squeeze=False)[0]

    def plot(panel: int, key: str, label: str) -> None:
        if key in entries:
            points = entries.dropna(subset=key)
            axes[panel].plot(points["step"], points[key], marker=".", label=label)

    plot(0, "perplexity", "training")
    plot(0, "validation_perplexity", "validation")
    axes[0].set(xlabel="updates", ylabel="perplexity", yscale="log")
    if has_trees:
        layers = sorted(key for key in entries if key.startswith(F1)) or ["parsing_f1"]
        for key in layers:
            plot(1, key, f"layer {key.removeprefix(F1)}" if key.startswith(F1) else "induced trees")
        for number, (name, f1) in enumerate(baselines.items()):
            axes[1].axhline(100 * f1, color=f"C{len(layers) + number}", linestyle="--", label=name)
        axes[1].set(xlabel="updates", ylabel="sentence F1 (%)")
    for panel in axes:
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    with rc_context({"svg.hashsalt": "onlstm_hf"}), written_file(path, binary=True) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
    return True
