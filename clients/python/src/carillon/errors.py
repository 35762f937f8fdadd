"""What a call can end with, apart from its answer."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional


class Error(Exception):
    """Any error of a call."""


class Problem(Error):
    """A refusal (RFC 9457). Its code is stable; docs/openapi.yaml lists them."""

    def __init__(self, status: int, document: Mapping[str, Any], retry_after: float = 0.0) -> None:
        self.status = status
        self.code: str = document.get("code", "")
        """Empty where the answer was not a node's."""
        self.title: str = document.get("title", "")
        self.detail: str = document.get("detail", "")
        self.retryable: bool = document.get("retryable", False)
        self.outcome: str = document.get("outcome", "")
        """With over: how the timer ended."""
        self.existing: Optional[Dict[str, Any]] = document.get("existing")
        """With exists, in_flight and version_mismatch: the timer that is there, where the node
        knew it."""
        self.retry_after = retry_after
        """Seconds; 0: the answer has no Retry-After."""
        text = f"carillon: {self.detail or self.title} ({f'{status} {self.code}'.strip()})"
        super().__init__(text + (": " + self.outcome.replace("_", " ") if self.outcome else ""))


class Unanswered(Error):
    """A call without a whole answer: a change may or may not have been made."""


class NeverSent(Unanswered):
    """No connection could be made, so that no node has seen the request."""


def read_problem(status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    """Makes a Problem of any answer but a 2xx. One without a problem document came from
    something in between."""
    after = headers.get("Retry-After") or ""
    retry_after = float(after) if after.isascii() and after.isdecimal() else 0.0
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("code"), str):
        to = headers.get("Location")
        what = f"and no explanation that a node gives: {body[:200]!r}"
        if to and status < 400:
            what = f"to {to[:200]}, which is not followed: no node redirects"
        document = {"detail": f"{status}, {what}"}
    return Problem(status, document, retry_after)


def worth_repeating(err: Error) -> bool:
    if isinstance(err, Unanswered):
        return not isinstance(err.__cause__, ValueError)  # no JSON: who answers so does it again
    return isinstance(err, Problem) and err.status in (429, 503)


def not_done(err: Error) -> bool:
    """The call has changed nothing."""
    if isinstance(err, Problem):
        return err.status == 429 or err.code in ("no_leader", "overloaded", "low_disk")
    return isinstance(err, NeverSent)


def refused_for_good(err: BaseException) -> bool:
    """Asking again does not help."""
    return isinstance(err, Problem) and 300 <= err.status < 500 and err.status not in (408, 429)
