"""Output of nccl-tests in the forms that people paste, written by this project in its format (2.19.6, and before 2.10)."""

from collections.abc import Callable, Mapping

HEADER = """\
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
"""  # noqa: W291
FOOTER = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 41.2575 
#
# Collective test concluded: all_reduce_perf
"""  # noqa: W291


def preamble(program: str = "all_reduce_perf", ranks: int = 16, per_node: int = 8) -> str:
    devices = "".join(
        f"#  Rank {r:2d} Group  0 Pid {1000 + r:6d} on     node{r // per_node:02d} device {r % per_node:2d} [0000:1b:00] H100\n"
        for r in range(ranks)
    )
    return (
        "# nccl-tests version 2.19.6 nccl-headers=22605 nccl-library=22605\n"
        f"# Collective test starting: ./build/{program}\n"
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 "
        f"validation: 1 graph: 0 unalign: 0\n#\n# Using devices\n{devices}"
    )


def row(size: int, time_us: float, factor: float = 1.875, wrong: str = "0") -> str:
    """writeBenchmarkLinePreamble and two halves; factor: busbw / algbw, that of an all-reduce over 16 ranks."""
    algbw = size / time_us / 1e3
    half = f"  {time_us:7.2f}  {algbw:6.2f}  {algbw * factor:6.2f}  {wrong:>6}"
    return f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {'-1':>6}{half}{half}\n"


def table(times_us: Mapping[int, float]) -> str:
    return preamble() + HEADER + "".join(row(size, us) for size, us in times_us.items()) + FOOTER


def sweep(seconds: Callable[[int], float]) -> str:
    """1 MiB to 1 GiB by factors of 4."""
    return table({size: seconds(size) * 1e6 for size in (4**k for k in range(10, 16))})
