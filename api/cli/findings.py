"""Results of installation checks: a verdict, a sentence, and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import ParamSpec

from .terminal import Style

__all__ = ["NOTE", "OK", "PROBLEM", "Finding", "as_json", "as_text", "first_line", "run_check"]

OK, NOTE, PROBLEM = "ok", "note", "problem"
_COLOURS = {OK: "good", NOTE: "warning", PROBLEM: "bad"}
P = ParamSpec("P")
_VERDICT_WIDTH = 9
_NAME_WIDTH = 18


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report.

    Attributes:
        topic: The heading of the group that the line belongs to.
        name: What was checked.
        verdict: `ok`; `note` for what works but could be better; `problem` for what does not work.
        text: One sentence for the user.
        remedy: A command or a setting that repairs it. Empty only if the verdict is `ok`.
        facts: Numbers, names and versions for programs, as JSON values.
    """

    topic: str
    name: str
    verdict: str
    text: str
    remedy: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


def run_check(
    topic: str, check: Callable[P, Iterable[Finding]], *args: P.args, **kwargs: P.kwargs
) -> Iterator[Finding]:
    """Yield the findings of `check(*args)`. An error in the check becomes one more finding."""
    try:
        yield from check(*args, **kwargs)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        yield Finding(
            topic, check.__name__, PROBLEM, f"the check itself failed: {reason}",
            "report it as a bug of weftgrad, with what `weftgrad doctor --json` prints",
        )  # fmt: skip


def first_line(text: str) -> str:
    """Return the first line of an error message, at most 400 characters."""
    return text.strip().partition("\n")[0][:400]


def as_text(findings: Sequence[Finding], style: Style) -> str:
    """Return findings as text: a heading for each topic, a line for each finding, and the remedy below it."""
    lines: list[str] = []
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            topic = finding.topic
            lines += ["", style("heading", topic)]
        verdict = style(_COLOURS[finding.verdict], finding.verdict.ljust(_VERDICT_WIDTH))
        lines.append(f"  {verdict}{finding.name.ljust(_NAME_WIDTH)} {finding.text}")
        if finding.verdict != OK:
            lines.append(f"  {'':{_VERDICT_WIDTH}}{'':{_NAME_WIDTH}} remedy: {finding.remedy}")
    return "\n".join(lines)


def as_json(findings: Iterable[Finding]) -> list[dict[str, object]]:
    """Return findings as dicts that `json.dumps` accepts."""
    return [asdict(finding) for finding in findings]
