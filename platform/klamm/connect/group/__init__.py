"""Connect's worker group: its bytes (`protocol`), the sharing of work (`assignor`), a worker's place
(`membership`).
"""
