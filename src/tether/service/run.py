"""Start the service: uvicorn, one process or several, with structured logs."""

import json
import logging
import math
import os
import sys
import time
from pathlib import Path

from tether.errors import InputError
from tether.service.config import ServiceConfig, read_config

CONFIG = "TETHER_SERVICE_CONFIG"
"""Environment variable by which worker processes find their configuration."""


class JsonLines(logging.Formatter):
    """One JSON object per line. The access log comes as JSON already."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as one line."""
        if record.name == "tether.service.access":
            return record.getMessage()
        line = {"time": round(time.time(), 3), "level": record.levelname, "logger": record.name}
        line["message"] = record.getMessage()
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(*, access: bool = True) -> None:
    """Structured logs on standard error; nothing secret is ever handed to a logger."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("tether.service.access").setLevel(logging.INFO if access else logging.WARNING)


def serve(config_path: Path, *, access_log: bool = True) -> None:
    """Serve until told to stop. SIGTERM and Ctrl-C finish what has begun and save a snapshot."""
    import uvicorn

    config = read_config(config_path)
    check_start(config)
    log_to_stderr(access=access_log)
    if config.tokens is None:
        logging.getLogger("tether.service").warning(
            "no tokens are set: every program on this machine may do everything"
        )
    os.environ[CONFIG] = str(Path(config_path).resolve())
    uvicorn.run(
        "tether.service.run:app_of_worker",
        factory=True,
        host=config.host,
        port=config.port,
        workers=config.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(config.limits.seconds) + 1,  # long polls end with it
    )


def check_start(config: ServiceConfig) -> None:
    """Everything that would fail in a worker, said before one is started: the problem, the tokens, the log."""
    from tether.service.app import make_advisor
    from tether.service.tokens import read_tokens

    if config.tokens is not None:
        read_tokens(config.folder / config.tokens)
    make_advisor(config).close()


def app_of_worker() -> object:
    """The application of one worker process, whose configuration is named by the environment."""
    path = os.environ.get(CONFIG)
    if not path:
        raise InputError(f"{CONFIG} is not set: start the service with `tether serve CONFIG.toml`.")
    if not logging.getLogger().handlers:
        log_to_stderr()
    from tether.service.app import create_app

    return create_app(read_config(Path(path)))
