"""What is refused: forged hosts and origins, traversal, scripts, sizes, slow clients, tokens."""

import contextlib
import json
import select
import socket
import struct
import time
import urllib.request

import pytest

from enteron.serve import guard as guard_module
from enteron.serve import server as server_module
from enteron.serve.access import COOKIE, token_verifier
from tests.serve.making import HEADERS, ORIGIN, client, server, write_root

TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_root(tmp_path_factory.mktemp("root"))


@pytest.fixture
def web(root):
    with client(root) as made:
        yield made


def comment(text: str) -> dict:
    return {"action": {"kind": "comment", "text": text}, "expected": None}


def assert_tells_nothing(answer, root) -> None:
    """No path of this machine and no traceback, in whatever the server said."""
    for text in (answer.text, str(dict(answer.headers))):
        assert "Traceback" not in text
        assert str(root) not in text
        assert "site-packages" not in text
        assert "/src/enteron" not in text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]


# ---- Host and Origin


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1",
        "127.0.0.1:9",
        "localhost.evil.example:8000",
    ],
)
def test_another_host_is_refused(web, root, host):
    for path in ("/", "/api/studies", "/assets/reader.js"):
        answer = web.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert_tells_nothing(answer, root)


def test_own_names_are_answered(web):
    for host in ("127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000"):
        assert web.get("/api/studies", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:8000", "http://127.0.0.1:9", "http://a@127.0.0.1:8000"],
)  # fmt: skip
def test_another_origin_is_refused(web, root, origin):
    path = "/api/studies/s1/actions"
    answer = web.post(path, json=comment("x"), headers={**HEADERS, "origin": origin})
    assert answer.status_code == 403
    assert_tells_nothing(answer, root)
    assert web.get("/api/studies", headers={"origin": origin}).status_code == 403


def test_what_another_site_can_send_changes_nothing(web, root):
    """CSRF: forms send no JSON and no header of ours, and browsers say who asks."""
    path = "/api/studies/s1/actions"
    body = json.dumps(comment("x"))
    attempts = [
        {"content-type": "application/json"},  # no origin, no header
        {"content-type": "text/plain", "origin": ORIGIN, "x-enteron": "1"},
        {"content-type": "application/x-www-form-urlencoded", "origin": ORIGIN, "x-enteron": "1"},
        {"content-type": "application/json", "origin": ORIGIN},  # no header of ours
        {**HEADERS, "sec-fetch-site": "cross-site"},
        {**HEADERS, "sec-fetch-site": "same-site"},
        {"content-type": "application/json", "x-enteron": "1"},  # no origin
    ]
    for headers in attempts:
        answer = web.post(path, content=body, headers=headers)
        assert answer.status_code in (403, 415), headers
        assert_tells_nothing(answer, root)
    assert web.get("/api/studies/s1/review").json()["state"]["number"] == 0
    assert web.post(path, content=body, headers=HEADERS).status_code == 200


def test_other_sites_cannot_embed_pictures_or_frames(web):
    embedded = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "no-cors",
        "sec-fetch-dest": "image",
    }
    assert web.get("/api/studies/s1/picture?frame=3", headers=embedded).status_code == 403
    framed = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "iframe",
    }
    assert web.get("/", headers=framed).status_code == 403
    typed = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    answer = web.get("/", headers=typed)
    assert answer.status_code == 200
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-frame-options"] == "DENY"


def test_other_methods_and_preflights_are_refused(web, root):
    for method in ("OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"):
        answer = web.request(method, "/api/studies/s1/actions", headers=HEADERS)
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers


