"""All parts of Klamm on one machine under load of every kind, watched for memory and descriptors that grow."""
