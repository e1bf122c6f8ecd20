"""Klamm as a service of systemd: units, their installation, upgrades with a way back."""
