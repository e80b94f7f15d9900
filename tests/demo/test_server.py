"""The web page's server, as its users and those who attack it see it."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onlstm_hf.cli.main import main
from tests.helpers.demo_server import port_of, running_server, wait_until
from tests.helpers.requirements import library

library("starlette", reason='the demo needs pip install "onlstm_hf[demo]"')
from onlstm_hf.demo import app as demo  # noqa: E402
from onlstm_hf.demo import drawing  # noqa: E402
from onlstm_hf.demo.guard import client_of  # noqa: E402

FILES = [f"/download/{name}" for name in ("figure.svg", "figure.png", "tree.txt", "table.tsv", "table.json")]
PATHS = ["/", "/static/icon.svg", "/static/page.css", "/static/page.js", *FILES]
FIELDS = ["text", "grammatical", "ungrammatical", "model", "layer", "bias", "treebank", "beside"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs more loopback addresses, or /proc")
SECRET = "hemlichkeit"  # stands in everything that a user types here


def ask(port, target="/", method="GET", headers=(), source="127.0.0.1"):
    """Status, headers and body of an answer; the target is sent as it stands."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=120, source_address=(source, 0))) as connection:
        headers = {"Host": f"127.0.0.1:{port}", **dict(headers)}
        connection.putrequest(method, "/", skip_host=True, skip_accept_encoding=True)
        connection._buffer[0] = f"{method} {target} HTTP/1.1".encode("latin-1")  # which http.client would check
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def send_raw(port, request):
    """The first line of the answer to some bytes; empty if the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(request)
        try:
            return connection.recv(1000).partition(b"\r\n")[0].decode()
        except ConnectionResetError:
            return ""


class Process:
    """The server in a process of its own, and all that it could leave: its folders and its log."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("temporary", "home", "current"):
            (folder / name).mkdir()
        checkout = Path(__file__).parents[2]
        environment = {
            **os.environ,
            **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder / "temporary")),
            "HOME": str(folder / "home"),
            "PYTHONPATH": os.pathsep.join([str(checkout), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        }
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.demo_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder / "current",
                env=environment,
            )
        self.port = int(self.process.stdout.readline())

    def files(self):
        return sorted(path for name in ("temporary", "home", "current") for path in (self.folder / name).rglob("*"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    process = Process(tmp_path_factory.mktemp("server"))
    files = process.files()
    yield process
    process.process.stdin.close()
    assert process.process.wait(timeout=120) == 0
    # After all requests of all tests of this module, several hundred of every kind:
    assert process.files() == files
    told = process.log.read_text().splitlines()
    assert all(line.startswith("Most words here are unknown to the model") for line in told), told


# What is answered


def test_the_app_has_these_routes_and_no_other(models):
    app = demo.build_app(models)
    assert {(route.path, method) for route in app.routes for method in route.methods} == {
        (path, method) for path in PATHS for method in ("GET", "HEAD")
    }


@pytest.mark.parametrize("path", PATHS)
def test_what_is_listed_is_answered_to_get_and_head_and_to_nothing_else(server, path):
    target = f"{path}?text=the+cat+{SECRET}"
    status, headers, body = ask(server.port, target)
    assert status == 200 and len(body) == int(headers["Content-Length"]) > 0
    assert ask(server.port, target, "HEAD")[::2] == (200, b"")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get", "X"):
        assert ask(server.port, target, method)[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        *("/openapi.json", "/docs", "/config", "/monitoring/summary", "/gradio_api/call/parse", "/upload", "/login"),
        *("/gradio_api/file=/etc/hostname", "/gradio_api/process_recording", "/gradio_api/deep_link", "/queue/join"),
        *("//", "/index.html", "/favicon.ico", "/robots.txt", "/static", "/static/", "/download", "/download/"),
        *("/static/page.css/", "/static/page.CSS", "/static/page.css%00", "/static//page.css", "/./static/page.css"),
        *("/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/..\\app.py"),
        *("/static/%2fetc%2fhostname", "/static//etc/hostname", "/etc/hostname", "/templates/page.html"),
        *("/download/tree.exe", "/download/figure.svg/", "/download/figure%0d%0aX:1.svg", "/\u00ff", "/%ff%fe"),
        *(
            "*",
            "http://127.0.0.1/",
            "http://example.org/download/tree.txt",
            "file:///etc/hostname",
            "/" + "a" * 60_000,
        ),
    ],
)
def test_whatever_is_not_listed_is_not_found(server, path):
    for method in ("GET", "POST"):
        status, headers, body = ask(server.port, path, method)
        assert status in ((400, 404) if not path.isascii() else (404,))
        assert headers["Content-Type"].startswith("text/plain") and len(body) < 100


def test_every_answer_closes_the_page_to_others(server):
    for target in (*PATHS, "/nothing", f"/?text={quote(SECRET)}&layer=x"):
        _, headers, _ = ask(server.port, target, headers={"Origin": "https://example.org"})
        assert not [name for name in headers if name.lower().startswith("access-control")]
        policy = headers["Content-Security-Policy"]
        assert (
            "default-src 'none'" in policy
            and "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
        )
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
        assert "server" not in headers
    assert "frame-ancestors 'none'" in ask(server.port)[1]["Content-Security-Policy"]


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "example.org", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1"),
        *("evil.example:127.0.0.1", "localhost@evil.example", "localhost:x", "::1", "[127.0.0.1", "localhost]"),
    ],
)
def test_requests_to_another_host_are_refused(server, host):
    for path in PATHS:
        assert ask(server.port, f"{path}?text=the+cat", headers={"Host": host})[0] == 400


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:7860", "127.0.0.1", "127.0.0.1:99", "[::1]:7860", "[::1]"),
        *("parser.example.org", "Parser.Example.org:443"),
    ],
)
def test_requests_to_a_host_of_the_server_are_answered(server, host):
    for path in ("/", "/download/tree.txt"):
        assert ask(server.port, f"{path}?text=the+cat", headers={"Host": host})[0] == 200


