"""Whether this process was forked since something was noted."""

import os

count = 0
"""The calls of ``os.fork`` between this process and the one that loaded fastseed."""


def _count_fork() -> None:
    global count
    count += 1


os.register_at_fork(after_in_child=_count_fork)
