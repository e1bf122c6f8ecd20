"""LogTail: a source connector that follows log files, the journal or syslog with the log agent's code."""
