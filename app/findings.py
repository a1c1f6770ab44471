"""What a check-up says: findings, each with what is wrong and what to do."""

from enum import StrEnum

from pydantic import BaseModel, Field


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "fine"
    ATTENTION = "attention"
    WRONG = "wrong"


class Finding(BaseModel):
    """One thing that was looked at."""

    area: str
    level: Level
    what: str = Field(description="what was found")
    advice: str = Field("", description="what to do about it")


class Diagnosis(BaseModel):
    """All findings of a check-up; those of a repair come first."""

    findings: list[Finding]

    @property
    def is_fine(self) -> bool:
        """Whether nothing needs attention."""
        return all(finding.level is Level.FINE for finding in self.findings)


def fine(area: str, what: str, advice: str = "") -> Finding:
    """Nothing to do."""
    return Finding(area=area, level=Level.FINE, what=what, advice=advice)


def attention(area: str, what: str, advice: str) -> Finding:
    """It works, but somebody should look."""
    return Finding(area=area, level=Level.ATTENTION, what=what, advice=advice)


def wrong(area: str, what: str, advice: str) -> Finding:
    """Something does not work until it is seen to."""
    return Finding(area=area, level=Level.WRONG, what=what, advice=advice)
