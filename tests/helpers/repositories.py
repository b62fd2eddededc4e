"""Git repositories that tests make."""

from __future__ import annotations

import subprocess


def repository(path):
    def run(*arguments):
        return subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            **{"cwd": path, "check": True, "capture_output": True, "timeout": 30},
        )

    path.mkdir()
    run("init", "-q", "-b", "main")
    (path / "a.py").write_text("x = 1\n")
    run("add", "a.py")
    run("commit", "-q", "-m", "one")
    return run
