"""The log agent: lines of growing, rotated and truncated files to topics, at least once.

`tracker` decides (pure), `blocks` turns bytes into records, `sender` delivers them, `registry` remembers how far, `agent`
is the loop that ties them to files and clock, `config` reads agent.toml.
"""
