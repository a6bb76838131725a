"""One file per transport: it opens a stream for every connection of a schedule."""
