"""The ground of our HTTP servers: listeners, TLS, logins and roles, a table of endpoints. It knows no server that stands on it."""
