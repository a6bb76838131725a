"""How a message is divided among the queue pairs of a connection: evenly, as NCCL does with NCCL_IB_SPLIT_DATA_ON_QPS=1."""

# ncclIbMultiSend in NCCL's src/transport/net_ib.cc: parts begin where its LL128 protocol's lines do.
ALIGN_BYTES = 128


def stripe_bytes(n_bytes: int, qps: int) -> int:
    """What each queue pair takes of a message, one after the other; the last that gets any takes the rest, so that of a short
    message some get nothing."""
    return -(-n_bytes // (qps * ALIGN_BYTES)) * ALIGN_BYTES


def stripes(n_bytes: int, qps: int) -> list[int]:
    """(qps,) bytes of each."""
    most = stripe_bytes(n_bytes, qps)
    return [min(most, max(0, n_bytes - i * most)) for i in range(qps)]
