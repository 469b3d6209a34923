"""`mx.log`: loggers whose lines start with level, time, process and place."""

from __future__ import annotations

import logging
import warnings
from logging import CRITICAL, DEBUG, ERROR, INFO, NOTSET, WARNING

__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING", "getLogger", "get_logger"]

_RED, _GREEN, _BLUE, _PLAIN = (f"\x1b[{code}m" for code in (31, 32, 34, 0))


class _Formatter(logging.Formatter):
    """`W0505 00:29:47 3525 file.py:function:12] message`, the head in the level's color."""

    def __init__(self) -> None:
        super().__init__(datefmt="%m%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        color = _RED if record.levelno >= WARNING else _GREEN if record.levelno >= INFO else _BLUE
        level = record.levelname[0] if record.levelno in (CRITICAL, ERROR, WARNING, INFO, DEBUG) else "U"
        place = "%(asctime)s %(process)d %(pathname)s:%(funcName)s:%(lineno)d]"
        self._style._fmt = f"{color}{level}{place}{_PLAIN} %(message)s"
        return super().format(record)


def get_logger(
    name: str | None = None, filename: str | None = None, filemode: str | None = None, level: int = WARNING
) -> logging.Logger:
    """The logger called `name`, which writes to a file (plain) or to standard error."""
    logger = logging.getLogger(name)
    if name is not None and not getattr(logger, "_init_done", False):
        logger._init_done = True  # type: ignore[attr-defined]
        handler: logging.Handler
        if filename:
            handler = logging.FileHandler(filename, filemode or "a")
        else:
            handler = logging.StreamHandler()
            handler.setFormatter(_Formatter())
        logger.addHandler(handler)
        logger.setLevel(level)
    return logger


def getLogger(
    name: str | None = None, filename: str | None = None, filemode: str | None = None, level: int = WARNING
) -> logging.Logger:
    """The old name of `get_logger`."""
    warnings.warn("getLogger is deprecated, Use get_logger instead.", DeprecationWarning, stacklevel=2)
    return get_logger(name, filename, filemode, level)
