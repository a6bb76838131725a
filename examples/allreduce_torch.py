"""An all-reduce of float32 by PyTorch over gloo, timed: the slowest rank's seconds, once for each repetition.

sudo python3 run_topo.py exec --scale 1 --link-rate 50Mbit -- python3 examples/allreduce_torch.py BYTES [REPETITIONS]
"""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
n_bytes, repetitions = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
# The first makes the connections and is not timed.
for i in range(repetitions + 1):
    values = torch.full((n_bytes // 4,), float(rank))
    dist.barrier()
    began = time.monotonic()
    dist.all_reduce(values)
    worst = torch.tensor(time.monotonic() - began)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    assert bool((values == ranks * (ranks - 1) // 2).all())
    if rank == 0 and i > 0:
        print(f"{n_bytes} bytes, {ranks} ranks: {float(worst):.6f} s", flush=True)
dist.destroy_process_group()
