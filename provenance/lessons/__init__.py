"""The lessons: their chapters, the options that a reader can change, and what they measure, in float64."""
