"""What `import provenance` gives to Python and to notebooks: objects that show themselves.

Nothing is loaded here: `sites` and `cards` work without torch.
"""
