"""Frames as they pass a point of the fabric: taken off an interface, kept in files that Wireshark reads, read as flows.

    ring (the kernel) -- frame -- pcapng -- dissect -- flows

Everything here is pure except `ring`.
"""
