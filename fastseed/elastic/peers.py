"""The ranks that divide the data: how they wait for each other, and hear who left a step."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

from .._backend import private_distributed
from ..distributed import rendezvous

FUNCTION = "elastic.SlotGradients"
_LOOK = 1.0  # seconds between two looks for ranks that left the step
_FAILED = "/failed"  # behind the key of a step: the first failure of a collective


class Peers:
    """The ranks of a group, which wait for each other unless one of them has left the step."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._step = ""  # the key of the step under way in the store; none in a job of one process

    def enter(self, name: str, step: int) -> None:
        """Begin a step; ``name`` is common to these ranks, and no others have it."""
        self._step = f"fastseed.{FUNCTION}/{name}/{step}" if name else ""

    def leave(self, where: str) -> None:
        """Tell ranks that wait for this one that it left the step; none of them may answer."""
        if self._step:
            self._tell("", f"{rendezvous.name_ranks([dist.get_rank()])} left the step {where}")

    def _tell(self, key: str, text: str) -> str:
        """Tell waiting ranks a text; return the first one that they were told."""
        told = text
        if self._step:
            with contextlib.suppress(RuntimeError):  # the store is gone, and the job with it
                store = private_distributed.default_store()
                told = store.compare_set(self._step + key, "", text).decode()
        return told

    def wait(self, work: dist.Work, tensor: torch.Tensor) -> None:
        """Wait for a collective; RuntimeError names a rank that left, ended or does not answer.

        On an accelerator its stream waits, and the host goes on.
        """
        if tensor.device.type != "cpu":
            work.wait()
            return
        function = f"{FUNCTION}.step"
        try:
            news = rendezvous.collective(function, self._wait, work, group=self._group)
        except RuntimeError as error:
            # told before this rank leaves because of it, so that others name the first cause
            cause = str(error).removeprefix(f"fastseed.{function}: ")
            news = self._tell("", cause)
            if news == cause:
                raise
        if news:
            raise RuntimeError(
                f"fastseed.{function}: {news}, and this rank waits for it: end the job"
            )

    def _wait(self, work: dist.Work, group: dist.ProcessGroup) -> str:
        """Return nothing when a collective is done, or else why this rank waits in vain.

        RuntimeError if the collective failed, also on another rank that waits: then all of these
        answer each other, and name the rank that does not.
        """
        news: dict[str, str] = {}
        ended = threading.Event()
        try:
            if not _is_done(work) and self._step:
                threading.Thread(target=self._listen, args=(news, ended), daemon=True).start()
            while not _is_done(work):
                if "" in news:
                    return news[""]
                if _FAILED in news:
                    raise RuntimeError(news[_FAILED])
        except RuntimeError as error:
            self._tell(_FAILED, str(error))
            raise
        finally:
            ended.set()
        return ""

    def _listen(self, news: dict[str, str], ended: threading.Event) -> None:
        """Look for news, in another thread: a store that is stopped never answers."""
        store = private_distributed.default_store()
        with contextlib.suppress(RuntimeError):
            while not ended.is_set() and not news:
                for key in ("", _FAILED):
                    if store.check([self._step + key]):
                        news[key] = store.get(self._step + key).decode()
                ended.wait(_LOOK)


def _is_done(work: dist.Work) -> bool:
    """Wait a moment for a collective; False if it still runs, RuntimeError if it failed."""
    try:
        work.wait(timedelta(seconds=_LOOK))
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()
    return True
