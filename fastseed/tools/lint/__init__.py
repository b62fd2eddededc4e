"""Find what keeps a training script from being reproducible, from its text alone.

    for finding in fastseed.tools.lint.check(["train.py", "src"]).findings:
        print(finding.path, finding.line, finding.rule, finding.message, finding.fix)

Nothing that is checked is imported or run. The rules are in ``RULES``; ``explain`` returns the text
on one of them.
"""

from .registry import RULES, Finding, Rule, explain
from .runner import Report, check

__all__ = ["RULES", "Finding", "Report", "Rule", "check", "explain"]
