"""How many files this process may have open, raised before a transport needs them."""

import resource

from traffic.errors import TrafficError

# Beside the transport's: libraries, logs, netlink, pipes.
_SPARE_FILES = 256


def allow_open_files(needed: int) -> None:
    """The usual soft limit of 1024 ends at about 400 TCP connections. Raises TrafficError where the hard one is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed + _SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise TrafficError(
            f"{needed} sockets need {wanted} open files, the hard limit is {hard}: raise it (ulimit -Hn)"
        )
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
