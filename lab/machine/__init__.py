"""The machine a lab runs on: what it can do and carries, and the sandbox that a lab lives in."""
