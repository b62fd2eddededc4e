"""A rank that is killed or stopped in a step is named by the others; nothing is half applied."""

import re

import pytest
from helpers.processes import run_script

PHASES = 8


@pytest.mark.slow
def test_a_rank_lost_in_any_phase_of_a_step_is_named_and_nothing_is_half_applied(tmp_path):
    found = run_script("lost_in_step.py", tmp_path)
    assert len(found) == 2 * PHASES
    for where, messages in found.items():
        lost = ({"0", "1", "2"} - {*messages}).pop()
        for text in messages.values():
            # Where the machine is busy, the other rank may come late, too.
            late = (
                rf"fastseed\.elastic\.SlotGradients\.step: ranks? ([012], )*{lost}(, \d)? did not"
            )
            assert re.match(late, text), (where, text)
