"""Pictures as parts: what is drawn and where. Templates turn the parts into SVG, images and tables."""
