"""RoCEv2: packets as bytes, the reliable connection and its congestion control as state machines, and batched sockets.

Everything here is pure except `templates` (Scapy) and `batch` (sockets). Scapy is imported nowhere else: it is
GPL-2.0-only, and slow where a packet is sent.
"""
