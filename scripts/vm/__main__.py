"""The command line of `scripts/vm.sh`."""

import argparse
import signal
import sys
from pathlib import Path

from vm import debian, guest, image
from vm.box import make_box

# -v: on an emulated CPU each takes a while, in which something should be seen.
_TESTS = ("env", "VM_TEST=1", ".venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider", "-v", "tests/vm")


def main() -> int:
    parser = argparse.ArgumentParser(prog="vm.sh", description="The testbed in a virtual machine of its own.")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("image", help="make the disk image if there is none")
    actions.add_parser("test", help="run tests/vm")
    box = actions.add_parser("box", help="make a box for vagrant-libvirt, see scripts/vagrant_up_test.sh")
    box.add_argument("file", type=Path)
    run = actions.add_parser("run", help="run a command in a copy of this repository")
    run.add_argument("command", nargs="+", help="behind --: -- sudo python3 run_topo.py")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.action == "box":
            make_box(arguments.file)
            return 0
        made = image.the_image()
        if arguments.action == "image":
            return 0
        return guest.run(made, _TESTS if arguments.action == "test" else arguments.command)
    except debian.Failed as failed:
        print(f"vm.sh: {failed}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
