"""A local authority, certificates and first users: all that a broker needs before strangers may reach it."""
