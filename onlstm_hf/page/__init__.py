"""The static web page: what writes it out with checkpoints, and its sources in `static/`, which a browser runs.

Nothing is computed on a server. `site.py` writes the files, `weights.py` a checkpoint's weights in 8 bits,
`rounding.py` chooses these, `about.py` says of a model what the page tells its readers, and `serving.py` shows a
written page on this machine. `docs/page.md` describes the page and its modules.
"""
