"""Load of every kind on a broker that is killed again and again, recorded as a history and checked at the end."""
