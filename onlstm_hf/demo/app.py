"""A web page that shows what language models find in sentences: `onlstm-hf demo`, or `app.py` of a Space.

The page is Gradio's. Beside it the server has one address, `/download/...`, that gives the picture or the brackets
of a sentence, so that no files lie about on the server.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock

try:
    import gradio as gr
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse
except ImportError as error:
    raise ImportError('the demo needs Gradio: pip install "onlstm_hf[demo]"') from error

# A Space runs a copy of this file, so the neighbours are imported by their whole names.
from ..cli.main import run_program
from ..trees.drawing import svg_to_png
from ..utils.checkpoints import default_model
from .analysis_html import STYLE, analysis_html, link_html, message_html, pair_html
from .models import Choices, DemoModels
from .sentence_analysis import SentenceAnalysis

# No request of the page comes near this size, unless its text is far too long.
MAX_REQUEST_BYTES = 1_000_000
MAX_WAITING_REQUESTS = 100
MAX_SESSIONS = 1000

EXAMPLES = [
    "the company said it expects to report a loss",
    "( (S (NP (DT The) (JJ old) (NN man)) (VP (VBD sold) (NP (DT the) (NN house)) (PP (IN in) (NP (NN spring))))) )",
    "the chairman who met the investors resigned\nshares of the company fell because analysts expect a loss",
]
EXAMPLE_PAIR = ("the executives who met the lawyer are pleased", "the executives who met the lawyer is pleased")
BRANCHING_BIASES = [
    ("right: the papers' rule", "right"),
    ("none", "none"),
    ("ranges: a PRPN's gates", "ranges"),
]
INTRODUCTION = """\
<h1>Trees that a language model found</h1>
<p>An ON-LSTM or PRPN only learns to predict the next word. The syntactic distances between words that it computes on
the way give a tree of the sentence that nobody has shown to it. Many of its constituents are right, many are not.</p>
"""
KEEP_LINK = """\
() => {
    const link = [...document.querySelectorAll(".permalink")].find((element) => element.checkVisibility());
    if (!link) return;
    const address = new URL(link.href);
    const theme = new URLSearchParams(location.search).get("__theme");
    if (theme) address.searchParams.set("__theme", theme);
    history.replaceState(null, "", address);
}"""


def _or_message(show: Callable[..., str], *arguments) -> str:
    """What is shown, or what the user has to mend."""
    try:
        return show(*arguments)
    except ValueError as error:
        return message_html(str(error))


def show_analyses(models: DemoModels, text: str, choices: Choices) -> str:
    """The HTML of the analyses of a text."""
    shown = []
    for part, analysis in models.analyze(text, choices):
        kinds = {"SVG": "figure.svg", "PNG": "figure.png", **({"brackets": "tree.txt"} if analysis.tree else {})}
        links = {name: choices.link(f"download/{file}", text=part) for name, file in kinds.items()}
        shown.append(analysis_html(analysis, links))
    return link_html(choices.link("./", text=text)) + "".join(shown)


def show_pair(models: DemoModels, grammatical: str, ungrammatical: str, choices: Choices) -> str:
    """The HTML of the comparison of a minimal pair."""
    comparison = pair_html(models.compare(grammatical, ungrammatical, choices))
    return link_html(choices.link("./", grammatical=grammatical, ungrammatical=ungrammatical)) + comparison


def build_page(models: DemoModels) -> gr.Blocks:
    """The page, without a server."""
    default = models.default_choices()

    def layer_radio(choices: Choices) -> gr.Radio:
        layers = [(f"layer {layer}", layer) for layer in models.layers(choices.model)]
        return gr.Radio(
            layers, value=choices.layer, label="Layer that makes the tree", visible=bool(layers), min_width=300
        )

    def parse(text, model, layer, bias, treebank):
        return _or_message(show_analyses, models, text, Choices(model, layer, bias, treebank))

    def compare(grammatical, ungrammatical, model, treebank):
        choices = replace(models.default_choices(model), treebank=treebank)
        return _or_message(show_pair, models, grammatical, ungrammatical, choices)

    def open_page(request: gr.Request):
        """Fills the page in with what its address has."""
        fields = request.query_params
        pair = tuple(fields.get(name, "") for name in ("grammatical", "ungrammatical"))
        shows_pair = any(pair)
        text = fields.get("text", EXAMPLES[0])
        try:
            choices, problem = models.choices(fields), ""
        except ValueError as error:
            choices, problem = default, message_html(str(error))
        analyses, comparison = "", ""
        if shows_pair:
            comparison = problem or _or_message(show_pair, models, *pair, choices)
        else:
            analyses = problem or _or_message(show_analyses, models, text, choices)
        return {
            tabs: gr.Tabs(selected="compare" if shows_pair else "parse"),
            model_input: choices.model,
            treebank_input: choices.treebank,
            text_input: text,
            layer_input: layer_radio(choices),
            bias_input: choices.bias,
            parse_output: analyses,
            grammatical_input: pair[0] if shows_pair else EXAMPLE_PAIR[0],
            ungrammatical_input: pair[1] if shows_pair else EXAMPLE_PAIR[1],
            pair_output: comparison,
        }

    # One request at a time goes through the models; the others wait.
    event = {"concurrency_limit": 1, "concurrency_id": "models", "show_progress": "minimal"}
    with gr.Blocks(title="Trees that a language model found", analytics_enabled=False) as page:
        gr.HTML(INTRODUCTION, elem_classes="prose")
        model_input = gr.Radio(list(models.checkpoints), value=default.model, label="Model")
        treebank_input = gr.Checkbox(
            default.treebank,
            label="Spell as the Penn Treebank",
            info="Lower case, no punctuation, n't and 's apart, N for numbers: what models of its text know.",
        )
        with gr.Tabs() as tabs:
            with gr.Tab("Parse", id="parse"):
                text_input = gr.Textbox(
                    EXAMPLES[0],
                    label="Sentences",
                    info="One a line, or gold trees in brackets to compare with. Shift+Enter parses.",
                    lines=3,
                    max_lines=10,
                    elem_id="sentences",
                )
                with gr.Row():
                    layer_input = layer_radio(default)
                    bias_input = gr.Radio(BRANCHING_BIASES, value=default.bias, label="Branching bias", min_width=300)
                parse_button = gr.Button("Parse", variant="primary", elem_id="parse")
                gr.Examples([[example] for example in EXAMPLES], text_input)
                parse_output = gr.HTML(elem_id="analyses")
            with gr.Tab("Compare two sentences", id="compare"):
                grammatical_input = gr.Textbox(EXAMPLE_PAIR[0], label="Grammatical", elem_id="grammatical")
                ungrammatical_input = gr.Textbox(EXAMPLE_PAIR[1], label="Ungrammatical", elem_id="ungrammatical")
                compare_button = gr.Button("Compare", variant="primary", elem_id="compare")
                pair_output = gr.HTML(elem_id="comparison")

        gr.on(
            [parse_button.click, text_input.submit],
            parse,
            [text_input, model_input, layer_input, bias_input, treebank_input],
            parse_output,
            api_name="parse",
            **event,
        ).then(None, js=KEEP_LINK)
        gr.on(
            [compare_button.click, grammatical_input.submit, ungrammatical_input.submit],
            compare,
            [grammatical_input, ungrammatical_input, model_input, treebank_input],
            pair_output,
            api_name="compare",
            **event,
        ).then(None, js=KEEP_LINK)
        model_input.input(
            lambda model: layer_radio(models.default_choices(model)),
            model_input,
            layer_input,
            api_visibility="private",
        )
        # fmt: off
        filled_in = {
            tabs, model_input, treebank_input, text_input, layer_input, bias_input, parse_output, grammatical_input,
            ungrammatical_input, pair_output,
        }
        # fmt: on
        page.load(open_page, None, filled_in, api_visibility="private", show_progress_on=[parse_output], **event)
    page.state_session_capacity = MAX_SESSIONS
    return page.queue(max_size=MAX_WAITING_REQUESTS, api_open=False)


class RequestLimit:
    """Refuses uploads, which the page has no use for, and requests too large to be its own."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            length = Headers(scope=scope).get("content-length", "0" if scope["method"] == "DELETE" else "")
            if not length.isdecimal() or int(length) > MAX_REQUEST_BYTES or scope["path"].endswith("/upload"):
                refusal = PlainTextResponse("too large for this page, which takes short texts only", status_code=413)
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