# ---- paths


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../app.py",
        "/assets/..%2fapp.py",
        "/assets/%2e%2e/%2e%2e/app.py",
        "/assets/..%5c..%5capp.py",
        "/assets//etc/passwd",
        "/assets/%00",
        "/api/studies/..%2f..%2freading",
        "/api/studies/%2e%2e",
        "/api/studies/..%252f..%252fetc",
        "/api/studies/reading",
        "/api/studies/s1%00",
        "/api/studies/s1/..%2f..%2f",
        "/read/../../etc/passwd",
        "/api/studies/s1/export/..%2f..%2fpasswd",
    ],
)
def test_traversal_finds_nothing(web, root, path):
    answer = web.get(path)
    assert answer.status_code in (404, 422) or answer.headers["content-type"].startswith(
        "text/html"
    )
    assert "root:" not in answer.text
    assert "import " not in answer.text.partition("<script")[0]
    assert_tells_nothing(answer, root)


def test_links_out_of_the_root_are_not_followed(tmp_path):
    outside = write_root(tmp_path / "outside", "outside")
    root = tmp_path / "root"
    write_root(root, "s1")
    (root / "link").symlink_to(outside / "reading")
    with client(root) as web:
        listed = web.get("/api/studies").json()
        assert [row["study"] for row in listed["studies"]] == ["s1"]
        assert web.get("/api/studies/outside").status_code == 404
    # A file of a reading that is a link makes the reading a problem, named without a path.
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (root / "reading" / "suspicious.json").unlink()
    (root / "reading" / "suspicious.json").symlink_to(secret)
    with client(root) as web:
        listed = web.get("/api/studies").json()
        assert listed["studies"] == []
        assert "symbolic link" in listed["problems"][0]["sentence"]
        assert str(tmp_path) not in json.dumps(listed)


def test_frames_that_are_links_are_not_shown(tmp_path):
    root = write_root(tmp_path)
    frame = root / "studies" / "s1" / "frame_000007.png"
    other = tmp_path / "elsewhere.png"
    frame.rename(other)
    frame.symlink_to(other)
    with client(root) as web:
        until = time.monotonic() + 30
        while web.get("/api/studies/s1/source").json()["kind"] != "study":
            assert time.monotonic() < until
            time.sleep(0.05)
        assert web.get("/api/studies/s1/picture?frame=6").status_code == 200
        assert web.get("/api/studies/s1/picture?frame=7").status_code == 404


# ---- text that could be script


def test_scripts_in_ids_comments_and_labels(web, root):
    script = "<script>alert(1)</script>"
    answer = web.get("/api/studies/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert answer.status_code == 404
    assert script not in answer.text
    page = web.get("/read/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert script not in page.text  # pages hold nothing of the address
    path = "/api/studies/s1/actions"
    version = web.get("/api/studies/s1/review").json()["state"]["version"]
    assert web.post(path, json=comment(script), headers=HEADERS).status_code == 200
    state = web.get("/api/studies/s1/review")
    assert state.headers["content-type"] == "application/json"
    assert state.headers["x-content-type-options"] == "nosniff"
    added = {"kind": "add", "label": script, "start": 3, "stop": 4}
    refused = web.post(path, json={"action": added, "expected": version}, headers=HEADERS)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/json"
    assert_tells_nothing(refused, root)


# ---- sizes and time


def test_oversized_bodies_and_addresses(web, root):
    path = "/api/studies/s1/actions"
    large = json.dumps(comment("x" * (guard_module.LARGEST_BODY + 1)))
    answer = web.post(path, content=large, headers=HEADERS)
    assert answer.status_code == 413
    assert_tells_nothing(answer, root)

    def pieces():
        for _ in range(40):
            yield b" " * 10_000

    assert web.post(path, content=pieces(), headers=HEADERS).status_code == 413  # no length stated
    assert web.get("/api/studies?" + "x" * 4000).status_code == 414
    long = comment("x" * 30_000)
    assert web.post(path, json=long, headers=HEADERS).status_code == 422
    assert web.get("/api/studies/s1/frames?start=0&count=100000").status_code == 422
    assert web.get("/api/studies/s1/frames?start=99999999&count=4").content == b"\0\0\0\0"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"action": 3}',
        b"\xff\xfe",
        b'{"action":{"kind":"open"}}',
        b'{"action":{"kind":"confirm","event":"m99"},"expected":0}',
        b"[" * 5000,
    ],
)
def test_broken_bodies_are_refused_in_words(web, root, body):
    answer = web.post("/api/studies/s1/actions", content=body, headers=HEADERS)
    assert answer.status_code in (400, 422)
    assert answer.json()["problem"]
    assert_tells_nothing(answer, root)


