"""Addresses on loopback for one test process: others test at the same time, with the same ports."""

import os

# 127.1 to 127.250.
NETWORK = f"127.{1 + os.getpid() % 250}"
