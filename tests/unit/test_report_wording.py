"""Numbers as the report writes them."""

import math

import pytest

from lab.reporting.wording import count, digits, duration, number, plain, ratio, share, times, unit_for


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (41.0, "41 s"),
        (0.041, "41 ms"),
        (0.0415740127875, "41.57 ms"),
        (12.3e-6, "12.3 µs"),
        (5e-9, "5 ns"),
        (0.0, "0 s"),
        (100.0, "100 s"),
        (12345.6, "12,346 s"),
        (math.nan, "-"),
    ],
)
def test_durations_have_four_digits_and_the_unit_that_suits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_column_has_one_unit() -> None:
    unit = unit_for([0.0415, 0.000123, math.nan])
    assert (unit.name, unit.of(0.0415), unit.of(0.000123), unit.of(math.nan)) == ("ms", "41.50", "0.1230", "-")


@pytest.mark.parametrize(
    ("value", "text"), [(49.1, "49.10"), (0.012344, "0.01234"), (12345.6, "12,346"), (0.0, "0"), (-2.5, "-2.500")]
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert number(value) == text == digits(value, 4)


def test_what_does_not_exist_is_a_dash() -> None:
    assert [f(math.nan) for f in (number, ratio, share, count)] == ["-"] * 4
    assert (count(None), plain(None), plain(""), plain([])) == ("-", "-", "-", "-")


def test_factors_in_words() -> None:
    assert (times(1.0004), times(1.0174)) == ("just", "1.017 times")
    assert (plain(True), plain(0.5), plain([1, 2])) == ("yes", "0.5", "1, 2")