def test_the_address_that_a_client_connected_to_needs_no_name(models):
    with running_server(demo.build_app(models)) as server:
        for host, status in (("127.0.0.1", 200), ("127.0.0.2", 400)):
            assert ask(port_of(server), headers={"Host": host})[0] == status


def test_a_space_is_shown_by_the_hub_under_its_own_name(models):
    app = demo.build_app(models, space_host="user-trees.hf.space")
    with running_server(app, space_host="user-trees.hf.space") as server:
        status, headers, _ = ask(port_of(server), headers={"Host": "user-trees.hf.space"})
        assert status == 200
        assert "frame-ancestors https://huggingface.co" in headers["Content-Security-Policy"]
        assert ask(port_of(server), headers={"Host": "other-trees.hf.space"})[0] == 400


def test_pages_of_others_may_link_here_and_no_more(server):
    for site, mode, status in [
        ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
        ("cross-site", "no-cors", 403),
        ("cross-site", "cors", 403),
        ("same-site", "no-cors", 403),
    ]:
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
        assert ask(server.port, "/download/tree.txt?text=the+cat", headers=headers)[0] == status


def test_downloads_are_named_after_the_sentence_and_the_preview_has_this_servers_address(server):
    for file in FILES:
        _, headers, _ = ask(server.port, f"{file}?text=The+cat%22X-Y:+1&treebank=0&beside=layers")
        assert headers["Content-Disposition"] == f'attachment; filename="the-cat-x-y-1{Path(file).suffix}"'
    host = "parser.example.org:8080"
    body = ask(server.port, "/?text=the+cat", headers={"Host": host})[2].decode()
    assert f'<meta property="og:image" content="http://{host}/download/figure.png?text=the+cat&amp;' in body


