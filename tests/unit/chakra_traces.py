"""Chakra traces written by hand, byte by byte, as protobuf has them."""

from collections.abc import Sequence

COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
Attribute = tuple[str, int | str | bool]


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name: str, value: int | str | bool) -> bytes:
    """int64_val is field 9, bool_val 27, string_val 29."""
    content = (
        field(29, value.encode()) if isinstance(value, str) else field(27 if isinstance(value, bool) else 9, int(value))
    )
    return field(10, field(1, name.encode()) + content)


def node(
    id_: int, type_: int, *attributes: Attribute, deps: Sequence[int] = (), data: Sequence[int] = (), us: int = 0
) -> bytes:
    """deps: ctrl_deps, packed; data: data_deps, one by one."""
    parts = [field(1, id_), field(2, b"name"), field(3, type_)]
    if deps:
        parts.append(field(4, b"".join(map(varint, deps))))
    parts += [field(5, d) for d in data]
    parts += [field(7, us)] if us else []
    parts += [attribute(*a) for a in attributes]
    return b"".join(parts)


def trace(*nodes: bytes) -> bytes:
    return b"".join(varint(len(m)) + m for m in (field(1, b"0.0.4"), *nodes))


def collective(
    id_: int, comm_type: int, n_bytes: int, *more: Attribute, deps: Sequence[int] = (), data: Sequence[int] = ()
) -> bytes:
    said: list[Attribute] = [("is_cpu_op", False), ("comm_type", comm_type), ("comm_size", n_bytes), *more]
    return node(id_, COLLECTIVE, *said, deps=deps, data=data)
