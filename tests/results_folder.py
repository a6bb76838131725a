"""What people's scripts read in a results folder: its files, and the columns of its rows in the design's order."""

FILES = {
    "manifest.json", "results.csv", "results.parquet", "iterations.parquet", "links.parquet", "link_totals.parquet",
    "cpu.parquet", "balance.parquet", "spans.parquet", "nccl.json", "report.html",
}  # fmt: skip
# What a run's folder has beside what is written of its rows.
RUN_FILES = FILES | {"prediction.json"}
COLUMNS = [
    "fabric", "routing", "collective", "algorithm", "transport", "ranks", "placement", "rate_scale", "size_scale",
    "time_dilation", "seed", "size_bytes", "emulated_bytes", "iterations", "time_s", "emulated_s", "time_p50_s", "time_p95_s",
    "time_p99_s", "cv", "algbw_gbytes_s", "busbw_gbytes_s", "wrong", "roofline_s", "jct_ratio", "predicted_s", "bottleneck",
    "mmr", "jfi", "dropped_fabric", "dropped_host", "retransmits", "verdict", "reason", "calc_s", "communication_s", "exposed_s",
    "bubble", "parallel_efficiency", "mfu", "out_of_order", "naks", "cnps", "timeouts",
    "delivered", "ecn_seen", "ecn_marked", "sustained",
]  # fmt: skip