def test_failures_of_the_server_tell_nothing(web, root, monkeypatch, capsys):
    from enteron.serve import api

    def broken(*_arguments):
        raise RuntimeError(f"secret of {root}")

    monkeypatch.setattr(api, "worklist", broken)
    answer = web.get("/api/studies")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert_tells_nothing(answer, root)
    said = capsys.readouterr().err
    assert "RuntimeError" in said
    assert "secret" not in said
    assert str(root) not in said


def test_slow_clients_are_sent_away_and_others_served(root, monkeypatch):
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.6)
    monkeypatch.setattr(guard_module, "BODY_SECONDS", 0.6)
    with server(root) as address:
        port = int(address.rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(30)]
        for number, connection in enumerate(slow):
            head = f"POST /api/studies/s1/actions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            if number % 2:  # the head never ends
                connection.sendall(head.encode())
                continue
            head += f"Origin: {address}\r\nX-Enteron: 1\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())  # nor does the body
        with urllib.request.urlopen(f"{address}/api/studies", timeout=10) as answer:
            assert answer.status == 200
        for number, connection in enumerate(slow):
            connection.settimeout(10)
            received = connection.recv(1000)
            assert received == b"" if number % 2 else received.startswith(b"HTTP/1.1 408")
            connection.close()


SCRIPT = "/assets/reader.js"
ASKED = 1000  # times: more than the system's own buffers hold


def ask_often(address: str, connection: socket.socket) -> int:
    """Ask for the same file again and again on one connection; its size."""
    with urllib.request.urlopen(address + SCRIPT, timeout=10) as answer:
        size = len(answer.read())
    assert ASKED * size > 12e6
    port = int(address.rpartition(":")[2])
    connection.settimeout(10)
    connection.connect(("127.0.0.1", port))
    request = f"GET {SCRIPT} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    connection.sendall(ASKED * request.encode())
    return size


