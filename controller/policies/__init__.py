"""One routing policy per file, a pure function `(fabric, down) -> {switch: SwitchRules}`; POLICIES lists them."""
