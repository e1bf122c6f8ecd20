"""The log cleaner: keeps, of every key in a compacted log, the last record.

`plan` decides which log and which segments, `filter` what stays of a batch; both are pure. `work` reads segments and
writes `.cleaned` ones in a process of its own (`child`), which never touches a file of the log; the broker puts the
result in place (`log/swap.py`).
"""
