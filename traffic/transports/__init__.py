"""One file per transport: it opens a stream for every pair of ranks that sends."""
