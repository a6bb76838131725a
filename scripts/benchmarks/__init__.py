"""The project's performance figures, each beside its peer: `scripts/bench.py` runs them."""
