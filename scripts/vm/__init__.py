"""A virtual machine for the testbed: the image from apt (`image`), the machine (`guest`), a box for Vagrant (`box`).

The standard library alone, because `scripts/vm.sh` runs it before anything is set up.
"""
