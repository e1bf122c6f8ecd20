"""What runs in a child process: the only place where plugin code is called."""
