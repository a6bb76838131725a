"""One scheduler per file, a pure function `(demand, parameters) -> slices`; SCHEDULERS lists them."""
