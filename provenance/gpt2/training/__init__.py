"""How the demo model is made: its text, its training, and the figures of its card."""
