"""The report of a pass: what it did, what it skipped and why, what it cost. No memory text."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from worker.sleep.model import Step

OK = "ok"
#: What became of a step that is switched off, and of one that the pass did not come to.
OFF = "skipped: off"
UNASKED = "skipped: not asked"

_NUMBERS = (
    "started_at", "duration_s", "items_reviewed", "connections_made", "insights_written",
    "salience_rerated", "llm_calls", "prompt_tokens", "completion_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """One pass. Times are Unix seconds, durations seconds; `steps` is `ok` or `skipped: why`."""

    agent: str
    run: str
    started_at: float
    model: str
    duration_s: float = 0.0
    items_reviewed: int = 0
    connections_made: int = 0
    insights_written: int = 0
    salience_rerated: int = 0
    skipped_reason: str | None = None
    steps: Mapping[str, str] = field(default_factory=dict)
    insight_id: int | None = None
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    risk: str = "read"

    def public(self) -> dict[str, Any]:
        """The shape of `consolidation run --json`."""
        return {
            **asdict(self),
            "steps": {step.value: self.steps.get(step, UNASKED) for step in Step},
        }

    def fields(self) -> dict[str, str]:
        """Flat fields for a stream; each value is JSON. See `from_fields`."""
        return {name: json.dumps(value, ensure_ascii=False) for name, value in asdict(self).items()}

    @classmethod
    def from_fields(cls, row: Mapping[bytes, bytes]) -> Self:
        """Read a row of the passes stream; fields of a later version are passed over.

        Raises TypeError (a field is missing or of another kind) or ValueError for a corrupt row.
        """
        known = {one.name for one in fields(cls)}
        values = {name.decode(): json.loads(value) for name, value in row.items()}
        report = cls(**{name: value for name, value in values.items() if name in known})
        numbers = (getattr(report, name) for name in _NUMBERS)
        if not all(isinstance(one, int | float) for one in numbers):
            raise TypeError("what is counted is no number")
        if not isinstance(report.steps, dict):
            raise TypeError("the steps are no object")
        return report

    def ended(self, now: float, **changes: Any) -> Self:
        """The same report, closed at `now`."""
        return replace(self, duration_s=round(max(0.0, now - self.started_at), 3), **changes)
