"""`klamm up`: broker and Connect worker on one machine, under one supervisor."""
