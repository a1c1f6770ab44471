"""What `import provenance` gives to Python and to notebooks: objects that show themselves.

Nothing is loaded here: `sites` and `cards` work without torch.
"""

from warnings import filterwarnings

# In a notebook, packages of ours say that they could draw progress bars with another one; whenever they are imported.
filterwarnings("ignore", "IProgress not found")
