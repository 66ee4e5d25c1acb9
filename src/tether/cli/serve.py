"""`tether serve` and `tether token`: the live service and the tokens of its callers."""

import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import output
from tether.cli.output import Debug
from tether.errors import InputError, MissingExtra

STOPPED = "stopped. What was acknowledged is in the log; the same command starts the service again."
"""What Ctrl-C says before the server takes it over: other commands speak of studies then."""
TokensFile = Annotated[Path, typer.Argument(help="The file of tokens, as named in the service's configuration.")]

token = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make, list and remove the service's tokens.")


def serve(
    config: Annotated[Path, typer.Argument(help="The service's configuration, a TOML file.")],
    check: Annotated[
        bool, typer.Option("--check", help="Check the configuration, the problem and the log only.")
    ] = False,
    access_log: Annotated[bool, typer.Option(help="Log a line per request.")] = True,
    debug: Debug = False,
) -> None:
    """Serve decisions over HTTP, with a durable log and a dashboard."""
    with output.plain_failures(debug, stopped=STOPPED):
        try:
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as error:
            raise MissingExtra(
                f'`tether serve` needs more packages ({error.name}): pip install "tether-rl[service]".'
            ) from error
        from tether.service.config import read_config
        from tether.service.run import check_start, claim_port
        from tether.service.run import serve as run

        chosen = read_config(config)
        if check:
            check_start(chosen)
            typer.echo(f"{config}: the problem, the tokens and the log can be used; it would listen on {chosen.host}.")
            return
        with claim_port(chosen):
            check_start(chosen, saves=True)
            run(
                config,
                access_log=access_log,
                listening=lambda address: output.notice(f"the dashboard is at {address} ; Ctrl-C stops"),
            )


@token.command("new")
def new(
    file: TokensFile,
    name: Annotated[str, typer.Option(help="Whose token it is; the log names it.")],
    role: Annotated[list[str], typer.Option(help="decide, record, read or admin; may be given several times.")],
    days: Annotated[float | None, typer.Option(help="Days until it expires; never unless given.")] = None,
    debug: Debug = False,
) -> None:
    """Make a token and print it, once: the file keeps its hash only."""
    with output.plain_failures(debug):
        from tether.service.auth import add_token, expiry

        expires = None if days is None else expiry(days, time.time())
        typer.echo(add_token(file, name, tuple(dict.fromkeys(role)), expires))


@token.command("list")
def show(file: TokensFile, debug: Debug = False) -> None:
    """Names, roles and expiry of the tokens."""
    with output.plain_failures(debug):
        from tether.service.auth import kept_tokens

        for each in kept_tokens(file):
            until = "" if each.expires is None else f"until {datetime.fromtimestamp(each.expires):%Y-%m-%d %H:%M}"
            typer.echo(f"{each.name:20} {', '.join(each.roles):28} {until}".rstrip())


@token.command("remove")
def remove(file: TokensFile, name: Annotated[str, typer.Argument(help="Its name.")], debug: Debug = False) -> None:
    """Forget a token. Restart the service, which reads the file when it starts."""
    with output.plain_failures(debug):
        from tether.service.auth import remove_token

        if not name:
            raise InputError("name the token to remove; `tether token list` shows them.")
        remove_token(file, name)
