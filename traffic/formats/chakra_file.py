"""A rank's Chakra execution trace as data (mlcommons/chakra, schema/protobuf/et_def.proto). What its nodes mean: chakra.py."""

import zlib
from dataclasses import dataclass, field

from traffic.errors import TrafficError
from traffic.formats.protobuf import WireError, fields, messages, numbers
from traffic.formats.source import MAX_FILE_BYTES, MAX_OPERATIONS, Source

MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLLECTIVE = 2, 3, 4, 5, 6, 7
_METADATA = 1
_GZIP = b"\x1f\x8b"
# Field numbers of Node and of AttributeProto; the values of the attributes that are read are whole numbers, bool or text.
_ID, _TYPE, _CTRL_DEPS, _DATA_DEPS, _DURATION, _ATTR = 1, 3, 4, 5, 7, 10
_NAME, _WHOLE, _TEXT = 1, (7, 9, 11, 13, 27), 29


@dataclass
class Node:
    """attributes: by name, those that are whole numbers, bool or text."""

    id: int = 0
    type: int = 0
    deps: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, int | str] = field(default_factory=dict)

    def whole(self, name: str) -> int | None:
        value = self.attributes.get(name)
        return value if isinstance(value, int) else None

    @property
    def is_cpu(self) -> bool:
        return bool(self.attributes.get("is_cpu_op", 0))


def read_nodes(source: Source) -> list[Node]:
    """In the order of their ids. Raises TrafficError naming the file, and the node where there is one."""
    source.require_size()
    try:
        # The first message is about the trace.
        _, *raw = messages(_unpacked(source))
        nodes = [_node(data) for data in raw[:MAX_OPERATIONS]]
    except (WireError, UnicodeDecodeError, ValueError, zlib.error) as error:
        if isinstance(error, TrafficError):
            raise
        raise TrafficError(f"{source.name}: is no Chakra trace: {error}") from None
    if len(raw) > MAX_OPERATIONS:
        raise TrafficError(f"{source.name}: there are more than {MAX_OPERATIONS} nodes: use a shorter trace")
    known = {node.id for node in nodes}
    if len(known) < len(nodes):
        raise TrafficError(f"{source.name}: {len(nodes)} nodes have {len(known)} ids: each has its own")
    for node in nodes:
        if not _METADATA <= node.type <= COLLECTIVE:
            raise TrafficError(
                f"{source.name}: node {node.id} has type {node.type}: {_METADATA} to {COLLECTIVE} are read"
            )
        if lost := [dep for dep in node.deps if dep not in known]:
            raise TrafficError(f"{source.name}: node {node.id} waits for node {lost[0]}, which is not there")
    return sorted(nodes, key=lambda node: node.id)


def _unpacked(source: Source) -> bytes:
    """Traces are often compressed, whatever they are called."""
    if not source.data.startswith(_GZIP):
        return source.data
    unpacker = zlib.decompressobj(wbits=31)
    data = unpacker.decompress(source.data, MAX_FILE_BYTES)
    if unpacker.unconsumed_tail:
        raise TrafficError(f"{source.name}: more than {MAX_FILE_BYTES} bytes when unpacked: use a shorter trace")
    if not unpacker.eof:
        raise WireError("the compressed data are cut off")
    return data


def _node(data: bytes) -> Node:
    node = Node()
    for number, value in fields(data):
        if number in (_CTRL_DEPS, _DATA_DEPS):
            node.deps += numbers(value)
        elif number == _ATTR and isinstance(value, bytes):
            name, content = _attribute(value)
            if content is not None:
                node.attributes[name] = content
        elif isinstance(value, int) and number == _ID:
            node.id = value
        elif isinstance(value, int) and number == _TYPE:
            node.type = value
        elif isinstance(value, int) and number == _DURATION:
            node.duration_us = value
    return node


def _attribute(data: bytes) -> tuple[str, int | str | None]:
    name = ""
    content: int | str | None = None
    for number, value in fields(data):
        if number == _NAME and isinstance(value, bytes):
            name = value.decode()
        elif number in _WHOLE and isinstance(value, int):
            content = value
        elif number == _TEXT and isinstance(value, bytes):
            content = value.decode()
    return name, content
