import json

import pytest


@pytest.fixture
def run(capsys, tmp_path):
    """Runs a script, which must succeed. Returns its results and what it printed."""

    def run(script, *arguments):
        output = tmp_path / "results.json"
        assert script.main([*map(str, arguments), "--output", str(output)]) == 0
        return json.loads(output.read_text(encoding="utf-8")), capsys.readouterr().out

    return run
