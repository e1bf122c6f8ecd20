"""The log agent: files, syslog and the journal to topics, with a spool on disk and a ledger of what was left out."""
