"""The picture of the speed benchmark: time per token over batch, length and size."""

from collections.abc import Mapping, Sequence

from eval.extras import import_extra

COLOURS = ("tab:red", "tab:blue", "tab:green", "tab:purple", "tab:brown", "tab:olive", "tab:pink")


def draw_growth(growth: Mapping[str, Mapping], path: str, title: str) -> None:
    """Writes a picture; its kind is that of the file's ending (.png, .svg, .pdf).

    Args:
        growth: by what grows, `{"values": [...], "seconds_per_token": {contestant: [Spread, ...]}}`. A contestant is
            named `"PATH PRECISION"`.
        path: the file.
        title: heading, for instance the machine.
    """
    pyplot = import_extra("matplotlib.pyplot", extra="benchmark")
    ticker = import_extra("matplotlib.ticker", extra="benchmark")
    figure, panels = pyplot.subplots(1, len(growth), figsize=(5 * len(growth), 4.5), sharey=True, squeeze=False)
    for axes, (what, measured) in zip(panels[0], growth.items(), strict=True):
        names = list(measured["seconds_per_token"])
        colours = dict(zip(dict.fromkeys(_path(name) for name in names), COLOURS, strict=False))
        for name in names:
            _draw_curve(axes, measured["values"], measured["seconds_per_token"][name], name, colours[_path(name)])
        axes.set(xlabel=what, xscale="log", yscale="log")
        axes.set_xticks(measured["values"], list(map(str, measured["values"])))
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("training, microseconds per token")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(title, fontsize="medium")
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _path(name: str) -> str:
    return name.rsplit(" ", 1)[0]


def _draw_curve(axes, values: Sequence[int], spreads: Sequence, name: str, colour: str) -> None:
    median, low, high = ([1e6 * spread[index] for spread in spreads] for index in range(3))
    style = "--" if name.endswith(" bf16") else "-"
    axes.plot(values, median, style, marker=".", color=colour, label=name)
    axes.fill_between(values, low, high, color=colour, alpha=0.15)
