"""A matrix of bytes: its rows are what ranks send, its columns what they receive."""

import pytest

from tests.unit.broken_files import refusals
from tests.unit.traffic_fakes import replayed
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.contracts import buffer_ratio
from traffic.formats.matrix import read_matrix
from traffic.formats.source import Source

SKEWED = b"""# experts' load
 4   400  40
0, 0, 1
800 0 8   # a row may have a comment
"""


def read(data: bytes) -> Schedule:
    return read_matrix(Source("moe.matrix", data))


def test_rows_are_sent_and_columns_received() -> None:
    s = read(SKEWED)
    verify(s)
    assert (s.collective, s.algorithm, s.n_ranks) == ("all_to_all_v", "moe.matrix", 3)
    natural = s.natural_count or 0
    # Elements of 4 bytes, 1 byte being one; the diagonal stays at home.
    assert s.sent_per_rank(natural).tolist() == [100 + 10, 1, 200]
    assert s.received_per_rank(natural).tolist() == [200, 100, 10 + 1]
    # Rank 2 holds most for others, 200 and 2 of its own; rank 0 has the fullest buffer, 111 and 201.
    assert natural == 1 + 100 + 10 + 1 + 200
    assert natural / buffer_ratio(s) == 202
    assert replayed(s, natural)[1] == 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "moe.matrix: is empty"),
        (b"# nothing\n", "moe.matrix: 0 rows of 0 numbers: a matrix of n ranks, two or more, has n of n"),
        (b"5", "moe.matrix: 1 rows of 1 numbers: a matrix of n ranks, two or more, has n of n"),
        (b"0 1\n", "moe.matrix: 1 rows of 2 numbers: a matrix of n ranks, two or more, has n of n"),
        (b"0 1\n\n1 0 2", "moe.matrix:3: row 1 has 3 numbers: 2 ranks need 2 rows of 2"),
        (b"0 1\n1 0\n1 1", "moe.matrix:3: row 2 has 2 numbers: 2 ranks need 2 rows of 2"),
        (b"0 x\n1 0", "moe.matrix:1: bytes from 0 to 1 'x' must be a whole number from 0 to 1099511627776"),
        (b"0 -1\n1 0", "moe.matrix:1: bytes from 0 to 1 '-1' must be a whole number from 0 to 1099511627776"),
        (b"1 0\n0 1", "moe.matrix: nobody sends anything to others: write a number above 0 off the diagonal"),
        (b"0 " * 2000, "moe.matrix:1: 2000 columns are too many: use 1024 ranks or fewer"),
    ],
)
def test_a_bad_matrix_is_refused_with_its_line(data: bytes, says: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        read(data)
    assert str(refusal.value) == says


def test_broken_files_are_refused_in_one_line() -> None:
    texts = refusals(read, SKEWED)
    assert len(texts) > 100
    assert all(text.startswith("moe.matrix:") and "\n" not in text for text in texts)
