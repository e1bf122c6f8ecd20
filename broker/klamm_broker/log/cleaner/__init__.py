"""The log cleaner: keeps the last record of every key in a compacted log.

`plan` chooses the log and its segments, `filter` the records that stay of a batch; both are pure. `work` reads segments
and writes `.cleaned` ones in a process of its own (`child`), which never touches a file of the log; the broker puts the
result in place (`log/swap.py`).
"""
