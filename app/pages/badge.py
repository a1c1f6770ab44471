"""A badge: what was proven about something."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Badge:
    """What was proven, never by colour alone: a kind for the colour, a sign, a word, a sentence."""

    kind: str
    sign: str
    word: str
    explanation: str