def test_requests_with_a_body_are_refused_before_it_is_read(server):
    for headers in ({"Content-Length": "1000000"}, {"Transfer-Encoding": "chunked"}, {"Content-Length": "1"}):
        for content_type in ("application/json", "multipart/form-data; boundary=x", "text/plain"):
            assert ask(server.port, headers={**headers, "Content-Type": content_type})[0] == 400


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"GET /?text=\x00\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET  /  HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /?text=" + SECRET.encode() * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of TLS
        b"\r\n" * 40_000,
        SECRET.encode() + b"\r\n\r\n",
    ],
)
def test_malformed_requests_are_refused(server, request_bytes):
    assert send_raw(server.port, request_bytes) in (
        "HTTP/1.1 400 Bad Request",
        "HTTP/1.1 431 Request Header Fields Too Large",
        "",
    )
    assert ask(server.port, "/static/page.css")[0] == 200


def test_a_second_request_on_a_connection_is_not_read(server):
    request = (
        f"GET /static/page.css HTTP/1.1\r\nHost: localhost\r\n\r\nGET /{SECRET} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall(request.encode())
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answers.count(b"HTTP/1.1") == 1


def test_an_upgrade_is_not_made(server):
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "a",
        "Sec-WebSocket-Version": "13",
    }
    assert ask(server.port, "/static/page.css", headers=headers)[0] == 200


VALUES = [
    "",
    " ",
    "null",
    "[]",
    json.dumps([SECRET, None]),
    json.dumps({"path": "/etc/hostname", "meta": {"_type": "gradio.FileData"}, "x": SECRET}),
    f"the cat {SECRET}",
    f"(S (NP the {SECRET}) (VP sat))",
    f"\x00\x01\x1b[31m {SECRET} \x7f\x85\u2028 the cat",
    f"\u202e{SECRET} the cat\u202c \u2066x",
    f"{SECRET}\r\nSet-Cookie: a=b\r\n\r\n<script>",
    f"<script>{SECRET}</script><svg onload=alert(1)>]]>&{{{{7*7}}}}",
    "(" * 10_000,
    "(" * 1999 + "a b" + ")" * 1998,
    "(" + ")" * 3000,
    "()" * 1500,
    "(a " * 900 + "b" + ")" * 900,
    f"(({SECRET}) (x))",
    ")" + SECRET,
    "[" * 3000,
    "the " * 80,
    "\n".join(["it sat " + SECRET] * 10),
    "1 " * 79,
    "-1",
    "1e400",
    "nan",
    "\u0662",  # the digit two, of Arabic
    "99999999999999999999999999",
    SECRET * 2000,
    "w" * 4000,
    "\U0001f468\u200d" * 2000,
    "a\u0301" * 2000,
    "n't" * 1300,
    "1," * 2000,
    "<eos> <unk> the",
    "-LRB- \\u0028 \\ the",
]


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_a_field_is_an_error_of_the_server(server, field):
    for value in VALUES:
        for path in ("/", *FILES):
            others = {} if field in ("text", "grammatical", "ungrammatical") else {"text": f"the cat {SECRET}"}
            if path == "/download/figure.png" and value not in VALUES[:12]:
                continue  # the same picture as in SVG, in seconds
            query = urlencode({**others, field: value})
            status, headers, body = ask(server.port, f"{path}?{query}")
            assert status in (200, 400), (path, field, value)
            if path != "/" and status == 400:
                assert headers["Content-Type"].startswith("text/plain") and body.count(b"\n") == 0
            assert "Set-Cookie" not in headers
            saved_as = headers.get("Content-Disposition", 'attachment; filename="a.txt"')
            assert re.fullmatch(r'attachment; filename="[a-z0-9][a-z0-9-]{0,59}\.(svg|png|txt|tsv|json)"', saved_as)


@pytest.mark.parametrize(
    "query",
    [
        *(
            "text=%ff",
            "text=%ed%a0%80",
            "text=%ed%b0%80%ed%a0%80",
            "%ff=%ff",
            "text=the+cat&model=%c0%af",
            "%ed%a0%80=1",
        ),
        *("text=the&text=cat", "model=onlstm&model=onlstm", "layer=1&layer=2"),
        *("&".join(f"f{number}={SECRET}" for number in range(100)), "&".join(["text"] * 60), "a=" + "b&c=" * 200),
    ],
)
def test_what_is_no_list_of_single_fields_in_utf_8_is_refused_in_a_sentence(server, query):
    for path in ("/", *FILES):
        status, headers, body = ask(server.port, f"{path}?{query}")
        assert status == 400 and headers["Content-Type"].startswith("text/plain") and 10 < len(body) < 100


