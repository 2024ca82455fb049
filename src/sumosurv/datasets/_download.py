"""Fetching one small public file, whole and within a time limit."""

from __future__ import annotations

import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

__all__ = ["download"]

_BLOCK = 1 << 16


def download(url: str, *, largest: int, seconds: float, stall: float) -> bytes:
    """What an address holds, but no more than ``largest`` + 1 bytes of it.

    Parameters
    ----------
    url : str
    largest : int
        Bytes; one more is returned where there are more, and no further ones are read.
    seconds : float
        For everything: looking up the name, redirections, headers and content.
    stall : float
        Seconds to wait for the next byte.

    Raises
    ------
    OSError
        Whatever went wrong on the way (a TimeoutError after ``seconds``), in words.
    """
    return _within(seconds, lambda: _read(url, largest, seconds, stall))


def _read(url: str, largest: int, seconds: float, stall: float) -> bytes:
    content = bytearray()
    end = time.monotonic() + seconds
    try:
        with urllib.request.urlopen(url, timeout=stall) as response:
            # read1 returns with what has come, so that a server that sends a few bytes now and then is noticed
            while len(content) <= largest and (block := response.read1(min(_BLOCK, largest + 1 - len(content)))):
                content += block
                if time.monotonic() > end:
                    raise _too_long(seconds)  # not what has come until now, which is no whole file
            announced = response.headers.get("Content-Length", "")
            expected = int(announced) if announced.isdecimal() else 0
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except (HTTPException, ValueError) as error:  # a reply that is not HTTP, an address that is none
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    if len(content) < min(expected, largest + 1):
        raise ConnectionError(f"the connection broke off after {len(content)} of {expected} bytes")
    return bytes(content)


def _within(seconds: float, function: Callable[[], bytes]) -> bytes:
    """The result of a function that may wait in places which know no time limit, such as the lookup of a name."""
    done: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put(function())
        except BaseException as error:
            done.put(error)

    threading.Thread(target=work, name="sumosurv download", daemon=True).start()
    try:
        result = done.get(timeout=seconds)
    except queue.Empty:
        raise _too_long(seconds) from None
    if isinstance(result, BaseException):
        raise result
    return result


def _too_long(seconds: float) -> TimeoutError:
    return TimeoutError(f"it took longer than {seconds:g} seconds")
