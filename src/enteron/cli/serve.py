"""`enteron serve`: the reader in a browser."""

import os
from pathlib import Path
from typing import Annotated

import typer


def serve(
    root: Annotated[
        Path,
        typer.Argument(help="A folder of readings: what `enteron read` wrote.", readable=False),
    ],
    studies: Annotated[
        Path | None,
        typer.Option(
            help="Where the studies behind the readings lie (default: ROOT itself).",
            readable=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine only with a login.")
    ] = "127.0.0.1",
    token: Annotated[
        bool,
        typer.Option(
            "--token",
            help="Ask everyone for a token: that of the variable ENTERON_TOKEN, or a new one.",
        ),
    ] = False,
    users: Annotated[
        Path | None,
        typer.Option(
            help="Ask everyone for name and password: a file of `enteron review user add`.",
            readable=False,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Who you are, in the record (default: your login name).")
    ] = None,
    device_text: Annotated[
        bool,
        typer.Option("--device-text", help="Show what the recorder wrote around the pictures."),
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Review, sign and export readings in a browser, on this machine. For research only.

    Example: [bold]enteron serve readings --studies recordings[/bold]
    """
    import getpass
    import secrets

    from enteron.cli.console import plain
    from enteron.errors import EnteronError

    try:
        from enteron.serve.access import Access, User, Verify, token_verifier
        from enteron.serve.app import create_app
        from enteron.serve.guard import Guard
        from enteron.serve.server import allowed_hosts, is_loopback, listen, make_server
        from enteron.serve.service import Service
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette", "h11", "argon2"):
            raise
        raise EnteronError(
            "the reader needs packages that are not installed",
            "install them with: pip install 'enteron[serve]'",
        ) from error

    if token and users is not None:
        raise EnteronError("--token and --users exclude each other", "give one of them")
    if not is_loopback(host) and not token and users is None:
        raise EnteronError(
            f"others could reach {host} without a login",
            "add --token or --users FILE, or leave out --host",
        )
    person = User(name or os.environ.get("USER") or getpass.getuser(), "reader")
    verify: Verify | None = None
    secret = ""
    if token:
        secret = os.environ.get("ENTERON_TOKEN") or secrets.token_urlsafe(18)
        if len(secret) < 12:
            raise EnteronError(
                "the token in ENTERON_TOKEN is short enough to be guessed",
                "give at least 12 characters, or none to get one",
            )
        verify = token_verifier(secret)
    elif users is not None:
        from enteron.review.users import UserFile

        if not users.is_file():
            raise EnteronError(
                f"there is no file '{users.name}'", "make it with `enteron review user add`"
            )
        UserFile.load(users)  # refused now, not at the first login
        verify = _file_verifier(users)
    access = Access(person, verify, by_token=token)
    service = Service.open(root, access, studies=studies, device_text=device_text)
    listening = listen(host, port)
    bound = int(listening.getsockname()[1])
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{bound}/"
    app = Guard(create_app(service), allowed_hosts(host, bound))
    count = len(service.catalogue.listing().entries)
    typer.echo(
        f"{count} reading{'' if count == 1 else 's'} in '{plain(service.catalogue.root.name)}'. "
        f"Open {address} in a browser; Ctrl+C ends the server."
    )
    if token:
        typer.echo(f"Token: {secret}")
    if not is_loopback(host):
        typer.echo(
            "Others on the network can reach this address after a login. What they send and see is "
            "not encrypted: use it in a network that you trust, or behind a proxy with TLS.",
            err=True,
        )
    if open_browser:
        import webbrowser

        link = f"{address}open?code={access.new_code()}" if access.by_token else address
        webbrowser.open(link)
    try:
        make_server(app).run(sockets=[listening])
    finally:
        service.close()


def _file_verifier(path: Path):  # noqa: ANN202
    from enteron.review.users import UserFile
    from enteron.serve.access import Role

    def verify(name: str, secret: str) -> Role | None:
        role = UserFile.load(path).authenticate(name, secret)  # changes count at once
        return None if role is None else role.value

    return verify