def test_odd_fields_that_mean_nothing_here_are_passed_over(server):
    for query in (
        "",
        "?",
        "&&&=&;",
        "%",
        "%zz=%&=",
        "__theme=dark&__sign=abc",
        "text[]=the&text.x=1",
        "utm_source=" + SECRET,
    ):
        assert ask(server.port, f"/?{query}")[0] == 200


@given(
    path=st.sampled_from(["/", "/download/figure.svg", "/download/tree.txt"]),
    query=st.lists(
        st.tuples(
            st.sampled_from([*FIELDS, "other"]),
            st.one_of(
                st.binary(max_size=60),
                st.text(alphabet="()[] \nSNP<&\"'\\\u202e\x00N1.-_the", max_size=200).map(str.encode),
                st.sampled_from([b"onlstm", b"prpn", b"rnn", b"1", b"0", b"ranges", b"none"]),
            ),
        ),
        max_size=5,
    ),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_fields_are_no_error_of_the_server(server, path, query):
    status, _, _ = ask(server.port, f"{path}?{urlencode(query)}")
    assert status in (200, 400)


def test_a_real_error_is_logged_without_what_was_typed(models, monkeypatch, caplog, capfd):
    def fail(text, choices):
        try:
            int(text)
        except ValueError as error:
            raise RuntimeError(text) from error

    monkeypatch.setattr(models, "analyze", fail)
    with running_server(demo.build_app(models)) as server, caplog.at_level(logging.DEBUG):
        status, _, body = ask(port_of(server), f"/?text={SECRET}")
    assert (status, body) == (500, b"This is an error of the server.")
    shown = caplog.text + "".join(capfd.readouterr())
    assert "RuntimeError" in shown and "in fail" in shown  # what happened, and where
    assert SECRET not in shown


# Who waits for whom


class Gate:
    """Lets the models read only while it is open, and keeps the order of the texts that they read."""

    def __init__(self, models, monkeypatch):
        self.opened, self.begun = threading.Event(), []
        analyze = models.analyze

        def wait_and_analyze(text, choices):
            self.begun.append(text)
            assert self.opened.wait(120)
            return analyze(text, choices)

        monkeypatch.setattr(models, "analyze", wait_and_analyze)


@pytest.fixture
def gate(models, monkeypatch):
    return Gate(models, monkeypatch)


@linux
def test_honest_clients_are_answered_before_the_queue_of_a_greedy_one(models, gate):
    with running_server(demo.build_app(models)) as server, ThreadPoolExecutor(70) as pool:

        def parse(text, source):
            return ask(port_of(server), f"/?{urlencode({'text': text})}", source=source)[0]

        tasks = server.server_state.tasks
        greedy = [pool.submit(parse, f"the cat {number}", "127.0.0.1") for number in range(40)]
        wait_until(lambda: len(tasks) == 40)
        honest = [pool.submit(parse, f"the dog {number}", f"127.0.0.{2 + number}") for number in range(20)]
        wait_until(lambda: len(tasks) == 60)
        gate.opened.set()
        assert {answer.result() for answer in greedy + honest} == {200}
    # The greedy client's running request, and one turn of each.
    assert sum("dog" in text for text in gate.begun[:22]) == 20


def test_work_of_clients_who_have_left_is_dropped(models, gate):
    with running_server(demo.build_app(models)) as server:
        connections = [socket.create_connection(("127.0.0.1", port_of(server))) for _ in range(10)]
        for number, connection in enumerate(connections):
            connection.sendall(f"GET /?text=cat+{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            wait_until(lambda expected=number + 1: len(server.server_state.tasks) == expected)
        for connection in connections[:9]:  # the first of which is being answered
            connection.close()
        wait_until(lambda: len(server.server_state.tasks) == 1)
        gate.opened.set()
        assert connections[9].recv(15) == b"HTTP/1.1 200 OK"
        connections[9].close()
    assert gate.begun == ["cat 0", "cat 9"]


@linux
def test_a_client_with_too_many_requests_waiting_is_told_so_and_others_are_not_concerned(models, gate):
    most = demo.MAX_WAITING_OF_CLIENT
    with running_server(demo.build_app(models)) as server, ThreadPoolExecutor(most + 2) as pool:
        waiting = [pool.submit(ask, port_of(server), "/?text=cat") for _ in range(most + 1)]
        wait_until(lambda: len(server.server_state.tasks) == most + 1)
        status, _, body = ask(port_of(server), "/?text=cat")
        assert status == 429 and b"Too many" in body
        assert ask(port_of(server), "/static/page.css")[0] == 200
        other = pool.submit(ask, port_of(server), "/?text=cat", source="127.0.0.2")
        gate.opened.set()
        assert {answer.result()[0] for answer in [*waiting, other]} == {200}


@pytest.mark.parametrize(
    "forwarded, client",
    [
        ("8.8.8.8", "8.8.8.8"),
        ("1.1.1.1, 8.8.8.8", "8.8.8.8"),  # what stands before may have been made up
        ("1.1.1.1, 8.8.8.8, 10.0.0.7, 172.16.3.4", "8.8.8.8"),
        ("2600:1f18:1:2:3:4:5:6", "2600:1f18:1:2::/64"),
        ("1.1.1.1, nonsense", "10.0.0.1"),
        ("10.1.1.1", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_behind_a_proxy_the_last_public_address_is_the_client(forwarded, client):
    scope = {"type": "http", "client": ("10.0.0.1", 5), "headers": [(b"x-forwarded-for", forwarded.encode())]}
    assert client_of(scope, behind_proxy=True) == client
    assert client_of(scope, behind_proxy=False) == "10.0.0.1"


@linux
def test_pictures_are_drawn_while_others_parse(models, monkeypatch):
    monkeypatch.setattr(drawing, "_PROGRAM", "import time; time.sleep(600)")
    before = children()
    with running_server(demo.build_app(models)) as server:
        with socket.create_connection(("127.0.0.1", port_of(server))) as drawn:
            drawn.sendall(b"GET /download/figure.png?text=cat HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: children() > before)
            assert ask(port_of(server), "/?text=cat")[0] == 200
            assert ask(port_of(server), "/download/figure.svg?text=cat")[0] == 200
            assert children() > before
        wait_until(lambda: children() == before)  # nobody waits for it any more


@linux
def test_one_picture_is_drawn_at_a_time_and_given_up_if_it_takes_too_long(models, monkeypatch):
    monkeypatch.setattr(drawing, "_PROGRAM", "import time; time.sleep(600)")
    monkeypatch.setattr(drawing, "SECONDS_TO_DRAW", 0.2)
    before = children()
    with running_server(demo.build_app(models)) as server, ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask, port_of(server), "/download/figure.png?text=cat") for _ in range(4)]
        while not all(answer.done() for answer in answers):
            assert len(children() - before) <= 2  # one of which has been killed
            time.sleep(0.01)
        for answer in answers:
            status, headers, body = answer.result()
            assert status == 503 and b"too long" in body and "Content-Disposition" not in headers
        wait_until(lambda: children() == before)


def test_a_picture_that_fails_is_an_error_without_what_was_typed(models, monkeypatch, capfd, caplog):
    monkeypatch.setattr(drawing, "_PROGRAM", "import sys; sys.exit(sys.stdin.read())")
    with running_server(demo.build_app(models)) as server:
        assert ask(port_of(server), f"/download/figure.png?text={SECRET}")[0] == 500
    shown = caplog.text + "".join(capfd.readouterr())
    assert "RuntimeError" in shown and SECRET not in shown


def children():
    """The processes that this one has started and that have not ended."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {process for children in tasks for process in children.read_text().split()}


# Slow and silent clients


async def large_answer(scope, receive, send):
    """More than the buffers of the kernel take, and nobody reads it."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": bytes(50_000_000)})


@pytest.mark.parametrize(
    "beginning", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 1000]
)
def test_who_does_not_finish_asking_is_dropped(models, beginning):
    with (
        running_server(demo.build_app(models), seconds_to_ask=0.2) as server,
        socket.create_connection(("127.0.0.1", port_of(server)), timeout=120) as connection,
    ):
        connection.sendall(beginning)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
        wait_until(lambda: not server.server_state.connections)


def test_who_asks_a_byte_at_a_time_is_dropped(models):
    with (
        running_server(demo.build_app(models), seconds_to_ask=0.3) as server,
        socket.create_connection(("127.0.0.1", port_of(server)), timeout=120) as connection,
        pytest.raises((ConnectionResetError, BrokenPipeError)),
    ):
        for _ in range(12_000):
            connection.sendall(b"a")
            time.sleep(0.01)


def test_a_body_that_never_comes_is_not_waited_for(models):
    with running_server(demo.build_app(models)) as server:
        request = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"
        assert send_raw(port_of(server), request).endswith("404 Not Found")
        wait_until(lambda: not server.server_state.connections)


def test_who_does_not_read_is_dropped():
    with (
        running_server(large_answer, seconds_to_read=0.3) as server,
        socket.create_connection(("127.0.0.1", port_of(server)), timeout=120) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: server.server_state.total_requests == 1)
        wait_until(lambda: not server.server_state.connections)


def test_who_waits_for_an_answer_is_not_dropped(models, gate):
    limits = {"seconds_to_ask": 0.2, "seconds_to_read": 0.2}
    with running_server(demo.build_app(models), **limits) as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, port_of(server), "/?text=cat")
        wait_until(lambda: gate.begun)
        time.sleep(0.5)
        gate.opened.set()
        assert answer.result()[0] == 200


