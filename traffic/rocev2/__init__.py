"""RoCEv2: packets as bytes, the reliable connection and its congestion control as state machines, and batched sockets.

    message -- sender -- frames -- port -- nic -- fabric -- nic -- packet -- receiver -- message

Everything here is pure except `templates` (Scapy), `nic`, `nics`, `batch` and `timer` (the kernel) and `engine`, which drives
them. Scapy is imported nowhere else:
it is GPL-2.0-only, and slow where a packet is sent.
"""
