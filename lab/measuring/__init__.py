"""A run inside its sandbox: rows measured, the machine watched, the verdict."""