def build_app(names: Sequence[str]) -> FastAPI:
    """The server: the page at `/`, and pictures and brackets below `/download/`.

    Args:
        names: checkpoint folders or names on the Hub.
    """
    models = DemoModels(names)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(RequestLimit)
    drawing = Lock()  # one picture at a time needs memory

    contents: dict[str, tuple[str, Callable[[SentenceAnalysis], str | bytes]]] = {
        "figure.svg": ("image/svg+xml", lambda analysis: analysis.to_svg()),
        "figure.png": ("image/png", lambda analysis: svg_to_png(analysis.to_svg())),
        "tree.txt": ("text/plain; charset=utf-8", lambda analysis: f"{analysis.tree.to_bracket()}\n"),
    }

    @app.get("/download/{file}")
    def download(file: str, request: Request) -> Response:
        if file not in contents:
            return PlainTextResponse(f"there is no {file}, only {', '.join(contents)}", status_code=404)
        media_type, content = contents[file]
        fields = request.query_params
        try:
            ((_, analysis), *others) = models.analyze(fields.get("text", ""), models.choices(fields))
            if others:
                raise ValueError("A file has one sentence.")
            if file == "tree.txt" and analysis.tree is None:
                raise ValueError("This model induces no trees.")
            with drawing:
                body = content(analysis)
        except (ValueError, ImportError) as error:
            return PlainTextResponse(str(error), status_code=400)
        # Where a browser shows the picture instead of saving it, nothing in it may run.
        headers = {
            "Content-Disposition": f'attachment; filename="{file}"',
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
            "X-Content-Type-Options": "nosniff",
        }
        return Response(body, media_type=media_type, headers=headers)

    theme = gr.themes.Default(
        primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    ).set(  # colours that can be read: a contrast of 4.5 to 1
        button_primary_background_fill="*primary_600",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
    )
    return gr.mount_gradio_app(
        app,
        build_page(models),
        path="/",
        theme=theme,
        head=f"<style>{STYLE}</style>",
        footer_links=["settings"],
        run_history=False,
        ssr_mode=False,
    )


def serve(names: Sequence[str] = (), host: str | None = None, port: int | None = None) -> None:
    """Shows the page until the process is ended.

    Args:
        names: checkpoint folders or names on the Hub; the default model where there are none.
        host: the address to listen on; by default that of `GRADIO_SERVER_NAME`, which a Space sets, or this machine.
        port: by default that of `GRADIO_SERVER_PORT`, or 7860.
    """
    host = host or os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    port = port or int(os.environ.get("GRADIO_SERVER_PORT", "7860"))
    app = build_app(list(names) or [default_model()])
    print(f"The demo is at http://{host}:{port}/ until Ctrl-C ends it.", flush=True)
    uvicorn.run(app, host=host, port=port, log_level="warning")


if __name__ == "__main__":
    sys.exit(run_program("demo", lambda: serve(sys.argv[1:])))
