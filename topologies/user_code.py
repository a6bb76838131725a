"""Code that a user wrote: loaded from a file and called, with whatever it does wrong told in one line.

./mine.py:NAME[:rest]  names something in a user's own file
"""

import importlib.util
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

from topologies.errors import Refused, unknown

# A policy for the largest fabrics needs a few seconds; what needs longer has most likely lost its way.
TIME_LIMIT_S = 20.0
_T = TypeVar("_T")


def call(what: str, code: Callable[[], _T], time_limit_s: float = TIME_LIMIT_S) -> _T:
    """What `code` returns. Raises Refused, naming `what`, for anything that it raises or when it does not come back;
    its own refusals, and Ctrl-C, pass."""
    try:
        with _time_limit(time_limit_s):
            return code()
    except Refused:
        raise
    except (Exception, SystemExit) as error:
        raise Refused(f"{what} failed: {type(error).__name__}: {error}") from error


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Only in the main thread, where Python runs signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        # Of a limit around this one; 0 where there is none.
        signal.setitimer(signal.ITIMER_REAL, left_s)


def is_file(spec: str) -> bool:
    """Whether a text names something in a user's file, and not in a registry."""
    return ".py:" in spec


def load_module(path: str, what: str) -> ModuleType:
    """'./mine.py' -> the module. `what` is named in refusals."""
    file = Path(path).expanduser()
    spec = importlib.util.spec_from_file_location(f"user_{file.stem}", file) if file.suffix == ".py" else None
    if not spec or not spec.loader or not file.is_file():
        raise Refused(f"{what} {path!r}: no such Python file: write it as ./FILE.py")
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    call(f"{what} {path!r}: importing it", lambda: loader.exec_module(module))
    return module


def load_attribute(spec: str, what: str) -> tuple[Any, str]:
    """'./mine.py:NAME[:rest]' -> (the object, rest)."""
    path, _, rest = spec.partition(".py:")
    name, _, rest = rest.partition(":")
    if not name or not Path(f"{path}.py").expanduser().is_file():
        raise Refused(f"{what} {spec!r}: write it as ./FILE.py:NAME, where the file exists and defines NAME")
    defined = vars(load_module(f"{path}.py", what))
    if name not in defined:
        raise Refused(f"{what} {spec!r}: {unknown('name', name, (n for n in defined if not n.startswith('_')))}")
    return defined[name], rest


def function(spec: str, what: str, registry: Mapping[str, _T], is_a: str, refusal: type[Refused] = Refused) -> _T:
    """The function that a text form names, of the registry or of a user's file; refuses with the known names. is_a: how
    messages describe one."""
    if not is_file(spec):
        if spec not in registry:
            raise refusal(unknown(what, spec, registry))
        return registry[spec]
    loaded, rest = load_attribute(spec, what)
    if rest or not callable(loaded):
        raise refusal(f"{what} {spec!r}: must be a function {is_a}")
    found: _T = loaded
    return found
