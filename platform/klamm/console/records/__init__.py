"""Records: what a search asks for, reading them, and showing their bytes."""