@linux
def test_an_address_has_so_many_connections_and_others_are_not_concerned(models):
    most = demo.MAX_CONNECTIONS_OF_CLIENT
    with running_server(demo.build_app(models)) as server:
        held = [socket.create_connection(("127.0.0.1", port_of(server)), timeout=120) for _ in range(most)]
        wait_until(lambda: len(server.server_state.connections) == most)
        with pytest.raises(ConnectionError):
            ask(port_of(server), "/static/page.css")
        assert ask(port_of(server), "/static/page.css", source="127.0.0.2")[0] == 200
        for connection in held:
            connection.close()
        wait_until(lambda: not server.server_state.connections)
        assert ask(port_of(server), "/static/page.css")[0] == 200


# The command


def test_the_command_says_what_to_install_where_the_extra_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "onlstm_hf.demo.app")
    assert main(["demo"]) == 1
    assert 'pip install "onlstm_hf[demo]"' in capsys.readouterr().err


def test_the_command_serves_the_models_it_is_given(monkeypatch, models):
    served = {}
    monkeypatch.setattr(demo.DemoModels, "load", lambda names: served.update(names=names) or models)
    monkeypatch.setattr(demo.uvicorn.Server, "run", lambda server: served.update(server=server))
    monkeypatch.setattr(demo, "build_app", lambda *arguments: served.update(app=arguments))
    assert main(["demo", "a", "b", "--port", "1234", "--host", "0.0.0.0", "--allowed-host", "x.org"]) == 0
    config = served["server"].config
    assert (config.host, config.port, served["names"]) == ("0.0.0.0", 1234, ["a", "b"])
    assert served["app"] == (models, ["x.org"], None)
    monkeypatch.setenv("ONLSTM_MODEL", "c")
    monkeypatch.setenv("SPACE_HOST", "user-trees.hf.space")
    assert main(["demo"]) == 0
    config = served["server"].config
    assert (config.host, config.port, served["names"]) == ("127.0.0.1", 7860, ["c"])
    assert served["app"] == (models, [], "user-trees.hf.space")
