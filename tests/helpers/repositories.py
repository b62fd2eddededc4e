"""Git repositories for tests."""

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    """Return what git prints in ``folder``; it has to succeed."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    options = {"cwd": folder, "check": True, "capture_output": True, "text": True, "timeout": 30}
    return subprocess.run(command, **options).stdout


def repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """Create a repository with one commit of ``files`` (by default a.py), and return its folder."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in (files or {"a.py": "x = 1\n"}).items():
        (folder / name).write_text(text)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "one")
    return folder
