"""Rows and labels belong to a thread: to its layers and its backward passes, and to no other."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers.support import restart
from torch.utils.checkpoint import checkpoint

from fastseed import nn
from fastseed.nn.dropout import scope as layer_scope

pytestmark = pytest.mark.usefixtures("seeded")

THREADS = 4
ONES = torch.ones(2, 64)


def at_once(call):
    """Call ``call(i, barrier)`` in several threads at once, and return the results."""
    barrier = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(lambda i: call(i, barrier), range(THREADS)))


def whole_of(layer):
    restart()
    found = layer(torch.ones(2 * THREADS, 64))
    restart()
    return found


def test_threads_have_their_own_rows_and_labels():
    layer = nn.Dropout(0.5, name="block")
    whole, labelled = whole_of(layer), []
    for i in range(THREADS):
        with nn.label(f"view {i}"):
            labelled.append(layer(ONES))
    restart()

    def work(i, barrier):
        found = []
        for _ in range(20):
            barrier.wait(60)
            with nn.rows(2 * i, total=2 * THREADS):
                barrier.wait(60)
                found.append(nn.functional.dropout(ONES, 0.0, 1))
                if not found[1:]:
                    found[0] = layer(ONES)
            barrier.wait(60)
            with nn.label(f"view {i}"):
                barrier.wait(60)
                if not found[1:]:
                    found.append(layer(ONES))
        return found[:2]

    for i, (part, view) in enumerate(at_once(work)):
        assert torch.equal(part, whole[2 * i : 2 * i + 2]) and torch.equal(view, labelled[i])
    assert (
        layer_scope.process_state.threads_in_blocks == []
        and layer_scope.thread_scope().rows is None
    )


def test_a_block_counts_in_the_thread_that_entered_it_alone():
    layer = nn.Dropout(0.5, name="block")
    whole = whole_of(layer)
    block = nn.rows(4, total=8)
    with block:
        with ThreadPoolExecutor(1) as other:
            assert torch.equal(other.submit(layer, ONES).result(), whole[:2])
        with ThreadPoolExecutor(1) as other:  # the same object, in its own right

            def enter():
                with block:
                    return layer_scope.thread_scope().rows

            assert other.submit(enter).result().start == 4
        assert torch.equal(layer(ONES), whole[4:6])
    assert layer_scope.thread_scope().rows is None


def test_a_block_that_is_entered_twice_is_left_from_the_inside():
    outer, inner = nn.rows(0, total=8), nn.rows(4, total=8)
    with outer, inner:
        with outer:
            assert layer_scope.thread_scope().rows is outer.value
        assert layer_scope.thread_scope().rows is inner.value


def test_of_two_threads_that_take_the_same_rows_one_is_refused():
    layer = nn.Dropout(0.5, name="block")

    def work(i, barrier):
        barrier.wait(60)
        try:
            return layer(ONES) is not None
        except RuntimeError as error:
            assert "used a second time" in str(error)
            return False

    for step in range(20):
        restart(step)
        assert sum(at_once(work)) == 1


class Deep(torch.autograd.Function):
    """Calls ``call`` in a backward pass inside of ``depth`` others: of more than 60, torch's own
    threads run the inner ones, as they do all those of an accelerator."""

    @staticmethod
    def forward(ctx, x, depth, call):
        ctx.depth, ctx.call = depth, call
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.depth == 0:
            ctx.call()
        else:
            with torch.enable_grad():
                x = torch.ones(1, requires_grad=True)
                Deep.apply(x, ctx.depth - 1, ctx.call).sum().backward()
        return gradient, None, None


def in_a_thread_of_autograd(call):
    """Return what ``call`` returns in a thread that torch started for a backward pass."""
    found = []

    def note():
        assert isinstance(threading.current_thread(), threading._DummyThread)
        found.append(call())

    Deep.apply(torch.ones(1, requires_grad=True), 70, note).sum().backward()
    return found[0]


def test_a_backward_pass_draws_what_its_forward_pass_drew_and_once():
    layer = nn.Dropout(0.5, name="a")

    def again(*shape):
        x = torch.ones(1, requires_grad=True)
        Deep.apply(x, 0, lambda: layer(torch.ones(shape))).sum().backward()

    layer(torch.ones(2, 4))
    other = pytest.raises(RuntimeError, match="'a' is used in a backward pass for rows 0 to")
    for shape in ((2, 8), (3, 4)):
        with other:
            again(*shape)
    again(2, 4)
    with other:
        again(2, 4)


def recomputed(layer):
    """Return the mask of a recomputation in a thread of autograd, for the rows in force here."""
    masks = []

    def block(x):
        masks.append(layer(x))
        return masks[-1]

    total = checkpoint(block, ONES.clone().requires_grad_(), use_reentrant=True).sum()
    in_a_thread_of_autograd(total.backward)
    assert len(masks) == 2 and torch.equal(*masks)
    return masks[1].detach()


def test_backward_threads_have_the_rows_of_their_caller():
    layer = nn.Dropout(0.5, name="block")
    whole = whole_of(layer)
    assert torch.equal(recomputed(layer), whole[:2])
    with nn.rows(4, total=8), nn.label("teacher"):
        found = recomputed(layer)
    with nn.rows(4, total=8), nn.label("teacher"), pytest.raises(RuntimeError, match="second"):
        layer(ONES)
    restart()
    with nn.rows(4, total=8), nn.label("teacher"):
        assert torch.equal(layer(ONES), found)


def test_backward_threads_of_several_callers():
    def work(i, barrier):
        with nn.rows(2 * i, total=8):
            layer_scope.thread_scope()  # as a layer does in the forward pass
            out = Note.apply(torch.ones(1, requires_grad=True), found.append)
            barrier.wait(60)
            out.sum().backward()
            barrier.wait(60)

    class Note(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, call):
            ctx.call = call
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            ctx.call(layer_scope.thread_scope().rows.start)
            return gradient, None

    found = []
    at_once(work)
    assert sorted(found) == [0, 2, 4, 6]


def test_a_backward_thread_whose_caller_is_unknown_is_an_error():
    with nn.rows(4, total=8):
        start = in_a_thread_of_autograd(lambda: layer_scope.thread_scope().rows.start)
        assert start == 4

        def enter():
            with nn.rows(2, total=8):
                entered.set()
                assert leave.wait(60)

        entered, leave = threading.Event(), threading.Event()
        other = threading.Thread(target=enter)
        other.start()
        assert entered.wait(60)
        try:
            with pytest.raises(RuntimeError, match="one thread at a time must be in blocks"):
                in_a_thread_of_autograd(layer_scope.thread_scope)
        finally:
            leave.set()
            other.join()


def test_compiled_layers_take_the_rows_of_their_thread():
    layer = nn.Dropout(0.5, name="block")
    whole = whole_of(layer)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    lock = threading.Lock()  # torch compiles in one thread at a time

    def work(i, barrier):
        with nn.rows(2 * i, total=2 * THREADS):
            barrier.wait(60)
            with lock:
                return compiled(ONES)

    for found in (at_once(work), at_once(work)):
        for i, part in enumerate(found):
            assert torch.equal(part, whole[2 * i : 2 * i + 2])
    assert torch.equal(compiled(ONES), whole[:2])
    with nn.rows(4, total=8):
        assert torch.equal(in_a_thread_of_autograd(lambda: compiled(ONES)), whole[4:6])


@pytest.mark.parametrize("kind", [lambda: nn.rows(4, 8), lambda: nn.label("teacher")])
def test_an_interrupt_in_a_block_or_where_it_begins_ends_it(kind, monkeypatch):
    scope = layer_scope.this_thread.scope

    def check():
        assert scope.blocks == [] and scope.rows is None and scope.label_index == 0
        assert scope.first_rows[torch.device("cpu")].item() == 0
        assert layer_scope.process_state.threads_in_blocks == []

    with pytest.raises(KeyboardInterrupt), kind():
        assert scope.blocks
        raise KeyboardInterrupt
    check()
    choose, calls = scope._choose, []

    def interrupted():
        choose()
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(scope, "_choose", interrupted)
    with pytest.raises(KeyboardInterrupt), kind():
        pass
    check()
