"""The pages of the lessons: prose with tensors in it, each of which the reader can open."""
