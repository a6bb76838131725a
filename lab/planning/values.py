"""One value of an experiment: (where it stands, what was written) -> what is meant. Pure. Refusals are one line."""

from collections.abc import Callable

from lab.errors import LabError
from lab.planning.scale import Scale, parse_scale
from topologies import Refused
from topologies.units import parse_duration_us, parse_size_bytes
from traffic.formats import split_spec
from traffic.rocev2.opcodes import PATH_MTUS

# IPv4's minimum (RFC 791) and what switches of AI fabrics are set to.
MIN_MTU, MAX_MTU = 576, 9216


def whole(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise LabError(f"{where} = {value!r} must be a whole number")
    try:
        return int(value)
    except ValueError:
        raise LabError(f"{where} = {value!r} must be a whole number") from None


def between(least: int, most: int) -> Callable[[str, object], int]:
    def parse(where: str, value: object) -> int:
        number = whole(where, value)
        if number < least:
            raise LabError(f"{where} = {number} is too small: use {least} or more")
        if number > most:
            raise LabError(f"{where} = {number} is too large: use {most} or less")
        return number

    return parse


def parse_mtu(where: str, value: object) -> int:
    mtu = whole(where, value)
    if not MIN_MTU <= mtu <= MAX_MTU:
        raise LabError(f"{where} = {mtu} is not possible: use {MIN_MTU} to {MAX_MTU}")
    return mtu


def text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise LabError(f'{where} = {value!r} must be text: write it like "name"')
    return value


def names(where: str, value: object) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text(where, value).split(","))
    if not all(found):
        raise LabError(f"{where} = {value!r} must be names with commas between them: write it like leaf1,spine1")
    return found


def choice(names: tuple[str, ...]) -> Callable[[str, object], str]:
    def parse(where: str, value: object) -> str:
        if value not in names:
            raise LabError(f"{where} = {value!r}: choose from {', '.join(names)}")
        return str(value)

    return parse


def path_mtu(where: str, value: object) -> int:
    mtu = whole(where, value)
    if mtu not in PATH_MTUS:
        raise LabError(f"{where} = {mtu}: choose from {', '.join(map(str, PATH_MTUS))}")
    return mtu


def flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise LabError(f"{where} = {value!r} must be true or false")
    return value


def quantity(parse: Callable[[str], float]) -> Callable[[str, object], float]:
    """A quantity with a unit, read by topologies.units, whose refusals name the value and an example."""

    def parse_at(where: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise LabError(f'{where} = {value!r} must be a number with a unit, as text: "..."')
        try:
            return parse(str(value))
        except Refused as refusal:
            raise LabError(f"{where}: {refusal}") from None

    return parse_at


def size(where: str, value: object) -> int:
    n_bytes = int(quantity(parse_size_bytes)(where, value))
    if n_bytes == 0:
        raise LabError(f"{where} = {value!r}: 0 bytes send nothing; use 4 or more")
    return n_bytes


def seconds(where: str, value: object) -> float:
    found = quantity(parse_duration_us)(where, value) / 1e6
    if found < 1:
        raise LabError(f"{where} = {value!r} is too short for any run: use 1s or more")
    return found


def percent(where: str, value: object) -> float:
    try:
        found = float(str(value).strip().removesuffix("%"))
    except ValueError:
        found = -1.0
    if not 0 <= found <= 100:
        raise LabError(f"{where} = {value!r} is not a share of packets: write it like 0.1%")
    return found


def share(where: str, value: object) -> float:
    try:
        found = float(str(value))
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise LabError(f"{where} = {value!r} is not a share: use one above 0 and up to 1, like 0.5")
    return found


def scale_of(where: str, value: object) -> Scale | None:
    try:
        return parse_scale(str(value))
    except Refused as refusal:
        raise LabError(f"{where}: {refusal}") from None


def controller_address(text: str) -> tuple[str, int]:
    """'tcp:127.0.0.1:6653' -> ('127.0.0.1', 6653); IPv6 hosts stand in brackets, as in Open vSwitch."""
    scheme, _, rest = text.partition(":")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        raise LabError(f"controller {text!r} is not tcp:HOST:PORT: write it like tcp:127.0.0.1:6653")
    if not 0 < int(port) < 2**16:
        raise LabError(f"controller {text!r}: port {port} does not exist, use 1 to 65535")
    return host.strip("[]"), int(port)


def schedule_file(where: str, value: object) -> str:
    written = text(where, value)
    split_spec(written)
    return written


def controller(where: str, value: object) -> str:
    written = text(where, value)
    controller_address(written)
    return written
