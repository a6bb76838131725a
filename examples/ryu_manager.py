"""Starts any Ryu application. `ryu-manager` does not start with eventlet from 0.30.3 on: Ryu 4.34 imports a name that eventlet
dropped.

.venv/bin/python examples/ryu_manager.py --ofp-listen-host 127.0.0.1 APPLICATION.py
"""

import eventlet.wsgi

eventlet.wsgi.ALREADY_HANDLED = None

from ryu.cmd.manager import main  # noqa: E402  # only now can it be imported

main()
