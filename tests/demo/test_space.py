"""The files of `examples/space/`, as the Hub and Docker read them."""

import json
import re
import shlex

import pytest
import yaml

from onlstm_hf.cli.main import build_parser


@pytest.fixture
def dockerfile(project_root):
    text = (project_root / "examples/space/Dockerfile").read_text()
    return [tuple(line.split(" ", 1)) for line in text.replace("\\\n", "").splitlines() if line and line[0] != "#"]


def test_the_hub_is_told_what_the_dockerfile_does(project_root, dockerfile):
    _, front_matter, _ = (project_root / "examples/space/README.md").read_text(encoding="utf-8").split("---\n", 2)
    metadata = yaml.safe_load(front_matter)
    assert metadata["sdk"] == "docker" and len(metadata["short_description"]) <= 60
    (command,) = [json.loads(rest) for name, rest in dockerfile if name == "CMD"]
    assert command[0] == "onlstm-hf"
    options = build_parser().parse_args(command[1:])
    assert (options.host, options.port) == ("0.0.0.0", metadata["app_port"])
    assert ("EXPOSE", str(metadata["app_port"])) in dockerfile
    assert f"COPY {options.models[0]} /home/user/{options.models[0]}".split(" ", 1) in list(map(list, dockerfile))
    names = [name for name, _ in dockerfile]
    assert names.index("USER") < names.index("CMD")
    assert dict(dockerfile)["USER"] == "user" and ("WORKDIR", "/home/user") in dockerfile


def test_what_the_dockerfile_copies_is_what_the_readme_puts_there(project_root, dockerfile):
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    (commands,) = [
        block for block in re.findall(r"^```bash\n(.*?)^```", readme, re.M | re.S) if "examples/space" in block
    ]
    for copied in [rest.split()[0] for name, rest in dockerfile if name == "COPY"]:
        assert f"my-space/{copied}" in shlex.split(commands.replace("\n", " "), comments=False)
    torch = [rest for _, rest in dockerfile if "torch==" in rest]
    assert re.search(r"torch==[\d.]+", torch[0])[0] in readme
