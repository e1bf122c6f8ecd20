"""The source's configuration keys, a module for each idea: `define` adds the keys, `read` returns their typed values."""