@pytest.mark.parametrize("drop", [0, 2048], ids=["nothing", "drops"])
def test_clients_that_never_take_their_answer_are_hung_up_on(root, monkeypatch, drop):
    """Twenty of them at once; others are served meanwhile, and what they decide is recorded."""
    monkeypatch.setattr(server_module, "TAKE_SECONDS", 0.5)
    ended = select.POLLHUP | select.POLLERR
    with server(root) as address, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.socket()) for _ in range(20)]
        poll = select.poll()
        for connection in idle:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            ask_often(address, connection)
            poll.register(connection, ended)
        hung_up: set[int] = set()
        answers, until = 0, time.monotonic() + 30  # sixty times the limit: the machine may be busy
        while len(hung_up) < len(idle) and time.monotonic() < until:
            body = json.dumps(comment(f"after {drop}: {answers}")).encode()
            headers = {**HEADERS, "origin": address}
            request = urllib.request.Request(f"{address}/api/studies/s1/actions", body, headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.status == 200
            answers += 1
            hung_up |= {number for number, _ in poll.poll(50)}
            for connection in idle:
                if drop and connection.fileno() not in hung_up:
                    with contextlib.suppress(ConnectionResetError):
                        connection.recv(drop)
        assert len(hung_up) == len(idle)  # nothing was taken before, so the server ended it
        with urllib.request.urlopen(f"{address}/api/studies/s1/review", timeout=10) as answer:
            texts = [remark["text"] for remark in json.load(answer)["state"]["comments"]]
        assert sum(text.startswith(f"after {drop}: ") for text in texts) == answers > 0


def test_clients_that_leave_are_forgotten(root, monkeypatch, caplog):
    monkeypatch.setattr(server_module, "KEEP_SECONDS", 1)
    with server(root) as address:
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(f"GET /login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 ")
            # Reset, as by a browser that is ended: the wait for its next request goes on.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(2)  # beyond the wait for the next request
        with urllib.request.urlopen(f"{address}/api/studies", timeout=10) as answer:
            assert answer.status == 200
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_clients_that_take_their_answer_slowly_get_all_of_it(root, monkeypatch):
    monkeypatch.setattr(server_module, "TAKE_SECONDS", 0.5)
    with server(root) as address, socket.socket() as connection:
        size = ask_often(address, connection)
        received, started, pauses = 0, time.monotonic(), 0
        while received < ASKED * size:
            received += len(data := connection.recv(1 << 16))
            assert data
            if received // (1 << 19) > pauses:  # half a megabyte, then a rest
                pauses += 1
                time.sleep(0.05)
        assert (
            time.monotonic() > started + 1
        )  # longer than the limit for a client that takes nothing


# ---- logging in


def log_in(web, secret: str, name: str = "anna"):
    return web.post("/api/login", json={"name": name, "secret": secret}, headers=HEADERS)


def test_nothing_is_shown_before_a_login(root):
    with client(root, verify=token_verifier(TOKEN), by_token=True) as web:
        for path in ("/api/studies", "/api/studies/s1", "/api/studies/s1/picture?frame=1",
                     "/api/studies/s1/review", "/api/studies/s1/export/json",
                     "/api/studies/s1/frames?start=0", "/api/studies/nobody"):  # fmt: skip
            answer = web.get(path)
            assert answer.status_code == 401, path
            assert_tells_nothing(answer, root)
        answer = web.get("/", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert (
            web.post("/api/studies/s1/actions", json=comment("x"), headers=HEADERS).status_code
            == 401
        )


def test_wrong_tokens_are_refused_and_soon_not_even_tried(root):
    with client(root, verify=token_verifier(TOKEN), by_token=True) as web:
        for wrong in ("", "x", TOKEN + "x", TOKEN[:-1], TOKEN.upper()):
            assert log_in(web, wrong).status_code in (401, 422)
        assert [log_in(web, "wrong").status_code for _ in range(5)][-1] == 429
        assert log_in(web, TOKEN).status_code == 429  # nobody guesses on, not even rightly
        assert COOKIE not in web.cookies


def test_sessions_end_and_cannot_be_replayed(root):
    with client(root, verify=token_verifier(TOKEN), by_token=True) as web:
        answer = log_in(web, TOKEN)
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        held = web.cookies[COOKIE]
        assert TOKEN not in held
        assert web.get("/api/studies").json()["user"] == {"name": "anna", "role": "reader"}
        assert web.post("/api/logout", json={}, headers=HEADERS).status_code == 200
        web.cookies.set(COOKIE, held)  # whoever copied the cookie
        assert web.get("/api/studies").status_code == 401
        web.cookies.set(COOKIE, "made-up")
        assert web.get("/api/studies").status_code == 401


def test_the_opening_link_works_once(root):
    from enteron.serve.access import Access, User

    access = Access(User("anna", "reader"), token_verifier(TOKEN), by_token=True)
    code = access.new_code()
    session = access.redeem(code)
    assert access.user(session) == User("anna", "reader")
    assert access.redeem(code) is None
    assert access.redeem("made-up") is None
    with client(root, verify=token_verifier(TOKEN), by_token=True) as web:
        assert web.get("/open?code=made-up", follow_redirects=False).status_code == 401


def test_viewers_look_and_change_nothing(root):
    with client(root, verify=lambda _name, _secret: "viewer") as web:
        assert log_in(web, "anything").status_code == 200
        assert web.get("/api/studies/s1/review").status_code == 200
        for path, body in (
            ("actions", comment("x")),
            ("actions", {"action": {"kind": "sign"}, "expected": 0}),
            ("undo", {"expected": 0}),
        ):
            answer = web.post(f"/api/studies/s1/{path}", json=body, headers=HEADERS)
            assert answer.status_code == 403
