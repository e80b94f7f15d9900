"""The static web page: what writes it out with checkpoints, and its sources in `static/`, which a browser runs."""
