"""What the lab refuses."""

from topologies.errors import Refused


class LabError(Refused):
    """An experiment that cannot be run as asked, or a machine that cannot run it: one line, exit status 2."""
